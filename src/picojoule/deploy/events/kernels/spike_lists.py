"""Lists of what is active, pixel by pixel, and of the rows of weights that it reaches in each output pixel."""

from __future__ import annotations

import numpy as np

from picojoule.deploy.events.kernels.vectors import at, copy, copy_plus
from picojoule.deploy.events.program import COPIED, Instruction, Memory
from picojoule.kernels.jit import kernel
from picojoule.kernels.lanes import lowest_bit


@kernel
def list_spikes(op: Instruction, m: Memory) -> None:
    """List the active channels of every pixel, as (column · channels + channel) · lanes."""
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
def list_counts(op: Instruction, m: Memory) -> None:
    """List numbers made of spikes: each with its value and its number of spikes, or once for each spike."""
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
def list_rows(op: Instruction, m: Memory, from_pixel: int, to_pixel: int, valued: bool) -> int:
    """List where the rows of weights under the windows of some output pixels begin; return the synapses reached."""
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
