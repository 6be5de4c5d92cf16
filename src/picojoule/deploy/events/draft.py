"""A program in the making: its operations, the constants and tables they read, and the memory they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from picojoule.deploy.events.folding import Doubles, as_bytes, padded
from picojoule.deploy.events.program import OPERATION, Floats, Kind, Map, Program, SpikeMap, aligned
from picojoule.deploy.events.values import Buffer, Counts, Spikes, Step, Value

Weights = Literal["float32", "int8"]


class Draft:
    """What rules add to, operation by operation."""

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.steps: list[Step] = []
        self.constants: list[np.ndarray[Any, np.dtype[np.float32]]] = []
        self.tables: list[int] = []
        self.mask_words = 0
        self.emitted: list[tuple[str, Value, tuple[int, ...], bool]] = []
        self.synaptic: list[str] = []

    def step(self, kind: Kind, **fields: int | Buffer) -> Step:
        self.steps.append(Step({"kind": int(kind), **fields}))
        return self.steps[-1]

    def buffer(self, of: Map) -> Buffer:
        return Buffer(of.pixels * of.pitch)

    def mask(self, of: Map) -> int:
        self.mask_words += of.pixels * of.words
        return self.mask_words - of.pixels * of.words

    def constant(self, values: Doubles | Floats) -> int:
        """The place of some numbers among the constants, at the beginning of a cache line."""
        at = sum(map(len, self.constants))
        with np.errstate(over="ignore"):
            single = values.reshape(-1).astype(np.float32, copy=False)
        self.constants.append(np.pad(single, (0, -len(single) % 16)))
        return at

    def table(self, values: Sequence[int]) -> int:
        self.tables.extend(values)
        return len(self.tables) - len(values)

    def emits(self, name: str, value: Value, shape: tuple[int, ...], step: Step, *, relay: bool) -> Value:
        step.fields["emitter"] = len(self.emitted)
        self.emitted.append((name, value, shape[1:], relay))
        return value

    def finished(self, input_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> Program:
        narrow: list[np.ndarray[Any, np.dtype[np.int8]]] = []
        for step in self.steps:
            if step.rows is None:
                continue
            blocks, _, lanes = step.rows.shape
            step.fields["init"] = self.constant(padded(step.init, blocks * lanes))
            if self.weights == "int8" and (step.fields["spiking"] or step.fields.get("repeated")):
                step.fields["streamed"] = 0
                bytes, scales = as_bytes(step.rows)
                step.fields["bytes"] = sum(map(len, narrow))
                step.fields["scales"] = self.constant(scales.astype(np.float64) * step.scale)
                narrow.append(bytes.reshape(-1))
            else:
                streamed = step.fields["streamed"] and not step.fields["dense"]
                step.fields["weights"] = self.constant(step.rows.transpose(1, 0, 2) if streamed else step.rows)
        numbers = _allot(self.steps)
        operations = np.zeros(len(self.steps), dtype=OPERATION)
        for name in ("counts", "other", "bytes", "fan_table", "counter", "emitter"):
            operations[name] = -1
        for operation, step in zip(operations, self.steps, strict=True):
            for name, value in step.fields.items():
                operation[name] = value.at if isinstance(value, Buffer) else value
        constants = aligned(sum(map(len, self.constants)))
        np.concatenate(self.constants, out=constants)
        return Program(
            operations=operations,
            constants=constants,
            bytes=np.concatenate(narrow) if narrow else np.zeros(0, dtype=np.int8),
            tables=np.array(self.tables, dtype=np.int32),
            input_shape=input_shape,
            output_shape=output_shape,
            spiking=tuple(
                SpikeMap(name, x.map, shape, relay, isinstance(x, Spikes), x.mask if isinstance(x, Spikes) else _at(x))
                for name, x, shape, relay in self.emitted
            ),
            synaptic=tuple(self.synaptic),
            mask_words=self.mask_words,
            map_numbers=numbers,
        )


def reads(x: Value, first: int = 0, last: int | None = None) -> dict[str, int | Buffer]:
    """Where an operation finds its input: all channels, or one group of them."""
    place: dict[str, int | Buffer] = {"spiking": 0, "dense": 0}
    if isinstance(x, Spikes):
        place |= {"source": x.mask, "spiking": 1}
    elif isinstance(x, Counts):
        place |= {"source": x.values, "counts": x.counts}
    else:
        steps = (x.map.pixels, 1) if x.planar else (1, x.map.pitch)
        place |= {"source": x.numbers, "dense": 1, "channel_step": steps[0], "pixel_step": steps[1]}
    size = {"in_height": x.map.height, "in_width": x.map.width, "in_pitch": x.map.pitch, "in_words": x.map.words}
    return {**place, **size, "first": first, "last": x.map.channels if last is None else last}


def writes(target: Map, at: int | Buffer) -> dict[str, int | Buffer]:
    """Where it leaves its output."""
    size = {"out_height": target.height, "out_width": target.width, "out_channels": target.channels}
    return {"target": at, **size, "out_pitch": target.pitch, "out_words": target.words}


def _allot(steps: list[Step]) -> int:
    """Give every buffer a place; memory is used again as soon as nobody reads what it held."""
    last = {id(buffer): (number, buffer) for number, step in enumerate(steps) for buffer in step.buffers}
    free: list[tuple[int, int]] = []  # place, size
    end = 0
    for number, step in enumerate(steps):
        for buffer in step.buffers:
            if buffer.at < 0:
                fitting = [hole for hole in free if hole[1] >= buffer.size]
                if fitting:
                    hole = min(fitting, key=lambda hole: hole[1])
                    free.remove(hole)
                    free.append((hole[0] + buffer.size, hole[1] - buffer.size))
                    buffer.at = hole[0]
                else:
                    buffer.at, end = end, end + buffer.size
        for until, buffer in last.values():
            if until == number and not buffer.kept:
                free.append((buffer.at, buffer.size))
    return end


def _at(x: Value) -> int:
    assert isinstance(x, Counts)
    return x.counts.at
