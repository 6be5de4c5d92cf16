"""The interpreter of programs: one instruction after the other, one image after the other, with no Python between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.deploy.events.kernels.maps import (
    combine,
    fire,
    flatten,
    interleave,
    place,
    pool_map,
    read_out,
    relay_spikes,
    sum_spikes,
    unpack,
    write_output,
)
from picojoule.deploy.events.kernels.spike_lists import list_spikes
from picojoule.deploy.events.kernels.synapses import synapses
from picojoule.deploy.events.program import Emission, Floats, Instruction, Memory, Opcode
from picojoule.kernels.jit import array_at, compiled, kernel, source_digest
from picojoule.kernels.lanes import ones

INPUT, INTERLEAVE, SYNAPSES = (int(k) for k in (Opcode.INPUT, Opcode.INTERLEAVE, Opcode.SYNAPSES))
FIRE, COMBINE, READ_OUT = (int(k) for k in (Opcode.FIRE, Opcode.COMBINE, Opcode.READ_OUT))
UNPACK, FLATTEN, PLACE, OUTPUT = (int(k) for k in (Opcode.UNPACK, Opcode.FLATTEN, Opcode.PLACE, Opcode.OUTPUT))
SUM_SPIKES, RELAY_SPIKES, POOL_MAP = (int(k) for k in (Opcode.SUM_SPIKES, Opcode.RELAY_SPIKES, Opcode.POOL_MAP))
COUNTED = int(Emission.COUNTED)
FLOAT, BYTE, INT, LONG, WORD = np.float32, np.int8, np.int32, np.int64, np.uint64

SOURCES = (
    "picojoule.kernels.lanes",
    "picojoule.deploy.events.kernels.vectors",
    "picojoule.deploy.events.kernels.membranes",
    "picojoule.deploy.events.kernels.spike_lists",
    "picojoule.deploy.events.kernels.maps",
    "picojoule.deploy.events.kernels.synapses",
    "picojoule.deploy.events.program",
)
"""The modules that the interpreter is made of, beside this file."""


@kernel
def _emitted(op: Instruction, m: Memory, image: int) -> int:
    """Count the spikes of one image that an instruction has left behind, in all steps."""
    count = 0
    for step in range(op.steps):
        if op.opcode == POOL_MAP or op.emission == COUNTED:
            target = image * m.image_numbers + op.target + step * op.target_step
            for pixel in range(op.out_height * op.out_width):
                for c in range(op.out_channels):
                    count += int(m.maps[target + pixel * op.out_pitch + c])
        else:
            target = image * m.image_words + op.target + step * op.target_step
            for i in range(target, target + op.out_height * op.out_width * op.out_words):
                count += ones(m.masks[i])
    return count


@kernel
def _change(op: Instruction, m: Memory, image: int, step: int) -> None:
    """Run an instruction that takes one step of one image at a time."""
    if op.opcode == COMBINE:
        combine(op, m, image, step)
    elif op.opcode == SUM_SPIKES:
        sum_spikes(op, m, image, step)
    elif op.opcode == RELAY_SPIKES:
        relay_spikes(op, m, image, step)
    elif op.opcode == POOL_MAP:
        pool_map(op, m, image, step)
    elif op.opcode == UNPACK:
        unpack(op, m, image, step)
    elif op.opcode == FLATTEN:
        flatten(op, m, image, step)
    elif op.opcode == PLACE:
        place(op, m, image, step)
    elif op.opcode == INTERLEAVE:
        interleave(op, m, image, step)
    elif op.opcode == READ_OUT:
        read_out(op, m, image, step)


def _executing(sources: int) -> Callable[..., None]:
    """Make the compiled interpreter, kept in Numba's cache under a number that stands for the files it is made of."""

    @compiled
    def execute(
        instructions: NDArray[Any],
        images: Floats,
        outputs: Floats,
        spikes: NDArray[np.int64],
        synops: NDArray[np.int64],
        addresses: NDArray[np.int64],
    ) -> None:
        """Answer every image, each a flat row, into `outputs`, and count its spikes and synaptic operations.

        As many images as there is room for go through the network together, layer by layer. The memory comes as what
        `Memory.addresses` gave, because Numba takes microseconds to look into as many arrays of Python's.
        """
        if not sources:
            return
        m = Memory(
            array_at(FLOAT, addresses[0], addresses[1]),
            array_at(BYTE, addresses[2], addresses[3]),
            array_at(INT, addresses[4], addresses[5]),
            array_at(WORD, addresses[6], addresses[7]),
            array_at(FLOAT, addresses[8], addresses[9]),
            addresses[10],
            addresses[12],
            addresses[14],
            array_at(INT, addresses[16], addresses[17]),
            array_at(INT, addresses[18], addresses[19]),
            array_at(FLOAT, addresses[20], addresses[21]),
            array_at(INT, addresses[22], addresses[23]),
            array_at(INT, addresses[24], addresses[25]),
            array_at(INT, addresses[26], addresses[27]),
            array_at(INT, addresses[28], addresses[29]),
            array_at(INT, addresses[30], addresses[31]),
            array_at(INT, addresses[32], addresses[33]),
            array_at(FLOAT, addresses[34], addresses[35]),
            array_at(FLOAT, addresses[36], addresses[37]),
            array_at(LONG, addresses[38], addresses[39]),
        )
        room = m.images
        for first in range(0, len(images), room):
            count = min(room, len(images) - first)
            for i in range(len(instructions)):
                op = instructions[i]
                if op.opcode == SYNAPSES:
                    synapses(op, m, count)
                    if op.counter >= 0:
                        for image in range(count):
                            synops[first + image, op.counter] += m.reached[image]
                else:
                    for image in range(count):
                        if op.opcode == FIRE:
                            fire(op, m, image)
                        elif op.opcode == INPUT:
                            target = image * m.image_numbers + op.target
                            for c in range(images.shape[1]):
                                m.maps[target + c] = images[first + image, c]
                        elif op.opcode == OUTPUT:
                            write_output(op, m, image, outputs[first + image])
                        else:
                            if op.opcode == SUM_SPIKES and image == 0:
                                list_spikes(op, m, count)
                            for step in range(op.steps):
                                _change(op, m, image, step)
                if op.emitter >= 0:
                    for image in range(count):
                        spikes[first + image, op.emitter] = _emitted(op, m, image)

    return execute


execute = _executing(source_digest(*SOURCES))
