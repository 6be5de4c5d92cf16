"""Rules of neurons: what becomes of a current that reaches a threshold, at once or over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from picojoule.deploy.events.affine import Doubles, firing, padded
from picojoule.deploy.events.builder import ProgramBuilder, writes
from picojoule.deploy.events.currents import channels_last, found, takes_scales
from picojoule.deploy.events.program import MEMBRANE, Emission, Opcode
from picojoule.deploy.events.values import Analog, Buffer, Counts, PendingInstruction, Spikes, Value, describe
from picojoule.deploy.graph.refusal import Unsupported
from picojoule.neurons.lif import Membrane, MembraneNeuron
from picojoule.neurons.spike import Spike


def fire(builder: ProgramBuilder, name: str, layer: Spike | MembraneNeuron, x: Any, shape: tuple[int, ...]) -> Value:
    """Lower a spiking layer: by the synapses before it where they can, else by an instruction of its own.

    Raises:
        Unsupported: If it takes anything but currents, or its threshold is not a number.
    """
    if not isinstance(x, Analog):
        raise Unsupported("give it currents", because=f"which takes {describe(x)}")
    x = channels_last(builder, x)
    if isinstance(layer, Spike):
        return _fire_at_once(builder, name, layer.threshold, x, shape)
    return _charge(builder, name, layer.membrane, x, shape)


def _fire_at_once(builder: ProgramBuilder, name: str, threshold: float, x: Analog, shape: tuple[int, ...]) -> Value:
    """Lower neurons without memory: scales and shifts become signs and thresholds."""
    if not isinstance(threshold, int | float):  # whatever was set on the layer since
        raise Unsupported(
            "give it a plain number", because=f"whose threshold is of the type {type(threshold).__name__}"
        )
    sign, t = firing(x.affine, threshold)
    spikes = builder.spikes(x.map)
    instruction = x.producer
    if instruction is not None and _can_fire(instruction, sign):
        instruction.scale_outputs(sign)
        instruction.fields |= writes(x.map, spikes)
    else:
        gain = builder.constant(padded(sign, x.map.pitch))
        instruction = builder.add(Opcode.FIRE, scales=gain, **found(x), **writes(x.map, spikes))
    # No current reaches NaN: the lanes beside the channels stay silent.
    threshold_at = builder.constant(padded(t, x.map.pitch, np.nan))
    instruction.fields |= {"emission": int(Emission.SPIKE), "threshold": threshold_at}
    return builder.add_spike_output(name, spikes, shape, instruction, relay=False)


def _charge(builder: ProgramBuilder, name: str, membrane: Membrane, x: Analog, shape: tuple[int, ...]) -> Value:
    """Lower neurons with a membrane, which take the currents as they are."""
    numbers = {
        "threshold": membrane.threshold,
        "kept": 1 - membrane.leak,
        "most": np.inf if membrane.max_spikes is None else membrane.max_spikes,
        "floor": -np.inf if membrane.floor is None else membrane.floor,
    }
    spikes: Spikes | Counts
    target: Buffer | Spikes
    if membrane.max_spikes == 1:
        spikes = target = builder.spikes(x.map)
    else:
        target = counts = builder.buffer(x.map, builder.steps)
        counts.live_out = True
        spikes = Counts(x.map, counts, counts, 1.0, numbers["most"])
    instruction = x.producer
    if instruction is not None and takes_scales(instruction, x.affine):
        instruction.scale_outputs(x.affine.gain, x.affine.shift)
        instruction.fields |= writes(x.map, target)
    else:
        gain, shift = (builder.constant(padded(part, x.map.pitch)) for part in (x.affine.gain, x.affine.shift))
        instruction = builder.add(Opcode.FIRE, scales=gain, init=shift, **found(x), **writes(x.map, target))
    emission = Emission.MEMBRANE if membrane.max_spikes == 1 else Emission.COUNTED
    constants = builder.constant(np.array([numbers[name] for name in MEMBRANE]))
    zeroes = int(membrane.reset == "zero")
    instruction.fields |= {"emission": int(emission), "membrane": constants, "zeroes": zeroes}
    return builder.add_spike_output(name, spikes, shape, instruction, relay=False)


def _can_fire(synapses: PendingInstruction, sign: Doubles) -> bool:
    """Say whether synapses can compare their own sums: what they were given to add cannot be turned round with them."""
    return "other" not in synapses.fields or bool((sign > 0).all())
