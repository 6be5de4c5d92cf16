"""A program in the making: its instructions, the constants and tables they read, and the memory they share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from picojoule.deploy.events.affine import Doubles, padded
from picojoule.deploy.events.program import INSTRUCTION, Floats, Map, Opcode, Program, SpikeMap, aligned
from picojoule.deploy.events.values import Buffer, Counts, PendingInstruction, Spikes, Value
from picojoule.deploy.events.weights import as_bytes

WeightType = Literal["float32", "int8"]
Fields = dict[str, int | Buffer]
"""Fields of an instruction, by name."""


class _SpikeOutput(NamedTuple):
    """A value that the user can ask for after a run: the spikes of a layer or of a relay."""

    name: str
    value: Value
    shape: tuple[int, ...]
    relay: bool

    def spike_map(self, time_axis: bool) -> SpikeMap:
        value = self.value
        assert isinstance(value, Spikes | Counts)
        binary, address = isinstance(value, Spikes), value.mask if isinstance(value, Spikes) else value.counts.address
        return SpikeMap(self.name, value.map, self.shape, self.relay, binary, address, value.frames, time_axis)


class ProgramBuilder:
    """What the rules of lowering add instructions to, one after the other.

    Args:
        weights: How weights that spikes feed are stored: "float32" or "int8".
        steps: Time steps T.
    """

    def __init__(self, weights: WeightType, steps: int = 1) -> None:
        self.weights = weights
        self.steps = steps
        self.instructions: list[PendingInstruction] = []
        self.constants: list[Floats] = []
        self.tables: list[int] = []
        self.mask_words = 0
        self.spike_outputs: list[_SpikeOutput] = []
        self.with_time_axis: set[str] = set()
        """Layers that emit [T, B, …] instead of [T·B, …]."""
        self.synaptic: list[str] = []
        """Layers of synapses that spikes feed; each has a counter of its operations."""

    def add(self, opcode: Opcode, **fields: int | Buffer) -> PendingInstruction:
        """Append an instruction.

        Args:
            opcode: What it does.
            **fields: Its other fields, as `program.FIELDS` names them.

        Returns:
            The instruction, to which fields may be added until `build`.
        """
        self.instructions.append(PendingInstruction({"opcode": int(opcode), **fields}))
        return self.instructions[-1]

    def buffer(self, of: Map, frames: int) -> Buffer:
        """Make a buffer for a map of numbers.

        Args:
            of: The map.
            frames: Time steps that differ.

        Returns:
            The buffer, without an address.
        """
        return Buffer(of.pixels * of.pitch, frames)

    def spikes(self, of: Map) -> Spikes:
        """Reserve memory for a map of binary spikes in every time step.

        Args:
            of: The map.

        Returns:
            The spikes.
        """
        spikes = Spikes(of, self.mask_words, self.steps)
        self.mask_words += self.steps * of.pixels * of.words
        return spikes

    def constant(self, values: Doubles | Floats) -> int:
        """Store numbers among the constants, rounded to float32, at the beginning of a cache line.

        Args:
            values: The numbers, of any shape.

        Returns:
            Where they begin.
        """
        address = sum(map(len, self.constants))
        with np.errstate(over="ignore"):
            single = values.reshape(-1).astype(np.float32, copy=False)
        self.constants.append(np.pad(single, (0, -len(single) % 16)))
        return address

    def table(self, values: Sequence[int]) -> int:
        """Store whole numbers among the tables.

        Args:
            values: The numbers.

        Returns:
            Where they begin.
        """
        self.tables.extend(values)
        return len(self.tables) - len(values)

    def add_spike_output(
        self, name: str, value: Value, shape: tuple[int, ...], instruction: PendingInstruction, *, relay: bool
    ) -> Value:
        """Make a value one whose spikes are counted and can be looked at after a run.

        Args:
            name: The layer that emits it.
            value: The spikes, or counts of spikes.
            shape: The shape that the network shows, with its batch axis.
            instruction: What writes the value.
            relay: Whether the layer is a max pool and has no neurons of its own.

        Returns:
            The value itself.
        """
        instruction.fields["emitter"] = len(self.spike_outputs)
        self.spike_outputs.append(_SpikeOutput(name, value, shape[1:], relay))
        return value

    def build(self, input_shape: tuple[int, ...], output_shape: tuple[int, ...]) -> Program:
        """Give every weight and buffer its address and make the program.

        Args:
            input_shape: The shape of one sample.
            output_shape: The shape of one answer.

        Returns:
            The program.
        """
        byte_weights = self._store_weights()
        map_numbers = _assign_addresses(self.instructions)
        constants = aligned(sum(map(len, self.constants)))
        np.concatenate(self.constants, out=constants)
        return Program(
            instructions=_encoded(self.instructions),
            constants=constants,
            bytes=byte_weights,
            tables=np.array(self.tables, dtype=np.int32),
            input_shape=input_shape,
            output_shape=output_shape,
            spiking=tuple(output.spike_map(output.name in self.with_time_axis) for output in self.spike_outputs),
            synaptic=tuple(self.synaptic),
            mask_words=self.mask_words,
            map_numbers=map_numbers,
            steps=self.steps,
        )

    def _store_weights(self) -> NDArray[np.int8]:
        """Put weights and biases among the constants; return those that are stored as bytes."""
        byte_weights: list[NDArray[np.int8]] = []
        for instruction in self.instructions:
            rows, fields = instruction.rows, instruction.fields
            if rows is None:
                continue
            blocks, _, lanes = rows.shape
            fields["init"] = self.constant(padded(instruction.init, blocks * lanes))
            if self.weights == "int8" and (fields["spiking"] or fields.get("repeated")):
                fields["streamed"] = 0
                rounded, scales = as_bytes(rows)
                fields["bytes"] = sum(map(len, byte_weights))
                fields["scales"] = self.constant(scales.astype(np.float64) * instruction.scale)
                byte_weights.append(rounded.reshape(-1))
            else:
                streamed = fields["streamed"] and not fields["dense"]
                fields["weights"] = self.constant(rows.transpose(1, 0, 2) if streamed else rows)
        stored = aligned(-(-sum(map(len, byte_weights)) // 4)).view(np.int8)
        if byte_weights:
            np.concatenate(byte_weights, out=stored)
        return stored


def reads(x: Value, first: int = 0, last: int | None = None) -> Fields:
    """Say where an instruction finds its input.

    Args:
        x: The input.
        first: The first channel that is read.
        last: The channel behind the last one; None for all.

    Returns:
        Fields of the instruction.
    """
    place: Fields = {"spiking": 0, "dense": 0}
    if isinstance(x, Spikes):
        place |= {"source": x.mask, "source_step": x.step, "spiking": 1}
    elif isinstance(x, Counts):
        place |= {"source": x.values, "source_step": x.values.step, "counts": x.counts}
    else:
        strides = (x.map.pixels, 1) if x.planar else (1, x.map.pitch)
        place |= {"source": x.numbers, "source_step": x.numbers.step, "dense": 1}
        place |= {"channel_step": strides[0], "pixel_step": strides[1]}
    size = {"in_height": x.map.height, "in_width": x.map.width, "in_pitch": x.map.pitch, "in_words": x.map.words}
    return {**place, **size, "first": first, "last": x.map.channels if last is None else last}


def writes(target: Map, to: Buffer | Spikes) -> Fields:
    """Say where an instruction leaves its output.

    Args:
        target: The output's map.
        to: Its buffer, or its spikes.

    Returns:
        Fields of the instruction.
    """
    place: Fields = {"target": to if isinstance(to, Buffer) else to.mask, "target_step": to.step, "steps": to.frames}
    size = {"out_height": target.height, "out_width": target.width, "out_channels": target.channels}
    return {**place, **size, "out_pitch": target.pitch, "out_words": target.words}


def _encoded(pending: list[PendingInstruction]) -> NDArray[np.void]:
    """Write instructions as records, with -1 for what they do not use."""
    instructions = np.zeros(len(pending), dtype=INSTRUCTION)
    for name in ("counts", "other", "bytes", "fan_table", "counter", "emitter"):
        instructions[name] = -1
    instructions["steps"] = 1
    for record, instruction in zip(instructions, pending, strict=True):
        for name, value in instruction.fields.items():
            record[name] = value.address if isinstance(value, Buffer) else value
    return instructions


def _assign_addresses(instructions: list[PendingInstruction]) -> int:
    """Give every buffer an address, and use memory again as soon as nobody reads what it held; return its size."""
    last = {id(buffer): (n, buffer) for n, instruction in enumerate(instructions) for buffer in instruction.buffers}
    free: list[tuple[int, int]] = []  # address, size
    end = 0
    for n, instruction in enumerate(instructions):
        for buffer in instruction.buffers:
            if buffer.address < 0:
                fitting = [hole for hole in free if hole[1] >= buffer.size]
                if fitting:
                    hole = min(fitting, key=lambda hole: hole[1])
                    free.remove(hole)
                    free.append((hole[0] + buffer.size, hole[1] - buffer.size))
                    buffer.address = hole[0]
                else:
                    buffer.address, end = end, end + buffer.size
        for until, buffer in last.values():
            if until == n and not buffer.live_out:
                free.append((buffer.address, buffer.size))
    return end
