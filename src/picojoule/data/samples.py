"""Samples of one part of a data set: arrays in memory, or anything that gives them when they are asked for.

A sample is a vector [D], an image [C, H, W] or frames over time [T, C, H, W]; uint8 is a pixel of 255, every other type
is float32 and taken as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.data.splits import Indices
from picojoule.errors import PicojouleError

CHUNK = 256
"""Samples that are read at once on the way through a whole part."""
_MOST_COLOURS = 4
"""Channels of a picture: grey, grey with transparency, RGB and RGBA."""
_WITHOUT_SYSCONF = 4 << 30


def room() -> int:
    """Return how many bytes of samples are held in memory: half of the machine's; what is larger is streamed."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (AttributeError, ValueError, OSError):  # not on Windows
        return _WITHOUT_SYSCONF


class Samples(Protocol):
    """The samples of a part, as a reader of the user's own data gives them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers: uint8 or float32."""

    def __len__(self) -> int: ...

    def take(self, positions: Indices) -> NDArray[Any]:
        """Read the samples at these positions, [N, …]."""


@dataclass(frozen=True, eq=False)
class ArraySamples:
    """Samples in an array, which may be a file that is mapped into memory.

    Args:
        array: [N, D], [N, H, W], [N, C, H, W] or [N, T, C, H, W] of numbers.
        where: Its name in errors.

    Raises:
        PicojouleError: It is not such an array.

    >>> ArraySamples(np.zeros((5, 8, 8), np.uint8), "x_train").shape
    (1, 8, 8)
    """

    array: NDArray[Any]
    where: str

    def __post_init__(self) -> None:
        array = self.array
        if array.dtype.kind not in "biuf":
            raise PicojouleError(f"{self.where} holds {array.dtype}, not numbers: give pixels, counts or values")
        if array.shape[:1] == (0,):
            raise PicojouleError(f"{self.where} has no samples: give some, or leave the part out")
        if array.ndim not in (2, 3, 4, 5) or 0 in array.shape:
            raise PicojouleError(
                f"{self.where} has the shape {array.shape}: give [N, D], [N, H, W], [N, C, H, W] or [N, T, C, H, W]"
            )
        if array.ndim > 3 and array.shape[-1] <= _MOST_COLOURS < min(array.shape[-3:-1]):
            first, rows, columns = array.shape[-3:]
            raise PicojouleError(
                f"{self.where} has the shape {array.shape}, which may be {first}×{rows} pictures with channels last: "
                f"if so, give numpy.moveaxis(x, -1, -3); if they are {first} channels of {rows}×{columns}, lay them on "
                "their side with numpy.swapaxes(x, -1, -2)"
            )

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample; a grey image has one channel."""
        own = self.array.shape[1:]
        return (1, *own) if len(own) == 2 else own

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the numbers: uint8 or float32."""
        return np.dtype(np.uint8 if self.array.dtype == np.uint8 else np.float32)

    def __len__(self) -> int:
        return len(self.array)

    def take(self, positions: Indices) -> NDArray[Any]:
        """Copy the samples at these positions, [N, …]."""
        return stored(self.array[positions], self.dtype).reshape(len(positions), *self.shape)


@dataclass(frozen=True, eq=False)
class Streamed:
    """Samples that are read when a batch of them is asked for; stands where a tensor [N, …] of them would stand.

    Attributes:
        samples: All samples of the source.
        positions: Which of them these are, in order.
        pad: Rows and columns of zeros on each side.

    >>> few = Streamed(ArraySamples(np.arange(12, dtype=np.uint8).reshape(3, 2, 2), "x"), np.array([2, 0]))
    >>> few.shape, few[torch.tensor([1])].flatten().tolist(), few[:1].shape, few[0].shape
    ((2, 1, 2, 2), [0, 1, 2, 3], torch.Size([1, 1, 2, 2]), torch.Size([1, 2, 2]))
    """

    samples: Samples
    positions: Indices
    pad: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of samples, and the shape of one, padding included."""
        return (len(self.positions), *padded_shape(self.samples.shape, self.pad))

    @property
    def dtype(self) -> torch.dtype:
        """That of the batches: uint8 or float32."""
        return torch.uint8 if self.samples.dtype == np.uint8 else torch.float32

    @property
    def device(self) -> torch.device:
        """The processor's memory, into which batches are read."""
        return torch.device("cpu")

    def to(self, device: torch.device | str) -> Streamed:
        """Return itself: batches go to the device one by one."""
        return self

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, index: int | slice | Tensor) -> Tensor:
        if isinstance(index, int):
            return self[torch.tensor([index])][0]
        chosen = self.positions[index if isinstance(index, slice) else index.cpu().numpy()]
        return torch.from_numpy(padded(self.samples.take(chosen), self.pad))

    def subset(self, positions: Indices) -> Streamed:
        """Take only some of these samples."""
        return replace(self, positions=self.positions[positions])


def stored(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert to the type in which samples are stored; what is too large for it is infinite, and refused later."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype=dtype)


def padded_shape(shape: tuple[int, ...], border: int) -> tuple[int, ...]:
    """Return the shape of a sample with a border around its last two axes."""
    return (*shape[:-2], *(side + 2 * border for side in shape[-2:])) if border else shape


def padded(samples: NDArray[Any], border: int) -> NDArray[Any]:
    """Put a border of zeros around the last two axes of samples [N, …]."""
    around = [(0, 0)] * (samples.ndim - 2) + [(border, border)] * 2
    return np.pad(samples, around) if border else samples


def chunks(samples: Samples, positions: Indices) -> Iterator[NDArray[Any]]:
    """Read samples in order, a few hundred at a time.

    Args:
        samples: All samples.
        positions: Which of them.

    Yields:
        Arrays [n, …].
    """
    for first in range(0, len(positions), CHUNK):
        yield samples.take(positions[first : first + CHUNK])
