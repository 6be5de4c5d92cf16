"""Norse: cells take one step per call, layers take [T, B, …]; both return (spikes, state)."""

from __future__ import annotations

from picojoule.spikes.frameworks.kinds import STEP, TIME_FIRST, Fires, Framework, Refused, Silent

_RECURRENT = Refused(
    "holds recurrent synapses, which are not counted",
    "use torch.nn.Linear with the neuron's form without recurrence behind it",
)
_SIGNED = Refused("emits negative spikes, which are not counted", "use PoissonEncoder")

NORSE = Framework(
    name="Norse",
    package="norse",
    tested="1.1.0",
    kinds={
        "SNNCell": Fires(STEP),  # LIFCell, LIFBoxCell, IAFCell, LSNNCell, …
        "SNN": Fires(TIME_FIRST),  # LIF, IAF, LSNN, …
        "PoissonEncoderStep": Fires(STEP),
        **dict.fromkeys(
            "PoissonEncoder ConstantCurrentLIFEncoder SpikeLatencyLIFEncoder SpikeLatencyEncoder".split(),
            Fires(TIME_FIRST),
        ),
        **dict.fromkeys("LICell LI LIBoxCell".split(), Silent()),
        "ExpFilter": Silent("a filtered current"),
        **dict.fromkeys("SNNRecurrentCell SNNRecurrent RecurrentSequential".split(), _RECURRENT),
        **dict.fromkeys("LIFCorrelation CobaLIFCell".split(), _RECURRENT),
        "LILinearCell": Refused("holds synapses inside, which are not counted", "use torch.nn.Linear and LICell"),
        **dict.fromkeys("SignedPoissonEncoder SignedPoissonEncoderStep".split(), _SIGNED),
    },
)
