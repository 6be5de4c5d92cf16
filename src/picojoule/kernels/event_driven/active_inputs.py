"""The active inputs of a layer: a bit for each input, and the values of those that are active.

A bit says that the input is not zero. Where all active inputs have one value, as spikes have, also behind dropout, that
value is kept once; elsewhere (residual sums, pooled spikes) there is a list of values in the order of the bits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.event_driven.rows import active_bits, other_bits, read, write
from picojoule.kernels.jit import source_digest, types
from picojoule.kernels.lanes import lowest_bit, ones
from picojoule.kernels.threads import Kernel, run_on_threads

SOURCES = ("picojoule.kernels.lanes", "picojoule.kernels.event_driven.rows")
"""The modules whose functions are compiled into these kernels."""


def numbers_of(*numbers: int) -> NDArray[np.int64]:
    """Make the table of addresses and sizes that a kernel is given.

    Args:
        *numbers: They, in the order in which the kernel reads them.

    Returns:
        An array of int64.
    """
    return np.array(numbers, dtype=np.int64)


def take(kernel: Kernel, table: NDArray[np.int64], items: int, *constants: float) -> None:
    """Run a kernel over its items on PyTorch's threads, one item at a time.

    Args:
        kernel: What Numba can compile.
        table: Its addresses and sizes.
        items: How many items there are.
        *constants: The numbers that it takes beside them.
    """
    run_on_threads(kernel, types.int64, [table.ctypes.data], constants, items, block=1)


@dataclass(frozen=True)
class ActiveInputs:
    """The active inputs of a batch.

    Attributes:
        bits: A bit for each input, [images, pixels, groups, words].
        counts: Active inputs of every image and group, int64.
        scale: The value of all active inputs, if `values` is None.
        values: The value of each, by image, group and pixel, float32; None where all have the same.
        total: How many are active.
    """

    bits: Tensor
    counts: Tensor
    scale: float
    values: Tensor | None
    total: int

    @property
    def starts(self) -> Tensor:
        """Which of all active inputs the first one of every image and group is."""
        counts = self.counts.flatten()
        return torch.cumsum(counts, 0) - counts


def active_inputs(x: Tensor, shape: Geometry) -> ActiveInputs:
    """Find the active inputs of a batch.

    Args:
        x: [images, height, width, channels], contiguous, float32 or bfloat16.
        shape: The shape of the layer.

    Returns:
        The active inputs; NaN and infinities are active.

    >>> x = torch.tensor([0.0, 2.0, 0.0, 2.0]).view(1, 1, 1, 4)
    >>> found = active_inputs(x, Geometry(1, 1, 4, 1, (1, 1), (1, 1)))
    >>> int(found.bits[0, 0, 0, 0]), found.scale, found.values, found.total
    (10, 2.0, None, 2)
    """
    bits = torch.empty((shape.images, shape.pixels, shape.groups, shape.words), dtype=torch.uint64)
    counts = torch.zeros((shape.images, shape.groups), dtype=torch.int64)
    found = torch.zeros((shape.images, 2), dtype=torch.int64)  # an active number's bits, whether there are others
    size = x.element_size()
    table = numbers_of(
        x.data_ptr(), bits.data_ptr(), counts.data_ptr(), found.data_ptr(), shape.pixels, shape.groups, shape.inputs
    )
    take(_SCAN[size], table, shape.images)
    total = int(counts.sum())
    active = found[found[:, 0] != 0]
    uniform = len(active) == 0 or bool((active[:, 1] == 0).all() and (active[:, 0] == active[0, 0]).all())
    if uniform:
        scale = _number(int(active[0, 0]), size) if len(active) else 1.0
        return ActiveInputs(bits, counts, scale, None, total)
    values = torch.empty(total, dtype=torch.float32)
    result = ActiveInputs(bits, counts, 1.0, values, total)
    starts = result.starts
    table = numbers_of(
        x.data_ptr(), bits.data_ptr(), starts.data_ptr(), values.data_ptr(), shape.pixels, shape.groups, shape.inputs
    )
    take(_GATHER[size], table, shape.images)
    return result


def dense_inputs(inputs: ActiveInputs, shape: Geometry, kind: torch.dtype) -> Tensor:
    """Make the dense batch of which these are the active inputs.

    Args:
        inputs: Its active inputs.
        shape: The shape of the layer.
        kind: The dtype of the batch.

    Returns:
        [images, channels, height, width] in channels-last memory.

    >>> shape = Geometry(1, 1, 3, 1, (1, 1), (1, 1))
    >>> found = active_inputs(torch.tensor([0.0, 2.0, 3.0]).view(1, 1, 1, 3), shape)
    >>> dense_inputs(found, shape, torch.float32).flatten()
    tensor([0., 2., 3.])
    """
    size = (shape.images, shape.groups, shape.pixels, shape.words)  # in the order of the values
    words = inputs.bits.view(torch.int64).view(shape.images, shape.pixels, shape.groups, shape.words).transpose(1, 2)
    places = (words.reshape(*size, 1) >> torch.arange(64)) & 1
    active = places.view(*size[:3], 64 * shape.words)[..., : shape.inputs].bool()
    x = torch.zeros(active.shape, dtype=torch.float32)
    x[active] = inputs.scale if inputs.values is None else inputs.values
    x = x.to(kind).transpose(1, 2).reshape(shape.images, *shape.map, shape.groups * shape.inputs)
    return x.permute(0, 3, 1, 2)


def _number(bits: int, size: int) -> float:
    """Return the number that has these bits."""
    return float(np.array([bits << (32 - 8 * size)], dtype=np.uint32).view(np.float32)[0])


def _scanning(size: int, sources: int) -> Kernel:
    """Make the kernel that sets the bits; an item is an image."""
    kind = "u16" if size == 2 else "u32"

    def scan(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        x, bits, counts, found = p[0], p[1], p[2], p[3]
        pixels, groups, inputs = p[4], p[5], p[6]
        if not sources:
            return
        words = (inputs + 63) // 64
        for n in range(first, stop):
            reference = np.uint32(0)
            others = np.uint64(0)
            for pixel in range(n * pixels, (n + 1) * pixels):
                for g in range(groups):
                    at = pixel * groups + g
                    count = 0
                    for w in range(words):
                        begin = at * inputs + 64 * w
                        if 64 * (w + 1) <= inputs:
                            word = active_bits(size, x + begin * size)
                        else:
                            word = np.uint64(0)
                            for c in range(inputs - 64 * w):
                                number = np.uint32(read(kind, x, begin + c))
                                if np.uint32(number << np.uint32(33 - 8 * size)) != 0:  # without its sign
                                    word |= np.uint64(1) << np.uint64(c)
                        write("u64", bits, at * words + w, word)
                        if word != 0:
                            count += ones(word)
                            if reference == 0:
                                reference = np.uint32(read(kind, x, begin + lowest_bit(word)))
                            if 64 * (w + 1) <= inputs:
                                others |= other_bits(size, x + begin * size, reference)
                            else:
                                rest = word
                                while rest != 0:
                                    if np.uint32(read(kind, x, begin + lowest_bit(rest))) != reference:
                                        others |= np.uint64(1)
                                    rest &= rest - np.uint64(1)
                    total = n * groups + g
                    write("i64", counts, total, read("i64", counts, total) + count)
            write("i64", found, 2 * n, np.int64(reference))
            write("i64", found, 2 * n + 1, np.int64(others != 0))

    return scan


def _gathering(size: int, sources: int) -> Kernel:
    """Make the kernel that lists the values, group by group and pixel by pixel; an item is an image."""
    kind = "u16" if size == 2 else "u32"

    def gather(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        x, bits, starts, values = p[0], p[1], p[2], p[3]
        pixels, groups, inputs = p[4], p[5], p[6]
        if not sources:
            return
        words = (inputs + 63) // 64
        for n in range(first, stop):
            for g in range(groups):
                i = read("i64", starts, n * groups + g)
                for pixel in range(n * pixels, (n + 1) * pixels):
                    at = pixel * groups + g
                    for w in range(words):
                        word = read("u64", bits, at * words + w)
                        while word != 0:
                            number = np.uint32(read(kind, x, at * inputs + 64 * w + lowest_bit(word)))
                            write("u32", values, i, np.uint32(number << np.uint32(32 - 8 * size)))
                            i += 1
                            word &= word - np.uint64(1)

    return gather


_DIGEST = source_digest(*SOURCES)
_SCAN: dict[int, Kernel] = {size: _scanning(size, _DIGEST) for size in (2, 4)}
_GATHER: dict[int, Kernel] = {size: _gathering(size, _DIGEST) for size in (2, 4)}
