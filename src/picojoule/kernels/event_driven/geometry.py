"""The shape of a convolution and how its work is cut up; a linear layer is a convolution of one pixel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor, nn

CACHE = 224 << 10
"""Bytes that one stage of the work reads again and again: they should stay in a core's second-level cache."""

ROWS = 2 << 20
"""Bytes of packed weights that exist at a time, beside the weights themselves."""

LANES = (32, 64)
"""Numbers of output channels whose sums can be in registers at the same time."""


@dataclass(frozen=True)
class Geometry:
    """Images, maps, kernel and groups of one call; pairs are (vertical, horizontal)."""

    images: int
    groups: int
    inputs: int
    """Input channels of a group."""
    outputs: int
    """Output channels of a group."""
    map: tuple[int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)

    @cached_property
    def out_map(self) -> tuple[int, int]:
        """Height and width of the output."""
        sizes = zip(self.map, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        height, width = (
            (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
            for size, kernel, stride, padding, dilation in sizes
        )
        return height, width

    @property
    def pixels(self) -> int:
        """Pixels of the input."""
        return self.map[0] * self.map[1]

    @property
    def out_pixels(self) -> int:
        """Pixels of the output."""
        return self.out_map[0] * self.out_map[1]

    @property
    def is_linear(self) -> bool:
        """Whether the shape is that of a linear layer: one pixel, one group, a kernel of 1×1."""
        return self.pixels == self.out_pixels == self.groups == 1 and self.kernel == (1, 1)

    @property
    def words(self) -> int:
        """Words of 64 bits that hold a pixel's spikes in one group."""
        return -(-self.inputs // 64)

    @property
    def rows(self) -> int:
        """Rows of weights of a group: one for each tap of the kernel and input channel."""
        return self.kernel[0] * self.kernel[1] * self.inputs

    @property
    def lanes(self) -> int:
        """Output channels whose sums are in registers at the same time."""
        return next((lanes for lanes in LANES if self.outputs <= lanes), LANES[-1])

    @property
    def blocks(self) -> int:
        """Blocks of so many output channels in a group."""
        return -(-self.outputs // self.lanes)

    def products(self) -> int:
        """Return the multiplications of the dense layer, borders included."""
        return self.images * self.out_pixels * self.groups * self.outputs * self.rows

    def kernel_rows_at_once(self, number_bytes: int) -> int:
        """Return how many rows of the kernel have weights, for one block, that fit the cache; at least one."""
        line = self.kernel[1] * self.inputs * self.lanes * number_bytes
        return min(max(CACHE // max(line, 1), 1), self.kernel[0])

    def images_at_once(self, number_bytes: int) -> int:
        """Return how many images have output gradients, of one block, that fit the cache; at least one."""
        image = self.out_pixels * self.lanes * number_bytes
        return min(max(CACHE // max(image, 1), 1), max(self.images, 1))

    def parts(self, number_bytes: int) -> list[range]:
        """Cut the blocks of all groups into parts whose packed weights take little memory; at least one block each."""
        blocks, block = self.groups * self.blocks, self.rows * self.lanes * number_bytes
        at_once = max(ROWS // max(block, 1), 1)
        return [range(first, min(first + at_once, blocks)) for first in range(0, blocks, at_once)]

    def reached_rows(self) -> list[list[int]]:
        """Return the row of the output that each row of the map reaches through each row of the kernel, or -1."""
        stride, padding, dilation = self.stride[0], self.padding[0], self.dilation[0]
        rows = []
        for y in range(self.map[0]):
            places = [divmod(y + padding - ky * dilation, stride) for ky in range(self.kernel[0])]
            rows.append([oy if rest == 0 and 0 <= oy < self.out_map[0] else -1 for oy, rest in places])
        return rows

    def columns(self) -> list[int]:
        """Return the map's columns in an order in which every tap of the kernel meets a run of them.

        Those of the same remainder by the stride stand together.
        """
        stride, padding = self.stride[1], self.padding[1]
        return sorted(range(self.map[1]), key=lambda x: ((x + padding) % stride, x))

    def tap_columns(self) -> list[tuple[int, int, int]]:
        """Return the run in `columns` that each column of the kernel meets.

        Returns:
            For each column of the kernel where its run begins and ends, and how many output columns the run's first is
            ahead of the quotient by the stride.
        """
        columns, stride, padding = self.columns(), self.stride[1], self.padding[1]
        runs = []
        for kx in range(self.kernel[1]):
            ahead, remainder = divmod(kx * self.dilation[1], stride)
            met = [
                i
                for i, x in enumerate(columns)
                if (x + padding) % stride == remainder and 0 <= (x + padding) // stride - ahead < self.out_map[1]
            ]
            runs.append((met[0], met[-1] + 1, ahead) if met else (0, 0, ahead))
        return runs


_MOST_NUMBERS = 1 << 30
"""Lists count in 32 bits."""


def geometry_of(layer: nn.Module, x: Tensor) -> Geometry | None:
    """Find the shape of a layer's call.

    Args:
        layer: An `nn.Conv2d`, `nn.Conv1d` or `nn.Linear`.
        x: Its inputs as [images, channels, height, width]; the height is 1 for an `nn.Conv1d`, and both are 1 for an
            `nn.Linear`.

    Returns:
        The shape; None for one that the kernels do not know, or that the layer refuses.

    >>> import torch
    >>> geometry_of(nn.Conv1d(3, 8, 5, padding="same"), torch.zeros(2, 3, 1, 9)).padding
    (0, 2)
    """
    if isinstance(layer, nn.Linear):
        shape = Geometry(len(x), 1, layer.in_features, layer.out_features, (1, 1), (1, 1))
        fits = x.shape[1] == layer.in_features
    else:
        assert isinstance(layer, nn.Conv1d | nn.Conv2d)
        padding = _padding(layer)
        if padding is None:
            return None
        shape = Geometry(
            images=len(x),
            groups=layer.groups,
            inputs=layer.in_channels // layer.groups,
            outputs=layer.out_channels // layer.groups,
            map=(x.shape[2], x.shape[3]),
            kernel=_pair(layer.kernel_size),
            stride=_pair(layer.stride),
            padding=padding,
            dilation=_pair(layer.dilation),
        )
        fits = x.shape[1] == layer.in_channels and min(shape.out_map) > 0
    largest = max(x.numel() * shape.kernel[0], max(shape.rows, shape.out_pixels) * shape.lanes * 4)
    return shape if fits and largest < _MOST_NUMBERS else None


def _pair(numbers: tuple[int, ...], first: int = 1) -> tuple[int, int]:
    return (first, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


def _padding(layer: nn.Conv1d | nn.Conv2d) -> tuple[int, int] | None:
    """Return the zeros on either side; None if the sides differ."""
    if not isinstance(layer.padding, str):
        return _pair(layer.padding, 0)
    if layer.padding == "valid":
        return 0, 0
    extra = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
    return None if any(e % 2 for e in extra) else _pair(tuple(e // 2 for e in extra), 0)
