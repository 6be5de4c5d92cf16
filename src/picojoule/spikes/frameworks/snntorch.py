"""snnTorch: neurons that take one step per call, with their state inside (`init_hidden`) or given and returned."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.spikes.frameworks.kinds import STEP, Fires, Framework, Inside, Kind, Once, Refused, Silent

_SYNAPSES = Refused("holds synapses inside, which are not counted", "use nn.Linear with Leaky behind it")

_GRADED = Refused(
    "emits its spikes times graded_spikes_factor, which are no numbers of spikes",
    "leave the factor at 1 and put it into the weights that follow",
)


def _all_to_all(module: Any, spikes: Tensor, once: Once) -> object:
    return module.recurrent(spikes)


def _one_to_one(module: Any, spikes: Tensor, once: Once) -> object:
    """Each neuron feeds itself, by a weight of its own or one for all."""
    flat = spikes.flatten(1).unsqueeze(-1)
    weight = once("V", lambda: module.recurrent.V.expand(spikes.shape[1:]).reshape(-1, 1, 1))
    return F.conv1d(flat, weight, groups=len(weight))


_FED_BACK = Inside(fed_back=_all_to_all)
_FED_BACK_EACH = Inside(fed_back=_one_to_one)


def _recurrent(module: nn.Module) -> Kind:
    fires = _neuron(module)
    inside = _FED_BACK if getattr(module, "all_to_all", True) else _FED_BACK_EACH
    return Fires(STEP, inside) if isinstance(fires, Fires) else fires


_LSTM = Inside(
    fed=lambda module, x, once: F.linear(x, module.lstm_cell.weight_ih),
    hidden=lambda module, h, once: F.linear(h, module.lstm_cell.weight_hh),
    hidden_shape=lambda module, x: (len(x), module.hidden_size),
)
_CONVOLUTIONAL_LSTM = Inside(
    fed=lambda module, x, once: F.conv2d(
        x, once("input", lambda: module.conv.weight[:, : module.in_channels]), None, 1, module.conv.padding
    ),
    hidden=lambda module, h, once: F.conv2d(
        h, once("hidden", lambda: module.conv.weight[:, module.in_channels :]), None, 1, module.conv.padding
    ),
    hidden_shape=lambda module, x: (len(x), module.out_channels, *x.shape[2:]),
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
        **dict.fromkeys("RLeaky RSynaptic".split(), _recurrent),
        "SLSTM": Fires(STEP, _LSTM),
        "SConv2dLSTM": Fires(STEP, _CONVOLUTIONAL_LSTM),
        **dict.fromkeys("LinearLeaky AssociativeLeaky LeakyParallel LeakyKernel".split(), _SYNAPSES),
        "StateLeaky": Refused("computes its leak as a convolution over time, which is not counted", "use Leaky"),
        "GradedSpikes": Silent("spikes times a weight"),
    },
)
