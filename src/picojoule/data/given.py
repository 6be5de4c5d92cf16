"""Data of the user's own as Python values: what a factory returns, or what is given to `fit`.

(train, validation, test), of which the later two may be None or left out; each part is (samples, labels) as tensors or
arrays, or a map-style data set of `torch.utils.data`, whose items are (sample, label).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.data.parts import PARTS, Part, Parts, checked_part
from picojoule.data.samples import ArraySamples, Samples, room, stored
from picojoule.data.splits import Indices
from picojoule.errors import PicojouleError, reason_of
from picojoule.io import factories, files

Given: TypeAlias = "Sequence[Any] | Mapping[str, Any]"
"""What a factory of data returns."""
_FORM = "return (train, validation, test), each None, (samples, labels) or a map-style data set of torch.utils.data"


def read_factory(name: str) -> Parts:
    """Call the function behind `package.module:factory` and check what it returns. This runs code.

    Args:
        name: The module and the function.

    Returns:
        Its parts.

    Raises:
        PicojouleError: It cannot be found, fails, or returns something else.
        SystemExit: The code ended the process.
    """
    factory = factories.find(name, "data set")
    try:
        with contextlib.redirect_stdout(sys.stderr):
            given = factory()
    except SystemExit as end:
        raise factories.exited(name, end, "data", "let it return the data") from end
    except Exception as error:
        raise PicojouleError(
            f"{name} failed ({reason_of(error)}): name a function that returns the data without arguments"
        ) from error
    return read_given(given, name)


def read_given(given: Given, where: str) -> Parts:
    """Check parts that are given as Python values.

    Args:
        given: (train, validation, test), or a dictionary of these names.
        where: Where they come from, for errors.

    Returns:
        The parts.

    Raises:
        PicojouleError: They are something else.

    >>> images, labels = torch.zeros(4, 1, 8, 8), torch.tensor([0, 1, 0, 1])
    >>> parts = read_given([(images, labels)], "here")
    >>> len(parts.train.samples), parts.test
    (4, None)
    """
    if isinstance(given, Mapping):
        strange = [str(key) for key in given if key not in PARTS]
        if strange:
            raise PicojouleError(f"{where} has a part {strange[0]!r}: name them train, validation and test")
        by_name = {part: given.get(part) for part in PARTS}
    elif _is_map_style(given) or _is_pair(given):
        by_name = {"train": given}
    elif isinstance(given, tuple | list) and 1 <= len(given) <= len(PARTS):
        by_name = dict(zip(PARTS, given, strict=False))
    else:
        raise PicojouleError(f"{where} gave {type(given).__name__}, which is not a data set: {_FORM}")
    parts = {
        name: _part(part, f"the {name} part of {where}") if part is not None else None for name, part in by_name.items()
    }
    train = parts["train"]
    if train is None:
        raise PicojouleError(f"{where} has no training part: {_FORM}")
    return Parts(train, parts.get("validation"), parts.get("test"), where, _class_names(by_name["train"]))


def _is_pair(part: object) -> bool:
    return isinstance(part, tuple | list) and len(part) == 2 and all(isinstance(x, Tensor | np.ndarray) for x in part)


def _is_map_style(part: object) -> bool:
    return hasattr(part, "__getitem__") and hasattr(part, "__len__") and not isinstance(part, tuple | list | Tensor)


def _part(part: Any, where: str) -> Part:
    if _is_pair(part):
        samples, labels = (_as_array(each, where) for each in part)
        return checked_part(ArraySamples(samples, where), labels, where)
    if _is_map_style(part) and not isinstance(part, np.ndarray):
        return _read_items(part, where)
    if isinstance(part, tuple | list) and len(part) == 2:
        raise PicojouleError(
            f"{where} is ({', '.join(type(each).__name__ for each in part)}): give its samples and its labels as "
            "tensors or arrays, such as numpy.asarray makes of a list"
        )
    raise PicojouleError(f"{where} is {type(part).__name__}: {_FORM}")


def _as_array(values: Any, where: str) -> NDArray[Any]:
    if np.ma.is_masked(values):
        raise PicojouleError(f"{where} has masked values: fill them, as values.filled(0) does, or leave them out")
    try:
        if isinstance(values, Tensor):
            values = values.detach().cpu()
            values = values.float() if values.dtype == torch.bfloat16 else values
        array: NDArray[Any] = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as fault:
        kind = f"a tensor of {values.dtype}, {values.layout}," if isinstance(values, Tensor) else type(values).__name__
        raise PicojouleError(
            f"{where} has {kind} which is no array of numbers ({files.reason(fault)}): give dense tensors or arrays of "
            "uint8 or float32"
        ) from None
    return array


@dataclass(frozen=True, eq=False)
class DatasetSamples:
    """The samples of a map-style data set, asked for one by one.

    Attributes:
        dataset: The user's data set.
        shape: The shape of one sample.
        dtype: uint8 or float32.
        where: Its name in errors.
    """

    dataset: Any
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    where: str

    def __len__(self) -> int:
        return len(self.dataset)

    def take(self, positions: Indices) -> NDArray[Any]:
        """Ask for the samples at these positions, [N, …]."""
        taken = [_item(self.dataset, position, self.where)[0] for position in positions.tolist()]
        for position, sample in zip(positions.tolist(), taken, strict=True):
            if sample.shape != self.shape:
                raise PicojouleError(
                    f"sample {position} of {self.where} has the shape {sample.shape} and the first one {self.shape}: "
                    "bring all to one shape"
                )
            if (sample.dtype == np.uint8) is not (self.dtype == np.uint8):
                raise PicojouleError(
                    f"sample {position} of {self.where} is {sample.dtype} and the first one {self.dtype}: give all as "
                    "uint8, or none of them"
                )
        return stored(np.stack(taken), self.dtype) if taken else np.zeros((0, *self.shape), self.dtype)


def _read_items(dataset: Any, where: str) -> Part:
    """Read a map-style data set once: into memory if it fits, else only its labels."""
    try:
        count = len(dataset)
    except Exception as error:  # the user's data set may raise anything
        raise PicojouleError(
            f"the length of {where} cannot be told ({reason_of(error)}): give a data set that has one"
        ) from error
    if not count:
        raise PicojouleError(f"{where} is empty: give it at least one sample per class")
    first, _ = _item(dataset, 0, where)
    if not np.array_equal(first, _item(dataset, 0, where)[0]):
        raise PicojouleError(
            f"{where} gives another sample 0 each time, so that the run could not be repeated: leave random changes "
            "to data.augment"
        )
    like = ArraySamples(first[None], where)
    samples: Samples = DatasetSamples(dataset, like.shape, like.dtype, where)
    fits = count * int(np.prod(like.shape)) * like.dtype.itemsize <= room()
    kept: list[NDArray[Any]] = []
    labels: list[int] = []
    for position in range(count):
        sample, label = _item(dataset, position, where)
        labels.append(label)
        if sample.shape != like.shape or (sample.dtype == np.uint8) is not (like.dtype == np.uint8):
            samples.take(np.array([position]))  # says so
        if fits:
            kept.append(stored(sample, like.dtype))
    if fits:
        samples = ArraySamples(np.stack(kept), where)
    return checked_part(samples, np.array(labels), where)


def _item(dataset: Any, position: int, where: str) -> tuple[NDArray[Any], int]:
    """Ask for one item and check that it is (sample, label)."""
    try:
        sample, label = dataset[position][:2]
    except PicojouleError:
        raise
    except Exception as error:  # the user's data set may raise anything
        raise PicojouleError(
            f"sample {position} of {where} cannot be read ({reason_of(error)}): give items (sample, label)"
        ) from error
    array = _as_array(sample, f"sample {position} of {where}")
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2, 3, 4):
        raise PicojouleError(
            f"sample {position} of {where} is {type(sample).__name__} of {array.dtype} and the shape {array.shape}: "
            "give a tensor or array, [D], [C, H, W] or [T, C, H, W]"
        )
    number = _as_array(label, f"the label of sample {position} of {where}")
    if number.size != 1 or number.dtype.kind not in "iu":
        raise PicojouleError(f"the label of sample {position} of {where} is {label!r}: give a whole number from 0 up")
    return array[None] if array.ndim == 2 else array, int(number.reshape(()))


def _class_names(train: Any) -> tuple[str, ...]:
    """Take the names that torchvision's data sets have in `classes`."""
    names = getattr(train, "classes", None)
    named = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    return tuple(names) if named and names is not None else ()
