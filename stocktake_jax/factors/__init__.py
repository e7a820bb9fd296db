"""The six hidden factors, one module each: a chain, its readings, and what its states mean.

A module names its ``CHAIN``, ``LAYOUT``, ``START`` state, ``STRESS`` mask, ``READINGS`` (with their week-0
``BASELINE`` and the random ``WORDS`` a week takes), the numbers in a ``...Params`` class, and two functions: ``read``
draws the readings of a state just entered from random words, ``replay`` makes one step on CPython's stream.
"""

from types import ModuleType

from stocktake_jax.factors import canal, demand, freight, port, quality, supplier

MODULES: dict[str, ModuleType] = {
    "canal": canal,
    "demand": demand,
    "freight": freight,
    "port": port,
    "quality": quality,
    "supplier": supplier,
}
FACTORS: tuple[str, ...] = tuple(MODULES)
"""Names of the factors, in the order of every array with a factor axis."""
