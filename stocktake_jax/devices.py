"""Work spread over the local devices, one thread each.

Parts of the work never talk to each other, so no collective operation is compiled that could wait for a device which
a busy machine keeps from running.
"""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import jax
import numpy as np

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def over_devices(work: Callable[[Item], Outcome], items: Sequence[Item]) -> list[Outcome]:
    """``work`` on every item, in order, on whatever local device is free, in the precision of the caller."""
    free: queue.SimpleQueue[jax.Device] = queue.SimpleQueue()
    for device in jax.local_devices():
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
    with ThreadPoolExecutor(min(len(items), len(jax.local_devices()))) as threads:
        return list(threads.map(on_a_device, items))
