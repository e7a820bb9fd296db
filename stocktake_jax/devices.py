"""Work as a device does it best: parts of it spread over the local devices, and values computed once.

Parts of the work have one thread each and never talk to each other, so no collective operation is compiled that could
wait for a device which a busy machine keeps from running.
"""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")
Tree = TypeVar("Tree")


def over_devices(
    work: Callable[[Item], Outcome], items: Sequence[Item], *, compile_once: bool = False
) -> list[Outcome]:
    """``work`` on every item, in order, on whatever local device is free, in the precision of the caller.

    Args:
        work: what to do with an item.
        items: the parts of the work.
        compile_once: whether as many threads share the first device on a CPU, where a program is otherwise compiled
            anew for each. Worth it where compiling takes long; short programs run a little slower so.
    """
    devices = jax.local_devices()
    if compile_once and devices[0].platform == "cpu":
        devices = devices[:1] * len(devices)
    free: queue.SimpleQueue[jax.Device] = queue.SimpleQueue()
    for device in devices:
        free.put(device)
    float64 = jax.dtypes.canonicalize_dtype(np.float64) == np.float64

    def on_a_device(item: Item) -> Outcome:
        device = free.get()
        try:
            # Both settings belong to a thread, and this one is new.
            with jax.enable_x64(float64), jax.default_device(device):
                return work(item)
        finally:
            free.put(device)

    if len(items) == 1:
        return [work(items[0])]
    with ThreadPoolExecutor(min(len(items), len(devices))) as threads:
        return list(threads.map(on_a_device, items))


def computed_once(tree: Tree, true: jax.Array) -> Tree:
    """``tree``, kept by a CPU's compiler instead of computed anew by every loop that reads it.

    XLA copies an expression into each of its consumers. The branches of a conditional are a border that it does not
    fuse across.

    Args:
        tree: arrays.
        true: bool scalar that always holds, which the compiler must not know; a batched one is no border.
    """

    def conditional(tree: Tree) -> Tree:
        return jax.lax.cond(true, lambda x: x, lambda x: jax.tree.map(jnp.zeros_like, x), tree)

    return jax.lax.platform_dependent(tree, cpu=conditional, default=lambda x: x)
