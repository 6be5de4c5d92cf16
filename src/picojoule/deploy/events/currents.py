"""Rules of what stands between synapses and neurons: currents are scaled, added, reshaped, and fire.

What only scales or shifts is carried along (`Affine`) until it meets a threshold, or a sum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import nn

from picojoule.deploy.events.draft import Draft, reads, writes
from picojoule.deploy.events.folding import Affine, Doubles, firing, padded
from picojoule.deploy.events.program import Kind, Map
from picojoule.deploy.events.values import (
    Analog,
    Buffer,
    Counts,
    Refused,
    Spikes,
    Step,
    Value,
    describe,
    map_of,
    value_of,
)
from picojoule.kernels.torch_private import BatchNorm


def batch_norm(draft: Draft, name: str, norm: nn.Module, x: Any, shape: tuple[int, ...]) -> Value:
    assert isinstance(norm, BatchNorm)
    if not isinstance(x, Analog):
        raise Refused(f"it stands behind {describe(x)}; put it between synapses and a spiking layer")
    if norm.running_mean is None:
        raise Refused("let it track running statistics")
    return replace(x, affine=x.affine.then(Affine.of_batch_norm(norm)))


def reshape(draft: Draft, given: Any, shape: tuple[int, ...]) -> Value:
    x = value_of(given)
    if map_of(shape) == x.map:
        return x
    if shape[1:] != (x.map.neurons,):
        raise Refused("flatten to [batch, features] or leave the shape as it is")
    if not isinstance(x, Analog):
        return x  # read through the next weights
    x = plain(draft, x)
    flat = Map(x.map.neurons)
    if x.planar:
        return Analog(flat, x.numbers, Affine.identity(flat.channels), pixels=x.pixels)
    target = draft.buffer(flat)
    fields = {**writes(flat, target), **reads(x)}
    draft.step(Kind.FLATTEN, **fields)
    return Analog(flat, target, Affine.identity(flat.channels), pixels=x.pixels)


def fire(draft: Draft, name: str, x: Any, threshold: float, shape: tuple[int, ...]) -> Value:
    if not isinstance(x, Analog):
        raise Refused(f"it takes {describe(x)}; give it currents")
    if not isinstance(threshold, int | float):  # whatever was set on the layer since
        raise Refused(f"its threshold is of the type {type(threshold).__name__}; give it a plain number")
    x = interleaved(draft, x)
    sign, t = firing(x.affine, threshold)
    spikes = Spikes(x.map, draft.mask(x.map))
    step = x.made_by
    if step is not None and _can_fire(step, sign):
        step.scale_outputs(sign)
        step.fields |= {"target": spikes.mask, "fires": 1}
    else:
        gain = draft.constant(padded(sign, x.map.pitch))
        step = draft.step(Kind.FIRE, source=x.numbers, scales=gain, **writes(x.map, spikes.mask))
    # No current reaches NaN: the lanes beside the channels stay silent.
    step.fields["threshold"] = draft.constant(padded(t, x.map.pitch, np.nan))
    return draft.emits(name, spikes, shape, step, relay=False)


def plain(draft: Draft, x: Analog) -> Analog:
    """The same numbers with nothing left to be done to them."""
    if x.affine.is_identity:
        return x
    step = x.made_by
    if step is not None:
        step.scale_outputs(x.affine.gain, x.affine.shift)
        return replace(x, affine=Affine.identity(x.map.channels))
    return combined(draft, x, None)


def interleaved(draft: Draft, x: Analog) -> Analog:
    """The same numbers pixel by pixel."""
    if not x.planar:
        return x
    target = draft.buffer(x.map)
    draft.step(Kind.INTERLEAVE, source=x.numbers, **writes(x.map, target))
    return replace(x, numbers=target, planar=False)


def combined(draft: Draft, x: Analog, y: Analog | None) -> Analog:
    x = interleaved(draft, x)
    target = draft.buffer(x.map)
    shift = x.affine.shift if y is None else x.affine.shift + y.affine.shift
    draft.step(
        Kind.COMBINE,
        source=x.numbers,
        other=-1 if y is None else y.numbers,
        scales=draft.constant(padded(x.affine.gain, x.map.pitch)),
        weights=-1 if y is None else draft.constant(padded(y.affine.gain, x.map.pitch)),
        init=draft.constant(padded(shift, x.map.pitch)),
        **writes(x.map, target),
    )
    both = x.pixels and (y is None or y.pixels)
    return Analog(x.map, target, Affine.identity(x.map.channels), pixels=both)


def scaled(x: Any, factor: float) -> Value:
    if not isinstance(x, Analog):
        raise Refused(f"it scales {describe(x)}; put the scale into the weights")
    return replace(x, affine=x.affine.then(Affine(np.array(factor), np.array(0.0))))


def add(draft: Draft, x: Any, y: Any) -> Value:
    if isinstance(x, int | float) or isinstance(y, int | float):
        number, x = (x, y) if isinstance(x, int | float) else (y, x)
        if not isinstance(x, Analog):
            raise Refused(f"it adds a number to {describe(x)}; make it a bias")
        return replace(x, affine=x.affine.then(Affine(np.array(1.0), np.array(float(number)))))
    x, y = value_of(x), value_of(y)
    if x.map != y.map:
        raise Refused("add values of the same shape")
    if not isinstance(x, Analog) and not isinstance(y, Analog):
        return _summed(draft, as_counts(draft, x), as_counts(draft, y))
    x, y = as_analog(draft, x), as_analog(draft, y)
    for fresh, other in ((x, y), (y, x)):
        if _takes_in(draft, fresh, other):
            fresh = plain(draft, fresh)
            assert fresh.made_by is not None
            fresh.made_by.fields["other"] = other.numbers
            return fresh
    return combined(draft, x, y)


def _takes_in(draft: Draft, fresh: Analog, other: Analog) -> bool:
    """Whether synapses can begin with the other operand instead of zero: it has to be there before they run."""
    if fresh.made_by is None or "other" in fresh.made_by.fields or not other.affine.is_identity:
        return False
    here = draft.steps.index(fresh.made_by)
    return not any(other.numbers is step.fields.get("target") for step in draft.steps[here:])


def as_counts(draft: Draft, x: Spikes | Counts) -> Counts:
    if isinstance(x, Counts):
        return x
    target = draft.buffer(x.map)
    draft.step(Kind.SPREAD, source=x.mask, **writes(x.map, target))
    return Counts(x.map, target, target, scale=1.0, most=1)


def as_analog(draft: Draft, x: Value) -> Analog:
    """Spikes that are added to currents are currents."""
    if isinstance(x, Analog):
        return interleaved(draft, x)
    return Analog(x.map, as_counts(draft, x).values, Affine.identity(x.map.channels))


def _summed(draft: Draft, x: Counts, y: Counts) -> Counts:
    def add(a: Buffer, b: Buffer) -> Buffer:
        identity = Affine.identity(x.map.channels)
        return combined(draft, Analog(x.map, a, identity), Analog(x.map, b, identity)).numbers

    values = add(x.values, y.values)
    plain = x.values is x.counts and y.values is y.counts
    counts = values if plain else add(x.counts, y.counts)
    return Counts(x.map, values, counts, x.scale if x.scale == y.scale else None, x.most + y.most)


def _can_fire(step: Step, sign: Doubles) -> bool:
    """Whether synapses can compare their own sums: what was added from elsewhere cannot be turned round with them."""
    return "other" not in step.fields or bool((sign > 0).all())
