"""Which image belongs to which split, decided by fixed seeds of its own: the same for every run, machine and version.

The order comes from sorting raw 64-bit outputs of PCG64. That stream is fixed by its definition, unlike the shuffling
functions of numpy and torch, which may change between versions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from picojoule.errors import PicojouleError

VALIDATION_SEED = 20_000
SUBSET_SEED = 30_000

Indices = NDArray[np.int64]


def shuffled(count: int, key: int | Sequence[int]) -> Indices:
    """The numbers 0 … count − 1 in an order that depends on `key` (one or several non-negative integers) alone.

    >>> shuffled(5, key=0).tolist()
    [3, 2, 1, 0, 4]
    """
    return np.argsort(np.random.PCG64(key).random_raw(count), kind="stable").astype(np.int64)


def draw_stratified(labels: NDArray[np.int64], count: int, seed: int) -> tuple[Indices, Indices]:
    """Split positions into `count` drawn ones and the rest, with each class drawn in proportion to its size.

    Fractions of an image are settled by largest remainder, lower classes first. Both results are in ascending order.
    """
    classes, sizes = np.unique(labels, return_counts=True)
    if not 0 <= count <= len(labels):
        raise PicojouleError(f"{count} of {len(labels)} images cannot be drawn; ask for at most {len(labels)}.")
    # In whole numbers: floor(size·count/total) for each class, then one more where the remainder is largest.
    quotas, remainders = np.divmod(sizes * count, max(len(labels), 1))
    for extra in np.argsort(-remainders, kind="stable")[: count - int(quotas.sum())]:
        quotas[extra] += 1
    return _take(labels, classes, quotas, seed)


def draw_balanced(
    labels: NDArray[np.int64], count: int, classes: int, seed: int = SUBSET_SEED, what: str = "limit"
) -> Indices:
    """Positions of `count` images whose numbers per class differ by at most one, in ascending order.

    A larger subset contains every smaller one. `what` is the count's name in an error.
    """
    sizes = np.bincount(labels, minlength=classes)
    quotas = np.full(classes, count // classes) + (np.arange(classes) < count % classes)
    if count < 1 or np.any(quotas > sizes):
        raise PicojouleError(
            f"{what} = {count} is impossible: a class-balanced subset of these {len(labels)} images has "
            f"between 1 and {_largest_balanced(sizes)} images."
        )
    return _take(labels, np.arange(classes), quotas, seed)[0]


def _largest_balanced(sizes: NDArray[np.int64]) -> int:
    """As many of each class as the smallest has, and one more for each of the leading classes that has one more."""
    least = int(sizes.min())
    leading = int(np.argmax(sizes == least))
    return least * len(sizes) + leading


def _take(labels: NDArray[np.int64], classes: Indices, quotas: Indices, seed: int) -> tuple[Indices, Indices]:
    order = shuffled(len(labels), seed)
    drawn = np.zeros(len(labels), dtype=bool)
    for kind, quota in zip(classes, quotas, strict=True):
        drawn[order[labels[order] == kind][:quota]] = True
    return np.flatnonzero(drawn), np.flatnonzero(~drawn)
