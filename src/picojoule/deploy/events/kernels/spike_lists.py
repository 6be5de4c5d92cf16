"""Lists of what is active, pixel by pixel, and of the rows of weights that it reaches in each output pixel.

A window is one output pixel of one image. Those that nothing active lies under, in any step, are in no list.
"""

from __future__ import annotations

import numpy as np

from picojoule.deploy.events.kernels.vectors import active, at, copy, copy_plus, put
from picojoule.deploy.events.program import COPIED, Instruction, Memory
from picojoule.kernels.jit import kernel
from picojoule.kernels.lanes import lowest_bit


@kernel
def list_spikes(op: Instruction, m: Memory, images: int) -> None:
    """List the active channels of every pixel, as (column · channels + channel) · lanes."""
    words, low, high = op.in_words, op.first // 64, (op.last + 63) // 64
    from_first = ~np.uint64(0) << np.uint64(op.first - low * 64)
    to_last = ~np.uint64(0) >> np.uint64(high * 64 - op.last)
    lanes, pixel_size = op.lanes, (op.last - op.first) * op.lanes
    n = pixel = 0
    for image in range(images):
        for step in range(op.steps):
            here = image * m.image_words + op.source + step * op.source_step
            for _ in range(op.in_height):
                base = -op.first * lanes
                for _ in range(op.in_width):
                    put(m.places, pixel, n)
                    for word in range(low, high):
                        bits = m.masks[here + word]
                        if word == low:
                            bits &= from_first
                        if word == high - 1:
                            bits &= to_last
                        while bits != 0:
                            put(m.entries, n, base + (word * 64 + lowest_bit(bits)) * lanes)
                            n += 1
                            bits &= bits - np.uint64(1)
                    here += words
                    base += pixel_size
                    pixel += 1
    put(m.places, pixel, n)


@kernel
def list_counts(op: Instruction, m: Memory, images: int) -> None:
    """List numbers made of spikes: each with its value and its number of spikes, or once for each spike."""
    channels, lanes, pitch = op.last - op.first, op.lanes, op.in_pitch
    n = pixel = spikes = 0
    for image in range(images):
        for step in range(op.steps):
            here = image * m.image_numbers + step * op.source_step + op.first
            for _ in range(op.in_height):
                base = 0
                for _ in range(op.in_width):
                    put(m.places, pixel, n)
                    put(m.spikes_before, pixel, spikes)
                    for c in range(0, channels, COPIED):
                        bits = active(COPIED, m.maps, op.counts + here + c)
                        if channels - c < COPIED:
                            bits &= (np.uint64(1) << np.uint64(channels - c)) - np.uint64(1)
                        while bits != 0:
                            channel = c + lowest_bit(bits)
                            bits &= bits - np.uint64(1)
                            count = int(m.maps[op.counts + here + channel])
                            spikes += count
                            for _ in range(count if op.repeated else 1):
                                put(m.entries, n, base + channel * lanes)
                                m.values[n] = m.maps[op.source + here + channel]
                                put(m.multiplicities, n, 1 if op.repeated else count)
                                n += 1
                    here += pitch
                    base += channels * lanes
                    pixel += 1
    put(m.places, pixel, n)
    put(m.spikes_before, pixel, spikes)


@kernel
def list_rows(op: Instruction, m: Memory, images: int, window: int, valued: bool) -> tuple[int, int]:
    """List the rows of weights under windows, from one window on and as far as there is room; count what they reach.

    Returns how many windows are listed, and which window is the next.
    """
    lanes, steps = op.lanes, op.steps
    row_size = (op.last - op.first) * lanes
    height, width, out_height, out_width = op.in_height, op.in_width, op.out_height, op.out_width
    kernel_h, kernel_w, dilation_h, dilation_w = op.kernel_h, op.kernel_w, op.dilation_h, op.dilation_w
    fan, fan_table, everywhere = op.fan, op.fan_table, op.other >= 0
    pieces = 1 if dilation_w == 1 else kernel_w  # without dilation, a row of the window is one run of the list
    columns = kernel_w if dilation_w == 1 else 1
    frame = height * width
    room = len(m.rows) - COPIED - op.rows * steps * max(op.repeated, 1)
    image, pixel = window // (out_height * out_width), window % (out_height * out_width)
    oy, ox = pixel // out_width, pixel % out_width
    last_window = images * out_height * out_width
    top = from_ky = to_ky = 0
    fresh = True
    n = listed = 0
    while window < last_window and n <= room:
        if fresh:  # a row of the map begins
            fresh = False
            top = oy * op.stride_h - op.pad_h
            from_ky = max(0, -(top // dilation_h))
            to_ky = min(kernel_h, -((top - height) // dilation_h))
            anything = everywhere
            if from_ky < to_ky:
                first, last = top + from_ky * dilation_h, top + (to_ky - 1) * dilation_h + 1
                for step in range(image * steps, (image + 1) * steps):
                    runs = step * frame
                    anything |= at(m.places, runs + first * width) < at(m.places, runs + last * width)
            if not anything:
                window += out_width - ox
                ox = out_width
        if ox < out_width:
            left = ox * op.stride_w - op.pad_w
            begun, reached = n, 0
            for step in range(steps):
                put(m.starts, listed * steps + step, n)
                runs = (image * steps + step) * frame
                for ky in range(from_ky, to_ky):
                    line = runs + (top + ky * dilation_h) * width
                    for kx in range(pieces):
                        x = left + kx * dilation_w
                        begin, end = line + max(x, 0), line + min(x + columns, width)
                        if begin >= end:
                            continue
                        a, b = at(m.places, begin), at(m.places, end)
                        if a == b:
                            continue
                        offset = np.int32((ky * kernel_w + kx - x) * row_size)
                        # Whole vectors, also beyond the run: what is too much is overwritten by the next one.
                        for j in range(0, b - a, COPIED):
                            copy_plus(COPIED, m.rows, n + j, m.entries, a + j, offset)
                            if valued:
                                copy(COPIED, m.row_values, n + j, m.values, a + j)
                        if fan_table >= 0:
                            for j in range(b - a):
                                left_over = at(m.tables, fan_table + at(m.rows, n + j) // lanes)
                                reached += left_over * at(m.multiplicities, a + j) if valued else left_over
                        elif valued:
                            reached += (at(m.spikes_before, end) - at(m.spikes_before, begin)) * fan
                        else:
                            reached += (b - a) * fan
                        n += b - a
            m.reached[image] += reached
            put(m.window_images, listed, image)
            put(m.window_pixels, listed, oy * out_width + ox)
            listed += n > begun or everywhere
            window += 1
            ox += 1
        if ox == out_width:
            ox = 0
            oy += 1
            fresh = True
            if oy == out_height:
                oy = 0
                image += 1
    put(m.starts, listed * steps, n)
    return listed, window
