"""Norse: cells take one step per call, layers take [T, B, …]; both return (spikes, state)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.spikes.frameworks.kinds import STEP, TIME_FIRST, Fires, Framework, Inside, Once, Refused, Silent
from picojoule.spikes.unit import Unit


def _recurrent_weights(module: Any, spikes: Tensor, once: Once) -> object:
    """Without autapses no neuron feeds itself: the diagonal is zero and stays so."""
    weights = module.recurrent_weights
    if not getattr(module, "autapses", False):
        weights = once("recurrent", lambda: weights * (1 - torch.eye(len(weights), device=weights.device)))
    return F.linear(spikes, weights)


_INSIDE = Inside(fed=lambda module, x, once: F.linear(x, module.input_weights), fed_back=_recurrent_weights)
_COMPARTMENTS = Refused(
    "couples the potentials of its neurons by weights, which are not counted", "use the neuron without compartments"
)
_RECURRENT = Refused(
    "holds recurrent synapses, which are not counted",
    "use torch.nn.Linear with the neuron's form without recurrence behind it",
)

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
        "SNNRecurrentCell": Fires(STEP, _INSIDE),  # LIFRecurrentCell, LSNNRecurrentCell, …
        "SNNRecurrent": Fires(TIME_FIRST, _INSIDE),
        **dict.fromkeys("LIFMCRecurrentCell LIFMCRefracRecurrentCell".split(), _COMPARTMENTS),
        **dict.fromkeys("RecurrentSequential LIFCorrelation CobaLIFCell".split(), _RECURRENT),
        "LILinearCell": Refused("holds synapses inside, which are not counted", "use torch.nn.Linear and LICell"),
        "SignedPoissonEncoder": Fires(TIME_FIRST, unit=Unit(signed=True)),
        "SignedPoissonEncoderStep": Fires(STEP, unit=Unit(signed=True)),
    },
)
