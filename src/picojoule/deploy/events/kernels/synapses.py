"""Layers of synapses: listed rows of weights are added up in registers, block by block of output channels.

A window that nothing active lies under gets what its block gives to no spikes at all: that is computed once and copied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from picojoule.deploy.events.kernels.membranes import charge_16, charge_64
from picojoule.deploy.events.kernels.spike_lists import list_counts, list_rows, list_spikes
from picojoule.deploy.events.kernels.vectors import (
    as_floats,
    at,
    load,
    no_counts,
    plus,
    plus_bytes,
    plus_scaled,
    put,
    reaches,
    store,
    times,
    total,
    widened,
)
from picojoule.deploy.events.program import Emission, Instruction, Memory
from picojoule.kernels.jit import inlined, kernel

BEFORE_OVERFLOW = 256
"""Rows of int8 (at most 127 in size) that 16 bits can hold."""
CURRENT, SPIKE, COUNTED = int(Emission.CURRENT), int(Emission.SPIKE), int(Emission.COUNTED)


def _emitting(lanes: int) -> tuple[Callable[..., Any], ...]:
    charge = charge_16 if lanes == 16 else charge_64

    @inlined
    def begin(op: Instruction, m: Memory, image: int, pixel: int, block: int, step: int) -> Any:
        """Begin a current with its bias and what it is added to."""
        acc = load(lanes, m.constants, op.init + block * lanes)
        if op.other >= 0:
            other = image * m.image_numbers + op.other + step * op.other_step
            acc = plus(acc, m.maps, other + pixel * op.out_pitch + block * lanes)
        return acc

    @inlined
    def emit(op: Instruction, m: Memory, acc: Any, image: int, pixel: int, block: int, step: int) -> None:
        """Write spikes where the current reaches its threshold, or the current itself; keep it for a membrane."""
        if op.emission == SPIKE:
            bits = reaches(acc, m.constants, op.threshold + block * lanes)
            target = image * m.image_words + op.target + step * op.target_step
            word = target + pixel * op.out_words + (block * lanes) // 64
            shift = (block * lanes) % 64
            m.masks[word] = bits if shift == 0 else m.masks[word] | (bits << np.uint64(shift))
        elif op.emission == CURRENT:
            target = image * m.image_numbers + op.target + step * op.target_step
            store(m.maps, target + pixel * op.out_pitch + block * lanes, acc)
        else:
            store(m.sums, step * op.out_pitch + block * lanes, acc)

    @inlined
    def end(op: Instruction, m: Memory, image: int, pixel: int, block: int) -> None:
        """Charge membranes with the currents of all steps, where there are any."""
        if op.emission > SPIKE:
            charge(op, m, 0, image, pixel, block)

    return begin, emit, end


def _adding(lanes: int) -> tuple[Callable[..., Any], ...]:
    """Make the inner loops for one width of vector: over listed spikes, listed numbers, spikes on bytes, and all."""
    begin, emit, end = _emitting(lanes)

    @kernel
    def add_spikes(op: Instruction, m: Memory, windows: int) -> None:
        size, steps = op.rows * lanes, op.steps
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for window in range(windows):
                image, pixel = at(m.window_images, window), at(m.window_pixels, window)
                for step in range(steps):
                    acc = begin(op, m, image, pixel, block, step)
                    begun = window * steps + step
                    for j in range(at(m.starts, begun), at(m.starts, begun + 1)):
                        acc = plus(acc, weights, at(m.rows, j))
                    emit(op, m, acc, image, pixel, block, step)
                end(op, m, image, pixel, block)

    @kernel
    def add_numbers(op: Instruction, m: Memory, windows: int) -> None:
        size, steps = op.rows * lanes, op.steps
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for window in range(windows):
                image, pixel = at(m.window_images, window), at(m.window_pixels, window)
                for step in range(steps):
                    acc = begin(op, m, image, pixel, block, step)
                    begun = window * steps + step
                    for j in range(at(m.starts, begun), at(m.starts, begun + 1)):
                        acc = plus_scaled(acc, m.row_values, j, weights, at(m.rows, j))
                    emit(op, m, acc, image, pixel, block, step)
                end(op, m, image, pixel, block)

    @kernel
    def add_bytes(op: Instruction, m: Memory, windows: int) -> None:
        size, steps = op.rows * lanes, op.steps
        for block in range(op.blocks):
            weights = m.bytes[op.bytes + block * size : op.bytes + (block + 1) * size]
            for window in range(windows):
                image, pixel = at(m.window_images, window), at(m.window_pixels, window)
                for step in range(steps):
                    last = at(m.starts, window * steps + step + 1)
                    wide = no_counts(lanes, "i32")
                    for first in range(at(m.starts, window * steps + step), last, BEFORE_OVERFLOW):
                        short = no_counts(lanes, "i16")
                        for j in range(first, min(first + BEFORE_OVERFLOW, last)):
                            short = plus_bytes(short, weights, at(m.rows, j))
                        wide = widened(wide, short)
                    acc = times(as_floats(wide), m.constants, op.scales + block * lanes)
                    emit(op, m, total(acc, begin(op, m, image, pixel, block, step)), image, pixel, block, step)
                end(op, m, image, pixel, block)

    @kernel
    def add_all(op: Instruction, m: Memory, image: int) -> None:
        channels, height, width = op.last - op.first, op.in_height, op.in_width
        kernel_h, kernel_w, dilation_h, dilation_w = op.kernel_h, op.kernel_w, op.dilation_h, op.dilation_w
        channel_step, across = op.channel_step, dilation_w * op.pixel_step
        source = image * m.image_numbers + op.source + op.first * channel_step
        size, out_width = op.rows * lanes, op.out_width
        next_pixel = op.stride_w * op.pixel_step
        for block in range(op.blocks):
            weights = m.constants[op.weights + block * size : op.weights + (block + 1) * size]
            for oy in range(op.out_height):
                top = oy * op.stride_h - op.pad_h
                from_ky = max(0, -(top // dilation_h))  # the rows of the window that lie on the map
                to_ky = min(kernel_h, -((top - height) // dilation_h))
                ox = 0
                while ox < out_width:
                    left = ox * op.stride_w - op.pad_w
                    pixel = oy * out_width + ox
                    end_of_three = left + 2 * op.stride_w + (kernel_w - 1) * dilation_w
                    if left >= 0 and end_of_three < width and ox + 3 <= out_width and op.source_step == 0:
                        # Three windows, for each of which the weights are in registers once.
                        acc0 = begin(op, m, image, pixel, block, 0)
                        acc1 = begin(op, m, image, pixel + 1, block, 0)
                        acc2 = begin(op, m, image, pixel + 2, block, 0)
                        for ky in range(from_ky, to_ky):
                            line = source + ((top + ky * dilation_h) * width + left) * op.pixel_step
                            for c in range(channels):
                                row, value = (ky * kernel_w * channels + c) * lanes, line + c * channel_step
                                for _ in range(kernel_w):
                                    acc0 = plus_scaled(acc0, m.maps, value, weights, row)
                                    acc1 = plus_scaled(acc1, m.maps, value + next_pixel, weights, row)
                                    acc2 = plus_scaled(acc2, m.maps, value + 2 * next_pixel, weights, row)
                                    row += channels * lanes
                                    value += across
                        for step in range(op.steps):
                            emit(op, m, acc0, image, pixel, block, step)
                        end(op, m, image, pixel, block)
                        for step in range(op.steps):
                            emit(op, m, acc1, image, pixel + 1, block, step)
                        end(op, m, image, pixel + 1, block)
                        for step in range(op.steps):
                            emit(op, m, acc2, image, pixel + 2, block, step)
                        end(op, m, image, pixel + 2, block)
                        ox += 3
                        continue
                    from_kx = max(0, -(left // dilation_w))
                    to_kx = min(kernel_w, -((left - width) // dilation_w))
                    acc = begin(op, m, image, pixel, block, 0)
                    for step in range(op.steps):
                        if step == 0 or op.source_step != 0:
                            acc = begin(op, m, image, pixel, block, step)
                            for ky in range(from_ky, to_ky):
                                line = source + step * op.source_step
                                line += ((top + ky * dilation_h) * width + left) * op.pixel_step
                                for c in range(channels):
                                    row = ky * kernel_w * channels + c
                                    for kx in range(from_kx, to_kx):
                                        value = line + c * channel_step + kx * across
                                        acc = plus_scaled(acc, m.maps, value, weights, (row + kx * channels) * lanes)
                        emit(op, m, acc, image, pixel, block, step)
                    end(op, m, image, pixel, block)
                    ox += 1

    return add_spikes, add_numbers, add_bytes, add_all


_add_spikes_16, _add_numbers_16, _add_bytes_16, _add_all_16 = _adding(16)
_add_spikes_64, _add_numbers_64, _add_bytes_64, _add_all_64 = _adding(64)
_begin_64, _emit_64, _end_64 = _emitting(64)


@kernel
def _add_streamed(op: Instruction, m: Memory, windows: int, valued: bool) -> None:
    """Add up rows where weights are too many for any cache: each row is read from end to end."""
    blocks, pitch, steps = op.blocks, op.blocks * 64, op.steps
    weights = m.constants[op.weights : op.weights + op.rows * pitch]
    for window in range(windows):
        image, pixel = at(m.window_images, window), at(m.window_pixels, window)
        for step in range(steps):
            sums = step * pitch
            for block in range(blocks):
                store(m.sums, sums + block * 64, _begin_64(op, m, image, pixel, block, step))
            j, last = at(m.starts, window * steps + step), at(m.starts, window * steps + step + 1)
            if valued:
                for i in range(j, last):
                    row = at(m.rows, i) * blocks
                    for c in range(0, pitch, 64):
                        acc = plus_scaled(load(64, m.sums, sums + c), m.row_values, i, weights, row + c)
                        store(m.sums, sums + c, acc)
            else:
                while j + 4 <= last:
                    row0, row1 = at(m.rows, j) * blocks, at(m.rows, j + 1) * blocks
                    row2, row3 = at(m.rows, j + 2) * blocks, at(m.rows, j + 3) * blocks
                    for c in range(0, pitch, 64):
                        acc = plus(plus(load(64, m.sums, sums + c), weights, row0 + c), weights, row1 + c)
                        store(m.sums, sums + c, plus(plus(acc, weights, row2 + c), weights, row3 + c))
                    j += 4
                for i in range(j, last):
                    row = at(m.rows, i) * blocks
                    for c in range(0, pitch, 64):
                        store(m.sums, sums + c, plus(load(64, m.sums, sums + c), weights, row + c))
            for block in range(blocks):
                _emit_64(op, m, load(64, m.sums, sums + block * 64), image, pixel, block, step)
        for block in range(blocks):
            _end_64(op, m, image, pixel, block)


@kernel
def _add(op: Instruction, m: Memory, windows: int, valued: bool) -> None:
    """Add up the rows that are listed for some windows, by the loop that fits the layer."""
    if op.streamed:
        _add_streamed(op, m, windows, valued)
    elif op.lanes == 64:
        if op.bytes >= 0:
            _add_bytes_64(op, m, windows)
        elif valued:
            _add_numbers_64(op, m, windows)
        else:
            _add_spikes_64(op, m, windows)
    elif op.bytes >= 0:
        _add_bytes_16(op, m, windows)
    elif valued:
        _add_numbers_16(op, m, windows)
    else:
        _add_spikes_16(op, m, windows)


@kernel
def _fill(op: Instruction, m: Memory, images: int, valued: bool) -> None:
    """Give every window what it is without spikes: the first one is computed, the others are its copies."""
    put(m.window_images, 0, 0)
    put(m.window_pixels, 0, 0)
    for step in range(op.steps + 1):
        put(m.starts, step, 0)
    _add(op, m, 1, valued)
    binary = op.emission != CURRENT and op.emission != COUNTED
    pixels = op.out_height * op.out_width
    for image in range(images):
        for step in range(op.steps):
            if binary:
                first = op.target + step * op.target_step
                target = image * m.image_words + first
                for word in range(op.out_words):
                    bits = m.masks[first + word]
                    for i in range(target + word, target + word + pixels * op.out_words, op.out_words):
                        m.masks[i] = bits
            else:
                first = op.target + step * op.target_step
                target = image * m.image_numbers + first
                for c in range(0, op.out_pitch, 16):
                    numbers = load(16, m.maps, first + c)
                    for i in range(target + c, target + c + pixels * op.out_pitch, op.out_pitch):
                        store(m.maps, i, numbers)


@kernel
def synapses(op: Instruction, m: Memory, images: int) -> None:
    """Run one layer of synapses, or one group of it, on some images; count the synapses that spikes reach."""
    for image in range(images):
        m.reached[image] = 0
    if op.dense:
        for image in range(images):
            if op.lanes == 64:
                _add_all_64(op, m, image)
            else:
                _add_all_16(op, m, image)
        return
    if op.spiking:
        list_spikes(op, m, images)
    else:
        list_counts(op, m, images)
    valued = op.spiking == 0 and op.repeated == 0
    if op.other < 0:
        _fill(op, m, images, valued)
    next_window = 0
    while next_window < images * op.out_height * op.out_width:
        windows, next_window = list_rows(op, m, images, next_window, valued)
        _add(op, m, windows, valued)
