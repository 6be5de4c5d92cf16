"""SpikingJelly: `activation_based` neurons in single-step ("s") and multi-step ("m") mode, and old `clock_driven` ones.

Up to 0.0.0.0.12 (and still beside the newer package in 0.0.0.0.14) a neuron had no step mode: `IFNode` takes one step a
call and `MultiStepIFNode` takes [T, B, …]. Only the names of the classes tell them apart.
"""

from __future__ import annotations

from dataclasses import replace

from torch import nn

from picojoule.spikes.frameworks.kinds import STEP, TIME_FIRST, Fires, Framework, Kind, Refused, Silent
from picojoule.spikes.unit import Unit

_OLD = ("spikingjelly.clock_driven.", "spikingjelly.cext.")
_OWN_FORWARD = Refused(
    "has a forward of its own on a neuron of the old clock_driven, so nothing says whether it takes one time step in "
    "each call or all of them",
    "name the class MultiStep… if it takes [T, B, …], else declare it with picojoule.declare_spiking and say in "
    "picojoule.watch and trace where time is",
)


def _by_step_mode(module: nn.Module) -> Kind:
    if any(cls.__module__.startswith(_OLD) for cls in type(module).__mro__):
        return _by_name(module)
    return Fires(TIME_FIRST if getattr(module, "step_mode", "s") == "m" else STEP)


def _ternary(module: nn.Module) -> Kind:
    fires = _by_step_mode(module)
    return replace(fires, unit=Unit(signed=True)) if isinstance(fires, Fires) else fires


def _by_name(module: nn.Module) -> Kind:
    """Tell the old neurons apart, which have no step mode; never by the shape of what they take."""
    classes = type(module).__mro__
    if any(cls.__name__.startswith("MultiStep") for cls in classes):
        return Fires(TIME_FIRST)
    runs = next(cls for cls in classes if "forward" in vars(cls))
    return Fires(STEP) if runs.__module__.startswith(_OLD) else _OWN_FORWARD


_RECURRENT = Refused("holds recurrent synapses, which are not counted", "use a neuron without recurrence")
_OVER_TIME = Refused("mixes time steps by a matrix of weights, which is not counted", "use neuron.LIFNode or IFNode")
_SIGNED = Refused("emits negative spikes, which are not counted", "use neuron.LIFNode or IFNode")

SPIKINGJELLY = Framework(
    name="SpikingJelly",
    package="spikingjelly",
    tested="2.0.0",
    kinds={
        **dict.fromkeys(
            "BaseNode SimpleBaseNode ActivationAwareIFNode GatedLIFNode".split(),
            _by_step_mode,
        ),
        **dict.fromkeys("PoissonEncoder".split(), Fires()),
        **dict.fromkeys("LatencyEncoder PeriodicEncoder".split(), _by_step_mode),
        **dict.fromkeys("NonSpikingBaseNode NoisyNonSpikingBaseNode".split(), Silent()),
        **dict.fromkeys("LIAFNode".split(), Silent("its activation, an analog value")),
        "SynapseFilter": Silent("a filtered current"),
        "WeightedPhaseEncoder": Silent("spikes times a weight"),
        **dict.fromkeys("FewSpikeNode DSRIFNode DSRLIFNode".split(), Silent("spikes times a weight")),
        "NoisyBaseNode": Silent("spikes with noise on them"),
        **dict.fromkeys("TernaryIFNode TernaryLIFNode".split(), _ternary),
        "STBIFNode": _SIGNED,
        **dict.fromkeys("PSN MaskedPSN SlidingPSN".split(), _OVER_TIME),
        **dict.fromkeys(
            "ILCBaseNode NoisyILCBaseNode SpikingRNNCellBase SpikingRNNBase".split(),
            _RECURRENT,
        ),
    },
)
