"""The parts of a data set of the user's own, as its reader gives them: samples with labels; some may be missing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.data.samples import Samples
from picojoule.errors import PicojouleError

PARTS = ("train", "validation", "test")
SPELLINGS = {"train": ("train", "training"), "validation": ("validation", "valid", "val"), "test": ("test", "testing")}
"""How each part may be called in a file or a folder."""
_HIGHEST = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class Part:
    """Samples of one part and the class of each, int64 [N]."""

    samples: Samples
    labels: NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Parts:
    """What a reader found; validation and test are split off the training part where they are missing.

    Attributes:
        train: The training part.
        validation: The validation part, if there is one.
        test: The test part, if there is one.
        source: Where it was found.
        class_names: By class number, where they have names.
    """

    train: Part
    validation: Part | None
    test: Part | None
    source: str
    class_names: tuple[str, ...] = ()


def checked_part(samples: Samples, labels: Any, where: str) -> Part:
    """Check that samples and labels belong together.

    Args:
        samples: The samples.
        labels: The class of each, whole numbers from 0 up.
        where: Their name in errors.

    Returns:
        The part.

    Raises:
        PicojouleError: The labels are not classes, or there are more or fewer of them than samples.
    """
    checked = checked_labels(labels, where)
    if len(checked) != len(samples):
        raise PicojouleError(
            f"{where} has {len(samples):,} samples and {len(checked):,} labels: give one label per sample"
        )
    return Part(samples, checked)


def checked_labels(labels: Any, where: str) -> NDArray[np.int64]:
    """Check that labels are classes.

    Args:
        labels: Whole numbers from 0 up, [N].
        where: The name of their part in errors.

    Returns:
        The labels.

    Raises:
        PicojouleError: They are something else.

    >>> checked_labels([0, 1], "here")
    array([0, 1])
    """
    found: NDArray[Any] = np.asarray(labels)
    if found.ndim == 1 and found.dtype.kind in "US":
        raise PicojouleError(
            f"the labels of {where} are names, such as {str(found[0])!r}: give numbers, as names, numbers = "
            "numpy.unique(labels, return_inverse=True) makes them, and the names as class_names in an .npz file"
        )
    if found.ndim != 1 or found.dtype.kind not in "iu" or (len(found) and found.min() < 0):
        raise PicojouleError(
            f"the labels of {where} are {found.dtype} of the shape {found.shape}: give one class per sample, a whole "
            "number from 0 up"
        )
    if len(found) and int(found.max()) > _HIGHEST:
        raise PicojouleError(f"the labels of {where} go up to {found.max()}: number the classes from 0, one by one")
    return found.astype(np.int64)
