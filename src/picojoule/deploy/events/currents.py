"""Rules of what stands between synapses and neurons: currents are scaled, added, reshaped and read out.

What only scales or shifts is carried along (`Affine`) until it meets a threshold, or a sum. The rules of layers share
their arguments with all others: see `lowering`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from picojoule.deploy.events.affine import Affine, doubles, padded
from picojoule.deploy.events.builder import Fields, ProgramBuilder, reads, writes
from picojoule.deploy.events.program import Map, Opcode
from picojoule.deploy.events.values import (
    Analog,
    Buffer,
    Counts,
    PendingInstruction,
    Spikes,
    Value,
    describe,
    map_of,
    value_of,
)
from picojoule.deploy.graph.batch_norm import Affine as ScaledAndShifted
from picojoule.deploy.graph.refusal import Unsupported
from picojoule.kernels.torch_private import BatchNorm


def batch_norm(builder: ProgramBuilder, name: str, norm: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    """Lower a batch norm of currents, or what a conversion makes of one: a scale and a shift that are carried along.

    Raises:
        Unsupported: If it takes spikes, or normalises by the statistics of each batch.
    """
    assert isinstance(norm, BatchNorm | ScaledAndShifted)
    if not isinstance(x, Analog):
        raise Unsupported("put it between synapses and a spiking layer", because=f"which stands behind {describe(x)}")
    after = (
        Affine.of_batch_norm(norm) if isinstance(norm, BatchNorm) else Affine(doubles(norm.scale), doubles(norm.shift))
    )
    return replace(x, affine=x.affine.then(after))


def reshape(builder: ProgramBuilder, given: Any, shape: tuple[int, ...]) -> Value:
    """Lower a flattening, which costs nothing for spikes: the next weights are read in another order.

    Raises:
        Unsupported: If it is another change of shape.
    """
    x = value_of(given)
    if map_of(shape) == x.map:
        return x
    if shape[1:] != (x.map.neurons,):
        raise Unsupported("flatten to [batch, features] or leave the shape as it is")
    if not isinstance(x, Analog):
        return x  # read through the next weights
    x = materialized(builder, x)
    flat = Map(x.map.neurons)
    if x.planar:
        return Analog(flat, x.numbers, Affine.identity(flat.channels), from_input=x.from_input)
    target = builder.buffer(flat, x.frames)
    fields = {**writes(flat, target), **reads(x)}
    builder.add(Opcode.FLATTEN, **fields)
    return Analog(flat, target, Affine.identity(flat.channels), from_input=x.from_input)


def materialized(builder: ProgramBuilder, x: Analog) -> Analog:
    """Carry out the scale and shift that a current carries along.

    Args:
        builder: The program.
        x: The current.

    Returns:
        The same current with nothing left to be done to its numbers.
    """
    if x.affine.is_identity:
        return x
    if x.producer is not None and takes_scales(x.producer, x.affine):
        x.producer.scale_outputs(x.affine.gain, x.affine.shift)
        return replace(x, affine=Affine.identity(x.map.channels))
    return combined(builder, x, None)


def channels_last(builder: ProgramBuilder, x: Analog) -> Analog:
    """Lay a current out pixel by pixel.

    Args:
        builder: The program.
        x: The current, perhaps channel by channel.

    Returns:
        The same current, each pixel's channels side by side.
    """
    if not x.planar:
        return x
    target = builder.buffer(x.map, x.frames)
    builder.add(Opcode.INTERLEAVE, **found(x), **writes(x.map, target))
    return replace(x, numbers=target, planar=False)


def combined(builder: ProgramBuilder, x: Analog, y: Analog | None) -> Analog:
    """Add two currents, or carry out the scale and shift of one.

    Args:
        builder: The program.
        x: A current.
        y: Another one of the same map, or None.

    Returns:
        Their sum.
    """
    x = channels_last(builder, x)
    target = builder.buffer(x.map, x.frames if y is None else max(x.frames, y.frames))
    shift = x.affine.shift if y is None else x.affine.shift + y.affine.shift
    builder.add(
        Opcode.COMBINE,
        other=-1 if y is None else y.numbers,
        other_step=0 if y is None else y.numbers.step,
        scales=builder.constant(padded(x.affine.gain, x.map.pitch)),
        weights=-1 if y is None else builder.constant(padded(y.affine.gain, x.map.pitch)),
        init=builder.constant(padded(shift, x.map.pitch)),
        **found(x),
        **writes(x.map, target),
    )
    from_input = x.from_input and (y is None or y.from_input)
    return Analog(x.map, target, Affine.identity(x.map.channels), from_input=from_input)


def read_out(builder: ProgramBuilder, given: Any, *, summed: bool) -> Value:
    """Lower the mean, or the sum, over all time steps.

    Args:
        builder: The program.
        given: The currents of all steps.
        summed: Whether to take the sum.

    Returns:
        One current.

    Raises:
        Unsupported: If it takes anything but currents.
    """
    x = as_analog(builder, value_of(given))
    if x.frames == 1:  # the same in all steps
        return scaled(x, float(builder.steps)) if summed else x
    x = materialized(builder, x)
    target = builder.buffer(x.map, 1)
    share = builder.constant(np.array([1.0 if summed else 1 / builder.steps]))
    fields = {**found(x), **writes(x.map, target), "steps": x.frames}
    builder.add(Opcode.READ_OUT, **fields, scales=share)
    return Analog(x.map, target, Affine.identity(x.map.channels))


def scaled(x: Any, factor: float) -> Value:
    """Lower a product with a constant, which is carried along.

    Args:
        x: The current.
        factor: The constant.

    Returns:
        The scaled current.

    Raises:
        Unsupported: If it scales anything but currents.
    """
    if not isinstance(x, Analog):
        raise Unsupported("put the scale into the weights", because=f"which scales {describe(x)}")
    return replace(x, affine=x.affine.then(Affine(np.array(factor), np.array(0.0))))


def add(builder: ProgramBuilder, x: Any, y: Any) -> Value:
    """Lower a sum: of currents, of spikes, of both, or with a constant.

    Args:
        builder: The program.
        x: A value or a number.
        y: A value or a number.

    Returns:
        The sum.

    Raises:
        Unsupported: If a number is added to spikes, or the maps differ.
    """
    if isinstance(x, int | float) or isinstance(y, int | float):
        number, x = (x, y) if isinstance(x, int | float) else (y, x)
        if not isinstance(x, Analog):
            raise Unsupported("make it a bias", because=f"which adds a number to {describe(x)}")
        return replace(x, affine=x.affine.then(Affine(np.array(1.0), np.array(float(number)))))
    x, y = value_of(x), value_of(y)
    if x.map != y.map:
        raise Unsupported("add values of the same shape")
    if not isinstance(x, Analog) and not isinstance(y, Analog):
        return _summed(builder, as_counts(builder, x), as_counts(builder, y))
    x, y = as_analog(builder, x), as_analog(builder, y)
    for fresh, other in ((x, y), (y, x)):
        if _takes_in(builder, fresh, other):
            fresh = materialized(builder, fresh)
            assert fresh.producer is not None  # nothing was added to it yet
            fresh.producer.fields |= {"other": other.numbers, "other_step": other.numbers.step}
            return fresh
    return combined(builder, x, y)


def _takes_in(builder: ProgramBuilder, fresh: Analog, other: Analog) -> bool:
    """Say whether synapses can begin with the other operand instead of zero: it has to be there before they run."""
    if fresh.producer is None or "other" in fresh.producer.fields or not other.affine.is_identity:
        return False
    if fresh.frames < other.frames:
        return False
    here = builder.instructions.index(fresh.producer)
    return not any(other.numbers is later.fields.get("target") for later in builder.instructions[here:])


def as_counts(builder: ProgramBuilder, x: Spikes | Counts) -> Counts:
    """Make numbers of binary spikes.

    Args:
        builder: The program.
        x: Spikes, or numbers made of them already.

    Returns:
        The numbers.
    """
    if isinstance(x, Counts):
        return x
    target = builder.buffer(x.map, x.frames)
    builder.add(Opcode.UNPACK, source=x.mask, source_step=x.step, **writes(x.map, target))
    return Counts(x.map, target, target, scale=1.0, most=1)


def as_analog(builder: ProgramBuilder, x: Value) -> Analog:
    """Make a current of any value: spikes that are added to currents are currents.

    Args:
        builder: The program.
        x: The value.

    Returns:
        The current, pixel by pixel.
    """
    if isinstance(x, Analog):
        return channels_last(builder, x)
    return Analog(x.map, as_counts(builder, x).values, Affine.identity(x.map.channels))


def _summed(builder: ProgramBuilder, x: Counts, y: Counts) -> Counts:
    def add(a: Buffer, b: Buffer) -> Buffer:
        identity = Affine.identity(x.map.channels)
        return combined(builder, Analog(x.map, a, identity), Analog(x.map, b, identity)).numbers

    values = add(x.values, y.values)
    whole = x.values is x.counts and y.values is y.counts
    counts = values if whole else add(x.counts, y.counts)
    return Counts(x.map, values, counts, x.scale if x.scale == y.scale else None, x.most + y.most)


def found(x: Analog) -> Fields:
    """Say where an instruction finds a current that lies pixel by pixel.

    Args:
        x: The current.

    Returns:
        Fields of the instruction.
    """
    return {"source": x.numbers, "source_step": x.numbers.step}


def takes_scales(synapses: PendingInstruction, affine: Affine) -> bool:
    """Say whether weights can take in a scale and a shift: what they are added to would need them as well.

    Args:
        synapses: The instruction.
        affine: The scale and the shift.

    Returns:
        Whether nothing is added to them, or nothing is to be done.
    """
    return "other" not in synapses.fields or affine.is_identity
