"""Splits: which image belongs to which, by fixed seeds of their own, the same for every run, machine and version.

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
    """Shuffle the numbers 0 … count − 1.

    Args:
        count: How many numbers.
        key: One or several non-negative integers, on which alone the order depends.

    Returns:
        The numbers in their new order.

    >>> shuffled(5, key=0).tolist()
    [3, 2, 1, 0, 4]
    """
    return np.argsort(np.random.PCG64(key).random_raw(count), kind="stable").astype(np.int64)


def draw_stratified(labels: NDArray[np.int64], count: int, seed: int) -> tuple[Indices, Indices]:
    """Split positions into `count` drawn ones and the rest, with each class drawn in proportion to its size.

    Fractions of an image are settled by largest remainder, lower classes first.

    Args:
        labels: The class of each image.
        count: Images to be drawn.
        seed: The seed of the draw.

    Returns:
        The drawn positions and the others, both in ascending order.

    Raises:
        PicojouleError: There are not so many images.

    >>> draw_stratified(np.array([0, 0, 1, 1]), 2, seed=0)
    (array([1, 3]), array([0, 2]))
    """
    classes, sizes = np.unique(labels, return_counts=True)
    if not 0 <= count <= len(labels):
        raise PicojouleError(f"{count} of {len(labels)} images cannot be drawn: ask for at most {len(labels)}")
    # In whole numbers: floor(size·count/total) for each class, then one more where the remainder is largest.
    quotas, remainders = np.divmod(sizes * count, max(len(labels), 1))
    for extra in np.argsort(-remainders, kind="stable")[: count - int(quotas.sum())]:
        quotas[extra] += 1
    return _take(labels, classes, quotas, seed)


def draw_balanced(
    labels: NDArray[np.int64], count: int, classes: int, seed: int = SUBSET_SEED, what: str = "limit"
) -> Indices:
    """Draw positions of `count` images whose numbers per class differ by at most one.

    A larger subset contains every smaller one.

    Args:
        labels: The class of each image.
        count: Images to be drawn.
        classes: The number of classes.
        seed: The seed of the draw.
        what: The count's name in an error.

    Returns:
        The drawn positions in ascending order.

    Raises:
        PicojouleError: No balanced subset has that many images.
    """
    sizes = np.bincount(labels, minlength=classes)
    quotas = np.full(classes, count // classes) + (np.arange(classes) < count % classes)
    if count < 1 or np.any(quotas > sizes):
        raise PicojouleError(
            f"{what} = {count} is not possible: a class-balanced subset of these {len(labels)} images has "
            f"between 1 and {_largest_balanced(sizes)} images"
        )
    return _take(labels, np.arange(classes), quotas, seed)[0]


def draw_limited(labels: NDArray[np.int64], classes: int, count: int | None, what: str) -> Indices:
    """Draw positions of a class-balanced subset of that many images, or all positions.

    Args:
        labels: The class of each image.
        classes: The number of classes.
        count: Images to be drawn; None is all of them.
        what: The count's name in an error.

    Returns:
        The positions in ascending order.

    Raises:
        PicojouleError: The count is not a whole number, or no balanced subset has that many images.

    >>> draw_limited(np.array([0, 0, 1, 1]), 2, None, "limit").tolist()
    [0, 1, 2, 3]
    """
    if count is None:
        return np.arange(len(labels))
    if isinstance(count, bool) or not isinstance(count, int):
        raise PicojouleError(f"{what} = {count!r} is not a number of images: take a whole number or leave it out")
    return draw_balanced(labels, count, classes, what=what)


def _largest_balanced(sizes: NDArray[np.int64]) -> int:
    """Count as many of each class as the smallest has, and one more for each leading class that has one more."""
    least = int(sizes.min())
    leading = int(np.argmax(sizes == least))
    return least * len(sizes) + leading


def _take(labels: NDArray[np.int64], classes: Indices, quotas: Indices, seed: int) -> tuple[Indices, Indices]:
    order = shuffled(len(labels), seed)
    drawn = np.zeros(len(labels), dtype=bool)
    for kind, quota in zip(classes, quotas, strict=True):
        drawn[order[labels[order] == kind][:quota]] = True
    return np.flatnonzero(drawn), np.flatnonzero(~drawn)
