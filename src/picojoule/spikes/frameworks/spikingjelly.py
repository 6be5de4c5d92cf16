"""SpikingJelly: `activation_based` neurons in single-step ("s") and multi-step ("m") mode."""

from __future__ import annotations

from torch import nn

from picojoule.spikes.frameworks.kinds import STEP, TIME_FIRST, Fires, Framework, Kind, Refused, Silent


def _by_step_mode(module: nn.Module) -> Kind:
    return Fires(TIME_FIRST if getattr(module, "step_mode", "s") == "m" else STEP)


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
        **dict.fromkeys("TernaryIFNode TernaryLIFNode STBIFNode".split(), _SIGNED),
        **dict.fromkeys("PSN MaskedPSN SlidingPSN".split(), _OVER_TIME),
        **dict.fromkeys(
            "ILCBaseNode NoisyILCBaseNode LinearRecurrentContainer ElementWiseRecurrentContainer "
            "SpikingRNNCellBase SpikingRNNBase".split(),
            _RECURRENT,
        ),
    },
)
