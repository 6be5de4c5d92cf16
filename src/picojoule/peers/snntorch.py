"""snnTorch: neurons that take one step a call, with their state inside (`init_hidden`) or given and returned."""

from __future__ import annotations

from picojoule.peers.kinds import STEP, Fires, Framework, Refused, Silent

_RECURRENT = Refused("holds recurrent synapses, which are not counted", "use Leaky or Synaptic")
_SYNAPSES = Refused("holds synapses inside, which are not counted", "use nn.Linear with Leaky behind it")

SNNTORCH = Framework(
    name="snnTorch",
    package="snntorch",
    tested="1.0.0",
    kinds={
        "SpikingNeuron": Fires(STEP),  # Leaky, Synaptic, Alpha, Lapicque, DeltaLeaky and users' own
        **dict.fromkeys("RLeaky RSynaptic SLSTM SConv2dLSTM".split(), _RECURRENT),
        **dict.fromkeys("LinearLeaky AssociativeLeaky LeakyParallel LeakyKernel".split(), _SYNAPSES),
        "StateLeaky": Refused("computes its leak as a convolution over time, which is not counted", "use Leaky"),
        "GradedSpikes": Silent("spikes times a weight"),
    },
)
