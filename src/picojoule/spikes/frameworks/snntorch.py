"""snnTorch: neurons that take one step per call, with their state inside (`init_hidden`) or given and returned."""

from __future__ import annotations

import torch
from torch import nn

from picojoule.spikes.frameworks.kinds import STEP, Fires, Framework, Kind, Refused, Silent

_RECURRENT = Refused("holds recurrent synapses, which are not counted", "use Leaky or Synaptic")
_SYNAPSES = Refused("holds synapses inside, which are not counted", "use nn.Linear with Leaky behind it")

_GRADED = Refused(
    "emits its spikes times graded_spikes_factor, which are no numbers of spikes",
    "leave the factor at 1 and put it into the weights that follow",
)


def _neuron(module: nn.Module) -> Kind:
    factor = getattr(module, "graded_spikes_factor", 1)
    if isinstance(factor, nn.Parameter) or bool((torch.as_tensor(factor) != 1).any()):
        return _GRADED
    return Fires(STEP)


SNNTORCH = Framework(
    name="snnTorch",
    package="snntorch",
    tested="1.0.0",
    kinds={
        "SpikingNeuron": _neuron,  # Leaky, Synaptic, Alpha, Lapicque, DeltaLeaky and users' own
        **dict.fromkeys("RLeaky RSynaptic SLSTM SConv2dLSTM".split(), _RECURRENT),
        **dict.fromkeys("LinearLeaky AssociativeLeaky LeakyParallel LeakyKernel".split(), _SYNAPSES),
        "StateLeaky": Refused("computes its leak as a convolution over time, which is not counted", "use Leaky"),
        "GradedSpikes": Silent("spikes times a weight"),
    },
)
