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
    relay_spikes,
    sum_spikes,
    unpack,
    write_output,
)
from picojoule.deploy.events.kernels.synapses import synapses
from picojoule.deploy.events.program import Floats, Instruction, Memory, Opcode
from picojoule.kernels.jit import compiled, kernel, source_digest
from picojoule.kernels.lanes import ones

Ints = NDArray[np.int32]
Words = NDArray[np.uint64]

INPUT, INTERLEAVE, SYNAPSES = (int(k) for k in (Opcode.INPUT, Opcode.INTERLEAVE, Opcode.SYNAPSES))
FIRE, COMBINE = int(Opcode.FIRE), int(Opcode.COMBINE)
UNPACK, FLATTEN, PLACE, OUTPUT = (int(k) for k in (Opcode.UNPACK, Opcode.FLATTEN, Opcode.PLACE, Opcode.OUTPUT))
SUM_SPIKES, RELAY_SPIKES, POOL_MAP = (int(k) for k in (Opcode.SUM_SPIKES, Opcode.RELAY_SPIKES, Opcode.POOL_MAP))

SOURCES = (
    "picojoule.kernels.lanes",
    "picojoule.deploy.events.kernels.vectors",
    "picojoule.deploy.events.kernels.spike_lists",
    "picojoule.deploy.events.kernels.maps",
    "picojoule.deploy.events.kernels.synapses",
    "picojoule.deploy.events.program",
)
"""The modules that the interpreter is made of, beside this file."""


@kernel
def _emitted(op: Instruction, m: Memory) -> int:
    """Count the spikes that an instruction has left behind."""
    count = 0
    if op.opcode == POOL_MAP:
        for pixel in range(op.out_height * op.out_width):
            for c in range(op.out_channels):
                count += int(m.maps[op.target + pixel * op.out_pitch + c])
    else:
        for i in range(op.out_height * op.out_width * op.out_words):
            count += ones(m.masks[op.target + i])
    return count


def _executing(sources: int) -> Callable[..., None]:
    """Make the compiled interpreter, kept in Numba's cache under a number that stands for the files it is made of."""

    @compiled
    def execute(
        instructions: NDArray[Any],
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
            for i in range(len(instructions)):
                op = instructions[i]
                if op.opcode == SYNAPSES:
                    reached = synapses(op, m)
                    if op.counter >= 0:
                        synops[n, op.counter] += reached
                elif op.opcode == FIRE:
                    fire(op, m)
                elif op.opcode == COMBINE:
                    combine(op, m)
                elif op.opcode == SUM_SPIKES:
                    sum_spikes(op, m)
                elif op.opcode == RELAY_SPIKES:
                    relay_spikes(op, m)
                elif op.opcode == POOL_MAP:
                    pool_map(op, m)
                elif op.opcode == UNPACK:
                    unpack(op, m)
                elif op.opcode == FLATTEN:
                    flatten(op, m)
                elif op.opcode == PLACE:
                    place(op, m)
                elif op.opcode == INPUT:
                    for c in range(images.shape[1]):
                        m.maps[op.target + c] = images[n, c]
                elif op.opcode == INTERLEAVE:
                    interleave(op, m)
                elif op.opcode == OUTPUT:
                    write_output(op, m, outputs[n])
                if op.emitter >= 0:
                    spikes[n, op.emitter] = _emitted(op, m)

    return execute


execute = _executing(source_digest(*SOURCES))
