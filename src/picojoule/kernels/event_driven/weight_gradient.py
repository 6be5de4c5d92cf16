"""The weight gradient of a layer of synapses, by its active inputs.

For every tap of the kernel and input channel, the rows of the output gradient at the places that the channel's active
inputs reach through that tap are added.

For as many images as the second-level cache holds gradients of one block of output channels, every channel gets a list
for each row of the kernel: the active inputs that this row sees, ordered by column, so that each tap is one run of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from picojoule.kernels.event_driven.active_inputs import SOURCES, ActiveInputs, numbers_of, take
from picojoule.kernels.event_driven.geometry import LANES, Geometry
from picojoule.kernels.event_driven.layouts import packed_gradients, unpack_gradient
from picojoule.kernels.event_driven.rows import keep_all, plus_multiple, plus_row, read, times_number, write
from picojoule.kernels.jit import source_digest
from picojoule.kernels.lanes import lowest_bit, nothing, ones
from picojoule.kernels.threads import Kernel


def weight_gradient(inputs: ActiveInputs, grad: Tensor, weight: Tensor, shape: Geometry) -> Tensor:
    """Compute the gradient of a layer's weight from its active inputs.

    Args:
        inputs: The active inputs.
        grad: The gradient of the output, [images, height, width, channels], contiguous, float32 or bfloat16.
        weight: The weight, of which only shape and memory layout are read.
        shape: The shape of the layer.

    Returns:
        A tensor of float32 like the weight.
    """
    if not inputs.total:
        return torch.zeros_like(weight, dtype=torch.float32)
    paired = int(grad.dtype == torch.bfloat16)
    number_bytes = 2 if paired else 4
    at_once = shape.images_at_once(number_bytes)
    lists = _lists(inputs, shape, at_once, shape.lanes * number_bytes)
    packed = packed_gradients(grad, shape)
    parts = shape.parts(4)
    rows = torch.empty((len(parts[0]), shape.rows, shape.lanes))
    gradient = torch.empty_like(weight, dtype=torch.float32)
    pieces = shape.kernel[0] * shape.words  # (row of the kernel, word of channels), of which an item takes some
    for blocks in parts:
        per_item = _pieces_per_item(len(blocks), pieces)
        table = numbers_of(
            packed.data_ptr(),
            lists.entries.data_ptr(),
            0 if lists.values is None else lists.values.data_ptr(),
            lists.starts.data_ptr(),
            lists.taps.data_ptr(),
            rows.data_ptr() - blocks.start * shape.rows * shape.lanes * 4,
            shape.images,
            at_once,
            shape.groups,
            shape.blocks,
            shape.inputs,
            shape.map[1],
            shape.out_pixels,
            *shape.kernel,
            per_item,
            blocks.start,
        )
        items = len(blocks) * -(-pieces // per_item)
        take(_ADD[shape.lanes, paired, int(inputs.values is not None)], table, items, inputs.scale)
        unpack_gradient(rows, gradient, shape, blocks)
    return gradient


def _pieces_per_item(blocks: int, pieces: int) -> int:
    """Return how many pieces are one item: every thread gets about four items; a thread alone takes whole blocks."""
    threads = torch.get_num_threads()
    return pieces if threads == 1 else max(blocks * pieces // (4 * threads), 1)


@dataclass(frozen=True)
class _Lists:
    """For every input channel and row of the kernel, the active inputs that this row sees, ordered by column.

    Attributes:
        entries: Rows of the packed gradients: (pixel of the output, at kernel column 0) · bytes of a row, from the
            first image of those at once.
        values: The inputs' values, where these are not all the same.
        starts: [tile, group, kernel row, channel, column + 1]: where the list of each column begins.
        taps: For each column of the kernel: the first and last column of its run, and the bytes that it lies ahead.
    """

    entries: Tensor
    values: Tensor | None
    starts: Tensor
    taps: Tensor


def _lists(inputs: ActiveInputs, shape: Geometry, at_once: int, row_bytes: int) -> _Lists:
    tiles, (kernel_h, _) = -(-shape.images // at_once), shape.kernel
    items = tiles * shape.groups * shape.words
    columns = torch.tensor(shape.columns(), dtype=torch.int64)
    taps = torch.tensor([(a, b, ahead * row_bytes) for a, b, ahead in shape.tap_columns()], dtype=torch.int64)
    reached = torch.tensor(shape.reached_rows(), dtype=torch.int64)
    active = torch.zeros((tiles, shape.groups, shape.words, shape.map[0], 64), dtype=torch.int32)
    sizes = (shape.images, at_once, shape.groups, shape.words, *shape.map)
    take(_count, numbers_of(inputs.bits.data_ptr(), active.data_ptr(), *sizes), items)
    # [tile, group, kernel row, word, 64]: the inputs of a channel on the rows of the map that a row of the kernel sees
    seen = [active[:, :, :, reached[:, ky] >= 0].sum(3) for ky in range(kernel_h)]
    lengths = torch.stack(seen, dim=2)
    ends = torch.cumsum(lengths.flatten(), 0).view_as(lengths)
    cursors = ends - lengths
    length = int(ends.flatten()[-1])
    entries = torch.empty(length, dtype=torch.int32)
    starts = torch.empty((*lengths.shape, shape.map[1] + 1), dtype=torch.int32)
    values = None if inputs.values is None else torch.empty(length)
    ranks = _ranks(inputs, shape)
    table = numbers_of(
        inputs.bits.data_ptr(),
        cursors.data_ptr(),
        *sizes,
        *shape.out_map,
        kernel_h,
        shape.stride[1],
        shape.padding[1],
        row_bytes,
        entries.data_ptr(),
        starts.data_ptr(),
        columns.data_ptr(),
        reached.data_ptr(),
        0 if values is None else values.data_ptr(),
        0 if inputs.values is None else inputs.values.data_ptr(),
        0 if ranks is None else ranks.data_ptr(),
    )
    take(_FILL[int(values is not None)], table, items)
    return _Lists(entries, values, starts, taps)


def _ranks(inputs: ActiveInputs, shape: Geometry) -> Tensor | None:
    """Return, for inputs that have values, which of them the first of every word of bits is."""
    if inputs.values is None:
        return None
    ranks = torch.empty((shape.images, shape.pixels, shape.groups, shape.words), dtype=torch.int64)
    starts = inputs.starts
    table = numbers_of(
        inputs.bits.data_ptr(), starts.data_ptr(), ranks.data_ptr(), shape.pixels, shape.groups, shape.words
    )
    take(_rank, table, shape.images)
    return ranks


def _ranking(sources: int) -> Kernel:
    """Make the kernel that counts values before each word of bits; an item is an image."""

    def rank(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        bits, starts, ranks, pixels, groups, words = p[0], p[1], p[2], p[3], p[4], p[5]
        if not sources:
            return
        for n in range(first, stop):
            for g in range(groups):
                i = read("i64", starts, n * groups + g)
                for pixel in range(n * pixels, (n + 1) * pixels):
                    for w in range(words):
                        at = (pixel * groups + g) * words + w
                        write("i64", ranks, at, i)
                        i += ones(read("u64", bits, at))

    return rank


def _counting(sources: int) -> Kernel:
    """Make the kernel that counts active inputs on each row of the map.

    An item is a word of channels in the images of one tile.
    """

    def count(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        bits, active, images, at_once = p[0], p[1], p[2], p[3]
        groups, words, height, width = p[4], p[5], p[6], p[7]
        if not sources:
            return
        for item in range(first, stop):
            word, g, tile = item % words, (item // words) % groups, item // words // groups
            for n in range(tile * at_once, min((tile + 1) * at_once, images)):
                for y in range(height):
                    here = active + (item * height + y) * 64 * 4
                    for x in range(width):
                        rest = read("u64", bits, (((n * height + y) * width + x) * groups + g) * words + word)
                        while rest != 0:
                            c = lowest_bit(rest)
                            write("i32", here, c, np.int32(read("i32", here, c) + 1))
                            rest &= rest - np.uint64(1)

    return count


def _filling(valued: int, sources: int) -> Kernel:
    """Make the kernel that lists active inputs; an item is what it is in `_counting`."""

    def fill(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        bits, cursors, images, at_once = p[0], p[1], p[2], p[3]
        groups, words, height, width, out_height, out_width = p[4], p[5], p[6], p[7], p[8], p[9]
        kernel_h, stride_w, pad_w, row_bytes, entries, starts = p[10], p[11], p[12], p[13], p[14], p[15]
        columns, reached, values, all_values, ranks = p[16], p[17], p[18], p[19], p[20]
        if not sources:
            return
        for item in range(first, stop):
            word, g, tile = item % words, (item // words) % groups, item // words // groups
            from_image, to_image = tile * at_once, min((tile + 1) * at_once, images)
            own = (tile * groups + g) * kernel_h * words + word  # with the first row of the kernel
            cursor = cursors + own * 64 * 8
            start = starts + own * 64 * (width + 1) * 4
            for position in range(width + 1):
                if position > 0:
                    x = read("i64", columns, position - 1)
                    quotient = (x + pad_w) // stride_w
                    for n in range(from_image, to_image):
                        for y in range(height):
                            at = (((n * height + y) * width + x) * groups + g) * words + word
                            rest = read("u64", bits, at)
                            rank = 0
                            if valued:
                                rank = read("i64", ranks, at)
                            while rest != 0:
                                c = lowest_bit(rest)
                                for ky in range(kernel_h):
                                    oy = read("i64", reached, y * kernel_h + ky)
                                    if oy < 0:
                                        continue
                                    pixel = ((n - from_image) * out_height + oy) * out_width + quotient
                                    i = read("i64", cursor, ky * words * 64 + c)
                                    write("i32", entries, i, np.int32(pixel * row_bytes))
                                    if valued:
                                        write("f32", values, i, read("f32", all_values, rank))
                                    write("i64", cursor, ky * words * 64 + c, i + 1)
                                rank += 1
                                rest &= rest - np.uint64(1)
                for ky in range(kernel_h):
                    for c in range(64):
                        at = ky * words * 64 + c
                        write("i32", start, at * (width + 1) + position, np.int32(read("i64", cursor, at)))

    return fill


def _adding(lanes: int, paired: int, valued: int, sources: int) -> Kernel:
    """Make the kernel that adds rows of gradients.

    An item is some rows of the kernel and words of channels, for one block of output channels.
    """
    row_bytes = lanes * (2 if paired else 4)

    def add(arrays: Any, constants: Any, first: Any, stop: Any) -> None:
        p = arrays[0]
        grads, entries, values, starts, taps, rows = p[0], p[1], p[2], p[3], p[4], p[5]
        images, at_once, groups, blocks, inputs, width = p[6], p[7], p[8], p[9], p[10], p[11]
        out_pixels, kernel_h, kernel_w, per_item, from_block = p[12], p[13], p[14], p[15], p[16]
        scale = np.float32(constants[0])
        if not sources:
            return
        words = (inputs + 63) // 64
        pieces = kernel_h * words
        items_of_block = (pieces + per_item - 1) // per_item
        tiles = (images + at_once - 1) // at_once
        for item in range(first, stop):
            block = from_block + item // items_of_block
            g = block // blocks
            from_piece = (item % items_of_block) * per_item
            for tile in range(tiles):
                grad = grads + (block * images + tile * at_once) * out_pixels * row_bytes
                for piece in range(from_piece, min(from_piece + per_item, pieces)):
                    ky, word = piece // words, piece % words
                    start = starts + ((tile * groups + g) * pieces + piece) * 64 * (width + 1) * 4
                    for c in range(min(64, inputs - 64 * word)):
                        run = start + c * (width + 1) * 4
                        for kx in range(kernel_w):
                            a = read("i32", run, read("i64", taps, 3 * kx))
                            b = read("i32", run, read("i64", taps, 3 * kx + 1))
                            base = grad - read("i64", taps, 3 * kx + 2)
                            target = (
                                rows + (((block * kernel_h + ky) * kernel_w + kx) * inputs + 64 * word + c) * lanes * 4
                            )
                            acc = nothing(lanes)
                            for j in range(a, b):
                                row = base + read("i32", entries, j)
                                if valued:
                                    acc = plus_multiple(paired, acc, read("f32", values, j), row)
                                else:
                                    acc = plus_row(paired, acc, row)
                            if tile > 0:
                                acc = plus_row(0, acc, target)
                            if tile == tiles - 1:
                                acc = times_number(acc, scale)
                            keep_all(target, acc)

    return add


_DIGEST = source_digest(*SOURCES)
_rank = _ranking(_DIGEST)
_count = _counting(_DIGEST)
_FILL = {valued: _filling(valued, _DIGEST) for valued in (0, 1)}
_ADD: dict[tuple[int, int, int], Kernel] = {
    (lanes, paired, valued): _adding(lanes, paired, valued, _DIGEST)
    for lanes in LANES
    for paired in (0, 1)
    for valued in (0, 1)
}
