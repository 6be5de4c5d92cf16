"""Pools: which inputs each output looks at, and what an average divides by.

The rules that all destinations share. What a destination can make of a pool differs: the event engine takes windows
of any sizes, while the conversion and NIR need one divisor for all of them (`Pool.is_even`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

Sizes = tuple[int, ...]
"""A size along each axis of the map: length; height and width; or depth, height and width."""


@dataclass(frozen=True)
class Windows:
    """Along one axis of a map, the inputs [first, last) under each output of a pool, and what an average divides by."""

    first: Sizes
    last: Sizes
    divisor: Sizes

    @classmethod
    def sliding(cls, size: int, outputs: int, kernel: int, stride: int, padding: int, include_pad: bool) -> Windows:
        """Give the windows of a pool of fixed kernel.

        Args:
            size: Inputs along the axis.
            outputs: Outputs along the axis.
            kernel: Inputs under one window.
            stride: Inputs from one window to the next.
            padding: Zeros before the first and behind the last input.
            include_pad: Whether an average counts them.

        Returns:
            One window for each output.

        Example:
            >>> Windows.sliding(size=5, outputs=3, kernel=2, stride=2, padding=0, include_pad=True).table
            [0, 2, 2, 4, 4, 5]
        """
        starts = [i * stride - padding for i in range(outputs)]
        first = tuple(max(start, 0) for start in starts)
        last = tuple(min(start + kernel, size) for start in starts)
        whole = tuple(min(start + kernel, size + padding) - start for start in starts)
        return cls(first, last, whole if include_pad else tuple(b - a for a, b in zip(first, last, strict=True)))

    @classmethod
    def adaptive(cls, size: int, outputs: int) -> Windows:
        """Give the windows of an adaptive pool, which may overlap and differ by one input.

        Args:
            size: Inputs along the axis.
            outputs: Outputs along the axis.

        Returns:
            One window for each output.

        Example:
            >>> Windows.adaptive(size=5, outputs=2).table
            [0, 3, 2, 5]
        """
        first = tuple(i * size // outputs for i in range(outputs))
        last = tuple(-(-(i + 1) * size // outputs) for i in range(outputs))
        return cls(first, last, tuple(b - a for a, b in zip(first, last, strict=True)))

    @property
    def table(self) -> list[int]:
        """The edges of all windows in one list: first, last, first, last, …."""
        return [edge for window in zip(self.first, self.last, strict=True) for edge in window]

    @property
    def widest(self) -> int:
        """The inputs under the widest window."""
        return max(b - a for a, b in zip(self.first, self.last, strict=True))


@dataclass(frozen=True)
class Pool:
    """The settings of an average or max pool, one number for each axis of the map.

    Args:
        kernel: Inputs under one window.
        stride: Inputs from one window to the next.
        padding: Zeros around the map.
        dilation: Inputs from one element of a window to the next.
        ceil_mode: Whether a window may reach beyond the padded map.
        count_include_pad: Whether an average counts the zeros around the map.
        divisor_override: What an average divides by instead of the window's size.
        return_indices: Whether a max pool returns the places of the largest inputs too.
    """

    kernel: Sizes
    stride: Sizes
    padding: Sizes
    dilation: Sizes
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int | None = None
    return_indices: bool = False

    @classmethod
    def of_sizes(
        cls,
        axes: int,
        kernel: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: int | Sequence[int] = 0,
        dilation: int | Sequence[int] = 1,
        **settings: Any,
    ) -> Pool:
        """Read the settings of a call, in which one number may stand for all axes.

        Args:
            axes: Axes of the map: 1, 2 or 3.
            kernel: Inputs under one window.
            stride: Inputs from one window to the next; the kernel's size where it is None or empty.
            padding: Zeros around the map.
            dilation: Inputs from one element of a window to the next.
            **settings: The other fields.

        Returns:
            The pool.

        Example:
            >>> Pool.of_sizes(2, 3, padding=1).stride
            (3, 3)
        """
        kernel = _per_axis(kernel, axes)
        stride, padding, dilation = (_per_axis(size, axes) for size in (stride or kernel, padding, dilation))
        return cls(kernel, stride, padding, dilation, **settings)

    @classmethod
    def of_module(cls, pool: nn.Module) -> Pool:
        """Read the settings of a layer.

        Args:
            pool: An `nn.AvgPool1d`, `nn.MaxPool1d` or one of their siblings for 2 and 3 axes.

        Returns:
            The pool.

        Example:
            >>> Pool.of_module(nn.AvgPool2d((2, 3))).kernel
            (2, 3)
        """
        axes = next(axes for axes, kinds in _AXES.items() if isinstance(pool, kinds))
        layer: Any = pool
        names = ("ceil_mode", "count_include_pad", "divisor_override", "return_indices")
        settings = {name: getattr(layer, name) for name in names if hasattr(layer, name)}
        return cls.of_sizes(
            axes, layer.kernel_size, layer.stride, layer.padding, getattr(layer, "dilation", 1), **settings
        )

    @classmethod
    def dividing(cls, sizes: Sequence[int], outputs: Sequence[int]) -> Pool | None:
        """Find the pool of equal windows that an adaptive pool is, if its outputs divide the map.

        Args:
            sizes: Inputs along each axis.
            outputs: Outputs along each axis.

        Returns:
            The pool, or None if the windows of the adaptive pool differ.

        Example:
            >>> Pool.dividing((8, 6), (4, 2)).kernel
            (2, 3)
        """
        if any(size % output for size, output in zip(sizes, outputs, strict=True)):
            return None
        return cls.of_sizes(len(sizes), [size // output for size, output in zip(sizes, outputs, strict=True)])

    @property
    def is_even(self) -> bool:
        """Whether all windows have one size, so that an average divides by one number everywhere."""
        return not self.ceil_mode and (self.count_include_pad or not any(self.padding))

    @property
    def divisor(self) -> int:
        """What an average of even windows divides by."""
        return self.divisor_override or math.prod(self.kernel)

    @property
    def is_dilated(self) -> bool:
        """Whether there are gaps in the windows."""
        return any(gap != 1 for gap in self.dilation)

    def windows(self, sizes: Sequence[int], outputs: Sequence[int]) -> list[Windows]:
        """Give the windows along each axis.

        Args:
            sizes: Inputs along each axis.
            outputs: Outputs along each axis.

        Returns:
            One `Windows` for each axis.
        """
        axes = zip(sizes, outputs, self.kernel, self.stride, self.padding, strict=True)
        return [Windows.sliding(*axis, self.count_include_pad) for axis in axes]


_AXES: dict[int, tuple[type[nn.Module], ...]] = {
    1: (nn.AvgPool1d, nn.MaxPool1d),
    2: (nn.AvgPool2d, nn.MaxPool2d),
    3: (nn.AvgPool3d, nn.MaxPool3d),
}


def is_over_map(axes: Iterable[int], rank: int) -> bool:
    """Say whether a mean or sum goes over the whole map of each channel and over nothing else.

    Args:
        axes: The axes of the mean or sum; negative ones count from the last.
        rank: Axes of its input, batch and channels included.

    Returns:
        True if the axes are all those behind batch and channels.

    Example:
        >>> is_over_map((-1, -2), 4), is_over_map((1,), 4)
        (True, False)
    """
    return sorted(axis % rank for axis in axes) == list(range(2, rank))


def _per_axis(size: int | Sequence[int], axes: int) -> Sizes:
    if isinstance(size, int):
        return (size,) * axes
    return tuple(size) * axes if len(size) == 1 else tuple(size)
