"""Instructions between layers of synapses: from maps of spikes and numbers to maps.

Each takes the instruction and the memory that it works on, and does one time step of one image, but for `fire`.
"""

from __future__ import annotations

import numpy as np

from picojoule.deploy.events.kernels.membranes import charge_16
from picojoule.deploy.events.kernels.vectors import at, load, plus_product, reaches, store, times
from picojoule.deploy.events.program import Emission, Floats, Instruction, Memory
from picojoule.kernels.jit import kernel

SPIKE = int(Emission.SPIKE)


@kernel
def fire(op: Instruction, m: Memory, image: int) -> None:
    """Let the neurons of one image fire, in all steps: where scale · current reaches a threshold, or by membranes."""
    source, target = image * m.image_numbers + op.source, image * m.image_words + op.target
    for pixel in range(op.out_height * op.out_width):
        if op.emission == SPIKE:
            for step in range(op.steps):
                here = source + step * op.source_step + pixel * op.out_pitch
                for word in range(op.out_words):
                    spikes = np.uint64(0)
                    for c in range(word * 64, min(word * 64 + 64, op.out_pitch), 16):
                        current = times(load(16, m.maps, here + c), m.constants, op.scales + c)
                        spikes |= reaches(current, m.constants, op.threshold + c) << np.uint64(c - word * 64)
                    m.masks[target + step * op.target_step + pixel * op.out_words + word] = spikes
        else:
            for step in range(op.steps):
                here = source + step * op.source_step + pixel * op.out_pitch
                for c in range(0, op.out_pitch, 16):
                    shift = load(16, m.constants, op.init + c)
                    current = plus_product(shift, m.maps, here + c, m.constants, op.scales + c)
                    store(m.sums, step * op.out_pitch + c, current)
            for block in range(op.out_pitch // 16):
                charge_16(op, m, 0, image, pixel, block)


@kernel
def combine(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Compute a·x + b·y + c, channel by channel; y may be missing."""
    a, b, c = op.scales, op.weights, op.init
    maps = image * m.image_numbers
    x, y, target = (
        maps + op.source + step * op.source_step,
        maps + op.other + step * op.other_step,
        maps + op.target + step * op.target_step,
    )
    for pixel in range(op.out_height * op.out_width):
        here = pixel * op.out_pitch
        for i in range(op.out_pitch):
            value = m.maps[x + here + i] * m.constants[a + i] + m.constants[c + i]
            if op.other >= 0:
                value += m.maps[y + here + i] * m.constants[b + i]
            m.maps[target + here + i] = value


@kernel
def unpack(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Write binary spikes as the numbers 0 and 1."""
    source = image * m.image_words + op.source + step * op.source_step
    target = image * m.image_numbers + op.target + step * op.target_step
    for pixel in range(op.out_height * op.out_width):
        for c in range(op.out_channels):
            bits = m.masks[source + pixel * op.out_words + c // 64] >> np.uint64(c % 64)
            m.maps[target + pixel * op.out_pitch + c] = np.float32(bits & np.uint64(1))


@kernel
def sum_spikes(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Pool listed spikes by averages: the target gets what passes on, the counts the spikes in each window."""
    maps = image * m.image_numbers + step * op.target_step
    target, counts = maps + op.target, maps + op.counts
    for i in range(op.out_height * op.out_width * op.out_pitch):
        m.maps[target + i] = 0.0
        m.maps[counts + i] = 0.0
    rows, columns = op.windows, op.windows + 2 * op.out_height
    listed = (image * op.steps + step) * op.in_height * op.in_width
    for oy in range(op.out_height):
        for ox in range(op.out_width):
            pixel = oy * op.out_width + ox
            share = m.constants[op.scales + pixel]
            for y in range(m.tables[rows + 2 * oy], m.tables[rows + 2 * oy + 1]):
                for x in range(m.tables[columns + 2 * ox], m.tables[columns + 2 * ox + 1]):
                    source = listed + y * op.in_width + x
                    for j in range(at(m.places, source), at(m.places, source + 1)):
                        here = pixel * op.out_pitch + at(m.entries, j) - x * (op.last - op.first)
                        m.maps[target + here] += share
                        m.maps[counts + here] += np.float32(1.0)


@kernel
def relay_spikes(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Pool spikes by maxima: a window with any spike emits one."""
    source = image * m.image_words + op.source + step * op.source_step
    target = image * m.image_words + op.target + step * op.target_step
    rows, columns = op.windows, op.windows + 2 * op.out_height
    for oy in range(op.out_height):
        for ox in range(op.out_width):
            for word in range(op.out_words):
                bits = np.uint64(0)
                for y in range(m.tables[rows + 2 * oy], m.tables[rows + 2 * oy + 1]):
                    for x in range(m.tables[columns + 2 * ox], m.tables[columns + 2 * ox + 1]):
                        bits |= m.masks[source + (y * op.in_width + x) * op.in_words + word]
                m.masks[target + (oy * op.out_width + ox) * op.out_words + word] = bits


@kernel
def pool_map(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Pool numbers by averages or maxima."""
    maps = image * m.image_numbers
    from_map, to_map = maps + op.source + step * op.source_step, maps + op.target + step * op.target_step
    rows, columns = op.windows, op.windows + 2 * op.out_height
    for oy in range(op.out_height):
        for ox in range(op.out_width):
            target = to_map + (oy * op.out_width + ox) * op.out_pitch
            for c in range(op.out_pitch):
                m.maps[target + c] = -np.inf if op.largest else 0.0
            for y in range(m.tables[rows + 2 * oy], m.tables[rows + 2 * oy + 1]):
                for x in range(m.tables[columns + 2 * ox], m.tables[columns + 2 * ox + 1]):
                    source = from_map + (y * op.in_width + x) * op.in_pitch
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
def flatten(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Flatten a map as PyTorch does: all pixels of a channel, then the next channel."""
    maps = image * m.image_numbers
    source, target = maps + op.source + step * op.source_step, maps + op.target + step * op.target_step
    pixels = op.in_height * op.in_width
    for pixel in range(pixels):
        for c in range(op.last):
            m.maps[target + c * pixels + pixel] = m.maps[source + pixel * op.in_pitch + c]


@kernel
def place(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Copy the channels of one group to their place in the whole map."""
    maps = image * m.image_numbers
    source = maps + op.source + step * op.source_step
    target = maps + op.target + step * op.target_step + op.out_first
    for pixel in range(op.out_height * op.out_width):
        for c in range(op.last):
            m.maps[target + pixel * op.out_pitch + c] = m.maps[source + pixel * op.in_pitch + c]


@kernel
def interleave(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Lay a map out pixel by pixel that comes channel by channel."""
    maps = image * m.image_numbers
    source, target = maps + op.source + step * op.source_step, maps + op.target + step * op.target_step
    pixels = op.out_height * op.out_width
    for pixel in range(pixels):
        for c in range(op.out_channels):
            m.maps[target + pixel * op.out_pitch + c] = m.maps[source + c * pixels + pixel]


@kernel
def read_out(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Add one step to the sum over time; behind the last one, scale it."""
    maps = image * m.image_numbers
    source, target = maps + op.source + step * op.source_step, maps + op.target
    for i in range(op.out_height * op.out_width * op.out_pitch):
        value = m.maps[source + i] if step == 0 else m.maps[target + i] + m.maps[source + i]
        m.maps[target + i] = value * m.constants[op.scales] if step == op.steps - 1 else value


@kernel
def write_output(op: Instruction, m: Memory, image: int, output: Floats) -> None:
    """Write a map, scaled and shifted, as the answer to one image, channel by channel."""
    source = image * m.image_numbers + op.source
    pixels = op.out_height * op.out_width
    for pixel in range(pixels):
        for c in range(op.out_channels):
            value = m.maps[source + pixel * op.out_pitch + c]
            output[c * pixels + pixel] = value * m.constants[op.scales + c] + m.constants[op.init + c]
