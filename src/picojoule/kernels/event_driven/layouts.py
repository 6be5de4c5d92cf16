"""Layouts in memory: weights and output gradients as rows of a block of output channels, and such rows as weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from picojoule.kernels.event_driven.active_inputs import SOURCES, numbers_of, take
from picojoule.kernels.event_driven.geometry import LANES, Geometry
from picojoule.kernels.event_driven.rows import SQUARE, paired_halves, read, turn_pairs, turn_square, write
from picojoule.kernels.jit import inlined, source_digest
from picojoule.kernels.threads import Kernel

_CHANNELS = 64
"""Input channels that are turned around at once: their rows lie in the first-level cache."""


@inlined
def _rounded(value: Any) -> Any:
    """Return the bits of the nearest bfloat16, to even from halfway."""
    bits = np.float32(value).view(np.uint32)
    even = np.uint32(bits + np.uint32(np.uint32(0x7FFF) + np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))))
    quiet = np.uint32(bits | np.uint32(1 << 22))
    return np.uint16(np.uint32((even if value == value else quiet) >> np.uint32(16)))


def pack_weights(weight: Tensor, rows: Tensor, shape: Geometry, blocks: range) -> None:
    """Lay weights out as rows of output channels.

    Args:
        weight: [outputs, inputs of a group, kernel height, kernel width], float32, in any memory layout.
        rows: What is written: [blocks, kernel row · kernel column · input channel, lanes], float32, or uint16 for rows
            of bfloat16 in pairs (see `rows`); zeros where a block has too many lanes.
        shape: The shape of the layer.
        blocks: The blocks of output channels, of those of all groups.
    """
    kernel = _TURN[int(rows.dtype == torch.uint16)]
    take(kernel, _turning_table(weight, rows, shape, blocks), len(blocks) * shape.kernel[0])


def unpack_gradient(rows: Tensor, gradient: Tensor, shape: Geometry, blocks: range) -> None:
    """Lay the rows of a weight gradient out as the weight is.

    Args:
        rows: The gradient, float32, as `pack_weights` writes the weights.
        gradient: What is written, float32, of the shape of the weight.
        shape: The shape of the layer.
        blocks: The blocks of output channels.
    """
    take(_turn_back, _turning_table(gradient, rows, shape, blocks), len(blocks) * shape.kernel[0])


def _turning_table(weight: Tensor, rows: Tensor, shape: Geometry, blocks: range) -> Any:
    return numbers_of(
        weight.data_ptr(),
        rows.data_ptr() - blocks.start * shape.rows * shape.lanes * rows.element_size(),
        shape.blocks,
        shape.lanes,
        shape.inputs,
        shape.outputs,
        *shape.kernel,
        *weight.stride(),
        blocks.start,
    )


def _turning(short: int, back: int, sources: int) -> Kernel:
    """Make the kernel that turns weights into rows, or rows back; an item is a row of the kernel for one block."""
    chunk, square = _CHANNELS, SQUARE

    def turn(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        weight, rows, blocks, lanes, inputs, outputs = p[0], p[1], p[2], p[3], p[4], p[5]
        kernel_h, kernel_w, by_output, by_input, by_row, by_column = p[6], p[7], p[8], p[9], p[10], p[11]
        from_block = p[12]
        if not sources:
            return
        half = lanes // 2
        for item in range(first, stop):
            block, ky = from_block + item // kernel_h, item % kernel_h
            channel = (block // blocks) * outputs + (block % blocks) * lanes
            here = min(lanes, outputs - (block % blocks) * lanes)
            for kx in range(kernel_w):
                row = ((block * kernel_h + ky) * kernel_w + kx) * inputs
                origin = channel * by_output + ky * by_row + kx * by_column
                squares = inputs // square * square if by_input == 1 and here == lanes else 0
                for c in range(0, squares, square):
                    if short:
                        for lane in range(0, half, square):
                            low = weight + (origin + lane * by_output + c) * 4
                            high = low + half * by_output * 4
                            turn_pairs(rows + ((row + c) * half + lane) * 4, half * 4, low, high, by_output * 4)
                    else:
                        for lane in range(0, lanes, square):
                            source = weight + (origin + lane * by_output + c) * 4
                            target = rows + ((row + c) * lanes + lane) * 4
                            if back:
                                turn_square(source, by_output * 4, target, lanes * 4)
                            else:
                                turn_square(target, lanes * 4, source, by_output * 4)
                for from_c in range(squares, inputs, chunk):
                    to_c = min(from_c + chunk, inputs)
                    for lane in range(here):
                        source = origin + lane * by_output
                        if back:
                            for c in range(from_c, to_c):
                                write("f32", weight, source + c * by_input, read("f32", rows, (row + c) * lanes + lane))
                        elif short:
                            place = 2 * lane if lane < half else 2 * (lane - half) + 1
                            for c in range(from_c, to_c):
                                value = _rounded(read("f32", weight, source + c * by_input))
                                write("u16", rows, (row + c) * lanes + place, value)
                        else:
                            for c in range(from_c, to_c):
                                write("f32", rows, (row + c) * lanes + lane, read("f32", weight, source + c * by_input))
                    if back == 0:
                        for lane in range(here, lanes):
                            for c in range(from_c, to_c):
                                if short:
                                    place = 2 * lane if lane < half else 2 * (lane - half) + 1
                                    write("u16", rows, (row + c) * lanes + place, np.uint16(0))
                                else:
                                    write("f32", rows, (row + c) * lanes + lane, np.float32(0))

    return turn


def packed_gradients(grad: Tensor, shape: Geometry) -> Tensor:
    """Lay output gradients out as rows of output channels.

    Args:
        grad: [images, height, width, channels], contiguous, float32 or bfloat16.
        shape: The shape of the layer.

    Returns:
        [groups · blocks, images, pixels, lanes]; bfloat16 as pairs (see `rows`).
    """
    blocks, short = shape.groups * shape.blocks, int(grad.dtype == torch.bfloat16)
    size = (blocks, shape.images, shape.out_pixels, shape.lanes)
    if blocks == 1 and shape.outputs == shape.lanes and not short:
        return grad
    rows = torch.empty(size, dtype=torch.uint16 if short else torch.float32)
    table = numbers_of(
        grad.data_ptr(), rows.data_ptr(), shape.images, shape.out_pixels, shape.blocks, shape.groups, shape.outputs
    )
    take(_SORT[shape.lanes, short], table, shape.images)
    return rows


def _sorting(lanes: int, short: int, sources: int) -> Kernel:
    """Make the kernel that sorts gradients by blocks; an item is an image."""

    def sort(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        grad, rows, images, pixels, blocks, groups, outputs = p[0], p[1], p[2], p[3], p[4], p[5], p[6]
        if not sources:
            return
        for n in range(first, stop):
            for pixel in range(n * pixels, (n + 1) * pixels):
                for block in range(groups * blocks):
                    source = pixel * groups * outputs + (block // blocks) * outputs + (block % blocks) * lanes
                    target = (block * images * pixels + pixel) * lanes
                    here = min(lanes, outputs - (block % blocks) * lanes)
                    if short:
                        if here == lanes:
                            paired_halves(lanes, rows + target * 2, grad + source * 2)
                        else:
                            for lane in range(lanes):
                                place = 2 * lane if lane < lanes // 2 else 2 * lane - lanes + 1
                                value = read("u16", grad, source + lane) if lane < here else np.uint16(0)
                                write("u16", rows, target + place, value)
                    else:
                        for lane in range(lanes):
                            value = read("f32", grad, source + lane) if lane < here else np.float32(0)
                            write("f32", rows, target + lane, value)

    return sort


_DIGEST = source_digest(*SOURCES)
_TURN = {short: _turning(short, 0, _DIGEST) for short in (0, 1)}
_turn_back = _turning(0, 1, _DIGEST)
_SORT = {(lanes, short): _sorting(lanes, short, _DIGEST) for lanes in LANES for short in (0, 1)}
