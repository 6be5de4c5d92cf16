"""Instructions between layers of synapses: from maps of spikes and numbers to maps.

Each takes the instruction and the memory that it works on.
"""

from __future__ import annotations

import numpy as np

from picojoule.deploy.events.kernels.spike_lists import list_spikes
from picojoule.deploy.events.kernels.vectors import at, load, reaches, times
from picojoule.deploy.events.program import Floats, Instruction, Memory
from picojoule.kernels.jit import kernel


@kernel
def fire(op: Instruction, m: Memory) -> None:
    """Fire where sign · current reaches the threshold of its channel."""
    for pixel in range(op.out_height * op.out_width):
        for word in range(op.out_words):
            spikes = np.uint64(0)
            for c in range(word * 64, min(word * 64 + 64, op.out_pitch), 16):
                current = load(16, m.maps, op.source + pixel * op.out_pitch + c)
                bits = reaches(times(current, m.constants, op.scales + c), m.constants, op.threshold + c)
                spikes |= bits << np.uint64(c - word * 64)
            m.masks[op.target + pixel * op.out_words + word] = spikes


@kernel
def combine(op: Instruction, m: Memory) -> None:
    """Compute a·x + b·y + c, channel by channel; y may be missing."""
    a, b = op.scales, op.weights
    for pixel in range(op.out_height * op.out_width):
        here = pixel * op.out_pitch
        for c in range(op.out_pitch):
            value = m.maps[op.source + here + c] * m.constants[a + c] + m.constants[op.init + c]
            if op.other >= 0:
                value += m.maps[op.other + here + c] * m.constants[b + c]
            m.maps[op.target + here + c] = value


@kernel
def unpack(op: Instruction, m: Memory) -> None:
    """Write binary spikes as the numbers 0 and 1."""
    for pixel in range(op.out_height * op.out_width):
        for c in range(op.out_channels):
            bits = m.masks[op.source + pixel * op.out_words + c // 64] >> np.uint64(c % 64)
            m.maps[op.target + pixel * op.out_pitch + c] = np.float32(bits & np.uint64(1))


@kernel
def sum_spikes(op: Instruction, m: Memory) -> None:
    """Pool spikes by averages: the target gets what the pool passes on, the counts the spikes in each window."""
    list_spikes(op, m)
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
def relay_spikes(op: Instruction, m: Memory) -> None:
    """Pool spikes by maxima: a window with any spike emits one."""
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
def pool_map(op: Instruction, m: Memory) -> None:
    """Pool numbers by averages or maxima."""
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
def flatten(op: Instruction, m: Memory) -> None:
    """Flatten a map as PyTorch does: all pixels of a channel, then the next channel."""
    pixels = op.in_height * op.in_width
    for pixel in range(pixels):
        for c in range(op.last):
            m.maps[op.target + c * pixels + pixel] = m.maps[op.source + pixel * op.in_pitch + c]


@kernel
def place(op: Instruction, m: Memory) -> None:
    """Copy the channels of one group to their place in the whole map."""
    for pixel in range(op.out_height * op.out_width):
        for c in range(op.last):
            m.maps[op.target + pixel * op.out_pitch + op.out_first + c] = m.maps[op.source + pixel * op.in_pitch + c]


@kernel
def interleave(op: Instruction, m: Memory) -> None:
    """Lay a map out pixel by pixel that comes channel by channel."""
    pixels = op.out_height * op.out_width
    for pixel in range(pixels):
        for c in range(op.out_channels):
            m.maps[op.target + pixel * op.out_pitch + c] = m.maps[op.source + c * pixels + pixel]


@kernel
def write_output(op: Instruction, m: Memory, output: Floats) -> None:
    """Write a map, scaled and shifted, as the answer to one image, channel by channel."""
    pixels = op.out_height * op.out_width
    for pixel in range(pixels):
        for c in range(op.out_channels):
            value = m.maps[op.source + pixel * op.out_pitch + c]
            output[c * pixels + pixel] = value * m.constants[op.scales + c] + m.constants[op.init + c]
