"""Layers of synapses: listed rows of weights are added up in registers, block by block of output channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from picojoule.deploy.events.kernels.spike_lists import list_counts, list_rows, list_spikes
from picojoule.deploy.events.kernels.vectors import (
    as_floats,
    at,
    load,
    no_counts,
    plus,
    plus_bytes,
    plus_scaled,
    reaches,
    store,
    times,
    total,
    widened,
)
from picojoule.deploy.events.program import Instruction, Memory
from picojoule.kernels.jit import inlined, kernel

BEFORE_OVERFLOW = 256
"""Rows of int8 (at most 127 in size) that 16 bits can hold."""


def _emitting(lanes: int) -> Callable[..., Any]:
    @inlined
    def emit(op: Instruction, m: Memory, acc: Any, pixel: int, block: int) -> None:
        """Write spikes where the current reaches its threshold, or the current itself."""
        if op.fires:
            bits = reaches(acc, m.constants, op.threshold + block * lanes)
            word = op.target + pixel * op.out_words + (block * lanes) // 64
            shift = (block * lanes) % 64
            m.masks[word] = bits if shift == 0 else m.masks[word] | (bits << np.uint64(shift))
        else:
            store(m.maps, op.target + pixel * op.out_pitch + block * lanes, acc)

    return emit


def _adding(lanes: int) -> tuple[Callable[..., Any], ...]:
    """Make the inner loops for one width of vector: over listed spikes, listed numbers, spikes on bytes, and all."""
    emit = _emitting(lanes)

    @inlined
    def begin(op: Instruction, m: Memory, pixel: int, block: int) -> Any:
        """Begin a current with its bias and what it is added to."""
        acc = load(lanes, m.constants, op.init + block * lanes)
        if op.other >= 0:
            acc = plus(acc, m.maps, op.other + pixel * op.out_pitch + block * lanes)
        return acc

    @kernel
    def add_spikes(op: Instruction, m: Memory, from_pixel: int, to_pixel: int) -> None:
        size = op.rows * lanes
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for pixel in range(from_pixel, to_pixel):
                acc = begin(op, m, pixel, block)
                for j in range(at(m.starts, pixel - from_pixel), at(m.starts, pixel - from_pixel + 1)):
                    acc = plus(acc, weights, at(m.rows, j))
                emit(op, m, acc, pixel, block)

    @kernel
    def add_numbers(op: Instruction, m: Memory, from_pixel: int, to_pixel: int) -> None:
        size = op.rows * lanes
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for pixel in range(from_pixel, to_pixel):
                acc = begin(op, m, pixel, block)
                for j in range(at(m.starts, pixel - from_pixel), at(m.starts, pixel - from_pixel + 1)):
                    acc = plus_scaled(acc, m.row_values, j, weights, at(m.rows, j))
                emit(op, m, acc, pixel, block)

    @kernel
    def add_bytes(op: Instruction, m: Memory, from_pixel: int, to_pixel: int) -> None:
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
    def add_all(op: Instruction, m: Memory) -> None:
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
def _add_streamed(op: Instruction, m: Memory, from_pixel: int, to_pixel: int, valued: bool) -> None:
    """Add up rows where weights are too many for any cache: each row is read from end to end."""
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
def synapses(op: Instruction, m: Memory) -> int:
    """Run one layer of synapses, or one group of it; return the synapses that spikes reached."""
    if op.dense:
        if op.lanes == 64:
            _add_all_64(op, m)
        else:
            _add_all_16(op, m)
        return 0
    if op.spiking:
        list_spikes(op, m)
    else:
        list_counts(op, m)
    valued = op.spiking == 0 and op.repeated == 0
    reached = 0
    pixels = op.out_height * op.out_width
    for first in range(0, pixels, op.tile):
        last = min(first + op.tile, pixels)
        reached += list_rows(op, m, first, last, valued)
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
