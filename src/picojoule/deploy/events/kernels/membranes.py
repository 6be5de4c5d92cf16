"""Membranes over time: charge, fire, reset, as `picojoule.neurons.lif` has it, operation by operation.

The currents of all steps lie among the sums; the potential stays in registers from the first step to the last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from picojoule.deploy.events.kernels.vectors import broadcast, load, store, total
from picojoule.deploy.events.program import Emission, Instruction, Memory
from picojoule.kernels.jit import cgutils, intrinsic, ir, kernel, types
from picojoule.kernels.lanes import Values, nothing

COUNTED = int(Emission.COUNTED)


def _filled(vector: ir.VectorType, number: float) -> Any:
    return ir.Constant(vector, [number] * vector.count)


def _at_least(builder: Any, numbers: Any, least: Any) -> Any:
    """Raise what is below; NaN stays."""
    return builder.select(builder.fcmp_ordered("<", numbers, least), least, numbers)


@intrinsic
def fired(typing: Any, u: Any, threshold: Any, most: Any) -> Any:
    """Compute min(max(⌊u / threshold⌋, 0), most), lane by lane, with the roundings of `lif.fire`."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        potential, threshold, most = args
        vector = u.vector
        one, none = _filled(vector, 1.0), _filled(vector, 0.0)
        floor_type = ir.FunctionType(vector, [vector])
        floor = cgutils.get_or_insert_function(builder.module, floor_type, f"llvm.floor.v{vector.count}f32")
        whole = builder.call(floor, [builder.fdiv(potential, threshold)])
        earlier = _at_least(builder, builder.fsub(whole, one), none)
        limit = builder.fsub(most, one)
        earlier = builder.select(builder.fcmp_ordered(">", earlier, limit), limit, earlier)
        left = builder.fsub(potential, builder.fmul(earlier, threshold))
        return builder.fadd(earlier, builder.select(builder.fcmp_ordered(">=", left, threshold), one, none))

    return u(u, u, u), generate


@intrinsic
def fired_once(typing: Any, u: Any, threshold: Any) -> Any:
    """Compute 1 where the potential reaches the threshold, else 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        reached = builder.fcmp_ordered(">=", args[0], args[1])
        return builder.select(reached, _filled(u.vector, 1.0), _filled(u.vector, 0.0))

    return u(u, u), generate


@intrinsic
def product(typing: Any, first: Any, second: Any) -> Any:
    """Multiply two groups of float32 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.fmul(args[0], args[1])

    return first(first, second), generate


@intrinsic
def less(typing: Any, first: Any, second: Any) -> Any:
    """Subtract the second group of float32 lanes from the first."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.fsub(args[0], args[1])

    return first(first, second), generate


@intrinsic
def silent_only(typing: Any, u: Any, spikes: Any) -> Any:
    """Keep the lanes that have not fired; the others are 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        none = _filled(u.vector, 0.0)
        return builder.select(builder.fcmp_ordered(">", args[1], none), none, args[0])

    return u(u, spikes), generate


@intrinsic
def at_least(typing: Any, numbers: Any, least: Any) -> Any:
    """Compute the larger of two groups of float32 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return _at_least(builder, args[0], args[1])

    return numbers(numbers, least), generate


@intrinsic
def bits_of(typing: Any, spikes: Any) -> Any:
    """Find which lanes are above 0: one bit each, the lowest first."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        above = builder.fcmp_ordered(">", args[0], _filled(spikes.vector, 0.0))
        bits = builder.bitcast(above, ir.IntType(spikes.count))
        return bits if spikes.count == 64 else builder.zext(bits, ir.IntType(64))

    return types.uint64(spikes), generate


def _charging(lanes: int) -> Callable[..., None]:
    """Make the loop over time for one width of vector."""

    @kernel
    def charge(op: Instruction, m: Memory, sums: int, image: int, pixel: int, block: int) -> None:
        """Take all steps of some neurons of one pixel, whose currents are among the sums."""
        threshold = broadcast(lanes, m.constants, op.membrane)
        kept = broadcast(lanes, m.constants, op.membrane + 1)
        most = broadcast(lanes, m.constants, op.membrane + 2)
        floor = broadcast(lanes, m.constants, op.membrane + 3)
        channel = block * lanes
        word = image * m.image_words + op.target + pixel * op.out_words + channel // 64
        place = image * m.image_numbers + op.target + pixel * op.out_pitch + channel
        shift = np.uint64(channel % 64)
        v = nothing(lanes)
        for step in range(op.steps):
            u = total(load(lanes, m.sums, sums + step * op.out_pitch + channel), product(v, kept))
            if op.emission == COUNTED:
                spikes = fired(u, threshold, most)
                store(m.maps, place + step * op.target_step, spikes)
            else:
                spikes = fired_once(u, threshold)
                here = word + step * op.target_step
                bits = bits_of(spikes)
                m.masks[here] = bits if shift == 0 else m.masks[here] | (bits << shift)
            v = silent_only(u, spikes) if op.zeroes else less(u, product(spikes, threshold))
            v = at_least(v, floor)

    return charge


charge_16 = _charging(16)
charge_64 = _charging(64)
