"""The program itself: one operation after the other, one image after the other, with no Python in between."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.deploy.events.kernels.maps import (
    combine,
    fire,
    flatten,
    give,
    interleave,
    place,
    pool_map,
    relay_spikes,
    spread,
    sum_spikes,
)
from picojoule.deploy.events.kernels.synapses import synapses
from picojoule.deploy.events.kernels.vectors import ones
from picojoule.deploy.events.program import Floats, Kind, Memory, Operation
from picojoule.kernels.jit import compiled, kernel, source_digest

Ints = NDArray[np.int32]
Words = NDArray[np.uint64]

INPUT, INTERLEAVE, SYNAPSES = (int(k) for k in (Kind.INPUT, Kind.INTERLEAVE, Kind.SYNAPSES))
FIRE, COMBINE = int(Kind.FIRE), int(Kind.COMBINE)
SPREAD, FLATTEN, PLACE, OUTPUT = (int(k) for k in (Kind.SPREAD, Kind.FLATTEN, Kind.PLACE, Kind.OUTPUT))
SUM_SPIKES, RELAY_SPIKES, POOL_MAP = (int(k) for k in (Kind.SUM_SPIKES, Kind.RELAY_SPIKES, Kind.POOL_MAP))

SOURCES = (
    "picojoule.deploy.events.kernels.vectors",
    "picojoule.deploy.events.kernels.spike_lists",
    "picojoule.deploy.events.kernels.maps",
    "picojoule.deploy.events.kernels.synapses",
    "picojoule.deploy.events.program",
)
"""What the program is made of, beside this file."""


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
                    reached = synapses(op, m)
                    if op.counter >= 0:
                        synops[n, op.counter] += reached
                elif op.kind == FIRE:
                    fire(op, m)
                elif op.kind == COMBINE:
                    combine(op, m)
                elif op.kind == SUM_SPIKES:
                    sum_spikes(op, m)
                elif op.kind == RELAY_SPIKES:
                    relay_spikes(op, m)
                elif op.kind == POOL_MAP:
                    pool_map(op, m)
                elif op.kind == SPREAD:
                    spread(op, m)
                elif op.kind == FLATTEN:
                    flatten(op, m)
                elif op.kind == PLACE:
                    place(op, m)
                elif op.kind == INPUT:
                    for c in range(images.shape[1]):
                        m.maps[op.target + c] = images[n, c]
                elif op.kind == INTERLEAVE:
                    interleave(op, m)
                elif op.kind == OUTPUT:
                    give(op, m, outputs[n])
                if op.emitter >= 0:
                    spikes[n, op.emitter] = _emitted(op, m)

    return execute


execute = _executing(source_digest(*SOURCES))
