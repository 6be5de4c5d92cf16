"""Everything that is compiled to machine code. The vectors are in `lanes`.

`execute` runs a program (`program`) on images, one after the other, with no Python in between. A layer of synapses is
three loops: list what is active, pixel by pixel; list for each output pixel the rows of weights under its window; and
for each block of output channels add those rows up in registers. Silence is in no list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.events.lanes import (
    as_floats,
    at,
    copy,
    copy_plus,
    load,
    lowest_bit,
    no_counts,
    ones,
    plus,
    plus_bytes,
    plus_scaled,
    reaches,
    store,
    times,
    total,
    widened,
)
from picojoule.events.program import COPIED, Floats, Kind, Memory
from picojoule.machine_code import compiled, inlined, kernel, source_digest

Operation = Any
Ints = NDArray[np.int32]
Words = NDArray[np.uint64]

INPUT, INTERLEAVE, SYNAPSES = (int(k) for k in (Kind.INPUT, Kind.INTERLEAVE, Kind.SYNAPSES))
FIRE, COMBINE = int(Kind.FIRE), int(Kind.COMBINE)
SPREAD, FLATTEN, PLACE, OUTPUT = (int(k) for k in (Kind.SPREAD, Kind.FLATTEN, Kind.PLACE, Kind.OUTPUT))
SUM_SPIKES, RELAY_SPIKES, POOL_MAP = (int(k) for k in (Kind.SUM_SPIKES, Kind.RELAY_SPIKES, Kind.POOL_MAP))

BEFORE_OVERFLOW = 256
"""Rows of int8 (at most 127 in size) that 16 bits can hold."""


# --- What is active --------------------------------------------------------------------------------------------------


@kernel
def _list_spikes(op: Operation, m: Memory) -> None:
    """Active channels of every pixel, as (column · channels + channel) · lanes."""
    channels = op.last - op.first
    low, high = op.first // 64, (op.last + 63) // 64
    n = 0
    for pixel in range(op.in_height * op.in_width):
        m.places[pixel] = n
        base = (pixel % op.in_width) * channels - op.first
        for word in range(low, high):
            bits = m.masks[op.source + pixel * op.in_words + word]
            if word * 64 < op.first:
                bits &= ~np.uint64(0) << np.uint64(op.first - word * 64)
            if word * 64 + 64 > op.last:
                bits &= ~np.uint64(0) >> np.uint64(word * 64 + 64 - op.last)
            while bits != 0:
                m.entries[n] = (base + word * 64 + lowest_bit(bits)) * op.lanes
                n += 1
                bits &= bits - np.uint64(1)
    m.places[op.in_height * op.in_width] = n


@kernel
def _list_counts(op: Operation, m: Memory) -> None:
    """The same for numbers made of spikes: each with its value and how many are behind it, or repeated for each."""
    channels = op.last - op.first
    n = 0
    spikes = 0
    for pixel in range(op.in_height * op.in_width):
        m.places[pixel] = n
        m.spikes_before[pixel] = spikes
        base = (pixel % op.in_width) * channels
        here = pixel * op.in_pitch + op.first
        for c in range(channels):
            count = int(m.maps[op.counts + here + c])
            if count == 0:
                continue
            spikes += count
            for _ in range(count if op.repeated else 1):
                m.entries[n] = (base + c) * op.lanes
                m.values[n] = m.maps[op.source + here + c]
                m.multiplicities[n] = 1 if op.repeated else count
                n += 1
    m.places[op.in_height * op.in_width] = n
    m.spikes_before[op.in_height * op.in_width] = spikes


@kernel
def _list_rows(op: Operation, m: Memory, from_pixel: int, to_pixel: int, valued: bool) -> int:
    """For some output pixels, where the rows of weights under their windows begin; returns the synapses reached."""
    row_size = (op.last - op.first) * op.lanes
    height, width, out_width = op.in_height, op.in_width, op.out_width
    kernel_h, kernel_w, dilation_h, dilation_w = op.kernel_h, op.kernel_w, op.dilation_h, op.dilation_w
    fan, fan_table = op.fan, op.fan_table
    pieces = 1 if dilation_w == 1 else kernel_w  # without dilation, a row of the window is one run of the list
    columns = kernel_w if dilation_w == 1 else 1
    before = m.spikes_before if valued else m.places
    reached = 0
    n = 0
    for pixel in range(from_pixel, to_pixel):
        m.starts[pixel - from_pixel] = n
        top = (pixel // out_width) * op.stride_h - op.pad_h
        left = (pixel % out_width) * op.stride_w - op.pad_w
        for ky in range(kernel_h):
            y = top + ky * dilation_h
            if y < 0 or y >= height:
                continue
            for kx in range(pieces):
                x = left + kx * dilation_w
                begin, end = y * width + max(x, 0), y * width + min(x + columns, width)
                if begin >= end:
                    continue
                a, b = at(m.places, begin), at(m.places, end)
                offset = np.int32((ky * kernel_w + kx - x) * row_size)
                # Whole vectors, also beyond the run: what is too much is overwritten by the next one.
                for j in range(0, b - a, COPIED):
                    copy_plus(COPIED, m.rows, n + j, m.entries, a + j, offset)
                    if valued:
                        copy(COPIED, m.row_values, n + j, m.values, a + j)
                if fan_table < 0:
                    reached += (at(before, end) - at(before, begin)) * fan
                else:
                    for j in range(b - a):
                        left_over = m.tables[fan_table + m.rows[n + j] // op.lanes]
                        reached += left_over * m.multiplicities[a + j] if valued else left_over
                n += b - a
    m.starts[to_pixel - from_pixel] = n
    return reached


# --- Adding up -------------------------------------------------------------------------------------------------------


def _emitting(lanes: int) -> Callable[..., Any]:
    @inlined
    def emit(op: Operation, m: Memory, acc: Any, pixel: int, block: int) -> None:
        """Spikes where the current reaches its threshold, or the current itself."""
        if op.fires:
            bits = reaches(acc, m.constants, op.threshold + block * lanes)
            word = op.target + pixel * op.out_words + (block * lanes) // 64
            shift = (block * lanes) % 64
            m.masks[word] = bits if shift == 0 else m.masks[word] | (bits << np.uint64(shift))
        else:
            store(m.maps, op.target + pixel * op.out_pitch + block * lanes, acc)

    return emit


def _adding(lanes: int) -> tuple[Callable[..., Any], ...]:
    """The inner loops for one width of vector: over listed spikes, listed numbers, spikes on bytes, and over all."""
    emit = _emitting(lanes)

    @inlined
    def begin(op: Operation, m: Memory, pixel: int, block: int) -> Any:
        """What a current begins with: its bias, and what it is added to."""
        acc = load(lanes, m.constants, op.init + block * lanes)
        if op.other >= 0:
            acc = plus(acc, m.maps, op.other + pixel * op.out_pitch + block * lanes)
        return acc

    @kernel
    def add_spikes(op: Operation, m: Memory, from_pixel: int, to_pixel: int) -> None:
        size = op.rows * lanes
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for pixel in range(from_pixel, to_pixel):
                acc = begin(op, m, pixel, block)
                for j in range(at(m.starts, pixel - from_pixel), at(m.starts, pixel - from_pixel + 1)):
                    acc = plus(acc, weights, at(m.rows, j))
                emit(op, m, acc, pixel, block)

    @kernel
    def add_numbers(op: Operation, m: Memory, from_pixel: int, to_pixel: int) -> None:
        size = op.rows * lanes
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for pixel in range(from_pixel, to_pixel):
                acc = begin(op, m, pixel, block)
                for j in range(at(m.starts, pixel - from_pixel), at(m.starts, pixel - from_pixel + 1)):
                    acc = plus_scaled(acc, m.row_values, j, weights, at(m.rows, j))
                emit(op, m, acc, pixel, block)

    @kernel
    def add_bytes(op: Operation, m: Memory, from_pixel: int, to_pixel: int) -> None:
        size = op.rows * lanes
        for block in range(op.blocks):
            weights = m.bytes[op.bytes + block * size : op.bytes + (block + 1) * size]
            for pixel in range(from_pixel, to_pixel):
                last = at(m.starts, pixel - from_pixel + 1)
                wide = no_counts(lanes, "i32")
                for first in range(at(m.starts, pixel - from_pixel), last, BEFORE_OVERFLOW):
                    short = no_counts(lanes, "i16")
                    for j in range(first, min(first + BEFORE_OVERFLOW, last)):
                        short = plus_bytes(short, weights, at(m.rows, j))
                    wide = widened(wide, short)
                acc = times(as_floats(wide), m.constants, op.scales + block * lanes)
                emit(op, m, total(acc, begin(op, m, pixel, block)), pixel, block)

    @kernel
    def add_all(op: Operation, m: Memory) -> None:
        channels, height, width = op.last - op.first, op.in_height, op.in_width
        kernel_h, kernel_w, dilation_h, dilation_w = op.kernel_h, op.kernel_w, op.dilation_h, op.dilation_w
        channel_step, pixel_step = op.channel_step, op.pixel_step
        source, size = op.source + op.first * channel_step, op.rows * lanes
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for pixel in range(op.out_height * op.out_width):
                top = (pixel // op.out_width) * op.stride_h - op.pad_h
                left = (pixel % op.out_width) * op.stride_w - op.pad_w
                first = max(0, -(left // dilation_w))  # the columns of the window that lie on the map
                last = min(kernel_w, -((left - width) // dilation_w))
                acc = begin(op, m, pixel, block)
                for ky in range(kernel_h):
                    y = top + ky * dilation_h
                    if y < 0 or y >= height:
                        continue
                    for c in range(channels):
                        line = source + c * channel_step + (y * width + left) * pixel_step
                        row = ky * kernel_w * channels + c
                        for kx in range(first, last):
                            value = line + kx * dilation_w * pixel_step
                            acc = plus_scaled(acc, m.maps, value, weights, (row + kx * channels) * lanes)
                emit(op, m, acc, pixel, block)

    return add_spikes, add_numbers, add_bytes, add_all


_add_spikes_16, _add_numbers_16, _add_bytes_16, _add_all_16 = _adding(16)
_add_spikes_64, _add_numbers_64, _add_bytes_64, _add_all_64 = _adding(64)
_emit_64 = _emitting(64)


@kernel
def _add_streamed(op: Operation, m: Memory, from_pixel: int, to_pixel: int, valued: bool) -> None:
    """The same where weights are too many for any cache: each row is read from end to end, as memory likes it."""
    blocks, pitch = op.blocks, op.blocks * 64
    weights = m.constants[op.weights : op.weights + op.rows * pitch]
    for pixel in range(from_pixel, to_pixel):
        for c in range(0, pitch, 64):
            acc = load(64, m.constants, op.init + c)
            if op.other >= 0:
                acc = plus(acc, m.maps, op.other + pixel * op.out_pitch + c)
            store(m.sums, c, acc)
        j, end = at(m.starts, pixel - from_pixel), at(m.starts, pixel - from_pixel + 1)
        if valued:
            for i in range(j, end):
                row = at(m.rows, i) * blocks
                for c in range(0, pitch, 64):
                    store(m.sums, c, plus_scaled(load(64, m.sums, c), m.row_values, i, weights, row + c))
        else:
            while j + 4 <= end:
                row0, row1 = at(m.rows, j) * blocks, at(m.rows, j + 1) * blocks
                row2, row3 = at(m.rows, j + 2) * blocks, at(m.rows, j + 3) * blocks
                for c in range(0, pitch, 64):
                    acc = plus(plus(load(64, m.sums, c), weights, row0 + c), weights, row1 + c)
                    store(m.sums, c, plus(plus(acc, weights, row2 + c), weights, row3 + c))
                j += 4
            for i in range(j, end):
                row = at(m.rows, i) * blocks
                for c in range(0, pitch, 64):
                    store(m.sums, c, plus(load(64, m.sums, c), weights, row + c))
        for block in range(blocks):
            _emit_64(op, m, load(64, m.sums, block * 64), pixel, block)


@kernel
def _synapses(op: Operation, m: Memory) -> int:
    """One layer of synapses (or one group of it); returns the synapses that spikes reached."""
    if op.dense:
        if op.lanes == 64:
            _add_all_64(op, m)
        else:
            _add_all_16(op, m)
        return 0
    if op.spiking:
        _list_spikes(op, m)
    else:
        _list_counts(op, m)
    valued = op.spiking == 0 and op.repeated == 0
    reached = 0
    pixels = op.out_height * op.out_width
    for first in range(0, pixels, op.tile):
        last = min(first + op.tile, pixels)
        reached += _list_rows(op, m, first, last, valued)
        if op.streamed:
            _add_streamed(op, m, first, last, valued)
        elif op.lanes == 64:
            if op.bytes >= 0:
                _add_bytes_64(op, m, first, last)
            elif valued:
                _add_numbers_64(op, m, first, last)
            else:
                _add_spikes_64(op, m, first, last)
        elif op.bytes >= 0:
            _add_bytes_16(op, m, first, last)
        elif valued:
            _add_numbers_16(op, m, first, last)
        else:
            _add_spikes_16(op, m, first, last)
    return reached


# --- What stands between layers of synapses --------------------------------------------------------------------------


@kernel
def _fire(op: Operation, m: Memory) -> None:
    """Spikes where sign · current reaches the threshold of its channel."""
    for pixel in range(op.out_height * op.out_width):
        for word in range(op.out_words):
            spikes = np.uint64(0)
            for c in range(word * 64, min(word * 64 + 64, op.out_pitch), 16):
                current = load(16, m.maps, op.source + pixel * op.out_pitch + c)
                bits = reaches(times(current, m.constants, op.scales + c), m.constants, op.threshold + c)
                spikes |= bits << np.uint64(c - word * 64)
            m.masks[op.target + pixel * op.out_words + word] = spikes


@kernel
def _combine(op: Operation, m: Memory) -> None:
    a, b = op.scales, op.weights
    for pixel in range(op.out_height * op.out_width):
        here = pixel * op.out_pitch
        for c in range(op.out_pitch):
            value = m.maps[op.source + here + c] * m.constants[a + c] + m.constants[op.init + c]
            if op.other >= 0:
                value += m.maps[op.other + here + c] * m.constants[b + c]
            m.maps[op.target + here + c] = value


@kernel
def _spread(op: Operation, m: Memory) -> None:
    for pixel in range(op.out_height * op.out_width):
        for c in range(op.out_channels):
            bits = m.masks[op.source + pixel * op.out_words + c // 64] >> np.uint64(c % 64)
            m.maps[op.target + pixel * op.out_pitch + c] = np.float32(bits & np.uint64(1))


@kernel
def _sum_spikes(op: Operation, m: Memory) -> None:
    """Target: what an average pool passes on; counts: the spikes in each window."""
    _list_spikes(op, m)
    for i in range(op.out_height * op.out_width * op.out_pitch):
        m.maps[op.target + i] = 0.0
        m.maps[op.counts + i] = 0.0
    rows, columns = op.windows, op.windows + 2 * op.out_height
    for oy in range(op.out_height):
        for ox in range(op.out_width):
            pixel = oy * op.out_width + ox
            share = m.constants[op.scales + pixel]
            for y in range(m.tables[rows + 2 * oy], m.tables[rows + 2 * oy + 1]):
                for x in range(m.tables[columns + 2 * ox], m.tables[columns + 2 * ox + 1]):
                    for j in range(at(m.places, y * op.in_width + x), at(m.places, y * op.in_width + x + 1)):
                        here = pixel * op.out_pitch + at(m.entries, j) - x * (op.last - op.first)
                        m.maps[op.target + here] += share
                        m.maps[op.counts + here] += np.float32(1.0)


@kernel
def _relay_spikes(op: Operation, m: Memory) -> None:
    rows, columns = op.windows, op.windows + 2 * op.out_height
    for oy in range(op.out_height):
        for ox in range(op.out_width):
            for word in range(op.out_words):
                bits = np.uint64(0)
                for y in range(m.tables[rows + 2 * oy], m.tables[rows + 2 * oy + 1]):
                    for x in range(m.tables[columns + 2 * ox], m.tables[columns + 2 * ox + 1]):
                        bits |= m.masks[op.source + (y * op.in_width + x) * op.in_words + word]
                m.masks[op.target + (oy * op.out_width + ox) * op.out_words + word] = bits


@kernel
def _pool_map(op: Operation, m: Memory) -> None:
    rows, columns = op.windows, op.windows + 2 * op.out_height
    for oy in range(op.out_height):
        for ox in range(op.out_width):
            target = op.target + (oy * op.out_width + ox) * op.out_pitch
            for c in range(op.out_pitch):
                m.maps[target + c] = -np.inf if op.largest else 0.0
            for y in range(m.tables[rows + 2 * oy], m.tables[rows + 2 * oy + 1]):
                for x in range(m.tables[columns + 2 * ox], m.tables[columns + 2 * ox + 1]):
                    source = op.source + (y * op.in_width + x) * op.in_pitch
                    if op.largest:
                        for c in range(op.out_pitch):
                            m.maps[target + c] = max(m.maps[target + c], m.maps[source + c])
                    else:
                        for c in range(op.out_pitch):
                            m.maps[target + c] += m.maps[source + c]
            if not op.largest:
                share = m.constants[op.scales + oy * op.out_width + ox]
                for c in range(op.out_pitch):
                    m.maps[target + c] *= share


@kernel
def _flatten(op: Operation, m: Memory) -> None:
    """As PyTorch flattens: all pixels of a channel, then the next channel."""
    pixels = op.in_height * op.in_width
    for pixel in range(pixels):
        for c in range(op.last):
            m.maps[op.target + c * pixels + pixel] = m.maps[op.source + pixel * op.in_pitch + c]


@kernel
def _place(op: Operation, m: Memory) -> None:
    for pixel in range(op.out_height * op.out_width):
        for c in range(op.last):
            m.maps[op.target + pixel * op.out_pitch + op.out_first + c] = m.maps[op.source + pixel * op.in_pitch + c]


@kernel
def _interleave(op: Operation, m: Memory) -> None:
    pixels = op.out_height * op.out_width
    for pixel in range(pixels):
        for c in range(op.out_channels):
            m.maps[op.target + pixel * op.out_pitch + c] = m.maps[op.source + c * pixels + pixel]


@kernel
def _give(op: Operation, m: Memory, output: Floats) -> None:
    pixels = op.out_height * op.out_width
    for pixel in range(pixels):
        for c in range(op.out_channels):
            value = m.maps[op.source + pixel * op.out_pitch + c]
            output[c * pixels + pixel] = value * m.constants[op.scales + c] + m.constants[op.init + c]


@kernel
def _emitted(op: Operation, m: Memory) -> int:
    """How many spikes an operation has left behind."""
    count = 0
    if op.kind == POOL_MAP:
        for pixel in range(op.out_height * op.out_width):
            for c in range(op.out_channels):
                count += int(m.maps[op.target + pixel * op.out_pitch + c])
    else:
        for i in range(op.out_height * op.out_width * op.out_words):
            count += ones(m.masks[op.target + i])
    return count


# --- The program -----------------------------------------------------------------------------------------------------


def _executing(sources: int) -> Callable[..., None]:
    """The compiled program, kept in Numba's cache under a number that stands for the files it is made of."""

    @compiled
    def execute(
        operations: NDArray[Any],
        images: Floats,
        outputs: Floats,
        spikes: NDArray[np.int64],
        synops: NDArray[np.int64],
        constants: Floats,
        bytes: NDArray[np.int8],
        tables: Ints,
        masks: Words,
        maps: Floats,
        places: Ints,
        entries: Ints,
        values: Floats,
        multiplicities: Ints,
        spikes_before: Ints,
        starts: Ints,
        rows: Ints,
        row_values: Floats,
        sums: Floats,
    ) -> None:
        """Answer every image, each a flat row, into `outputs`, and count its spikes and synaptic operations.

        The memory comes in pieces, because Numba takes microseconds to look into a tuple of Python's.
        """
        if not sources:
            return
        m = Memory(
            constants,
            bytes,
            tables,
            masks,
            maps,
            places,
            entries,
            values,
            multiplicities,
            spikes_before,
            starts,
            rows,
            row_values,
            sums,
        )
        for n in range(len(images)):
            for i in range(len(operations)):
                op = operations[i]
                if op.kind == SYNAPSES:
                    reached = _synapses(op, m)
                    if op.counter >= 0:
                        synops[n, op.counter] += reached
                elif op.kind == FIRE:
                    _fire(op, m)
                elif op.kind == COMBINE:
                    _combine(op, m)
                elif op.kind == SUM_SPIKES:
                    _sum_spikes(op, m)
                elif op.kind == RELAY_SPIKES:
                    _relay_spikes(op, m)
                elif op.kind == POOL_MAP:
                    _pool_map(op, m)
                elif op.kind == SPREAD:
                    _spread(op, m)
                elif op.kind == FLATTEN:
                    _flatten(op, m)
                elif op.kind == PLACE:
                    _place(op, m)
                elif op.kind == INPUT:
                    for c in range(images.shape[1]):
                        m.maps[op.target + c] = images[n, c]
                elif op.kind == INTERLEAVE:
                    _interleave(op, m)
                elif op.kind == OUTPUT:
                    _give(op, m, outputs[n])
                if op.emitter >= 0:
                    spikes[n, op.emitter] = _emitted(op, m)

    return execute


execute = _executing(source_digest("picojoule.events.lanes", "picojoule.events.program"))
