"""RSNN: one layer of neurons that feed each other, for recordings over time.

    u_t = encode(x_t) + recur(s_{t−1})
    s_t = S(u_t)
    logits = mean over t of classify(s_t)

Convention: the first step has nothing to be fed back, and the last step's spikes reach nobody but the readout, so a
spike costs the synapses of `classify` in every step and those of `recur` in all steps but the last.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.neurons.cell import Cell
from picojoule.neurons.input_spikes import InputSpikes
from picojoule.neurons.lif import MembraneNeuron
from picojoule.neurons.time_steps import present, readout, unfold
from picojoule.zoo.layers import linear

_HIDDEN = 128
_FEEDBACK = 0.1
"""Fresh weights of `recur` as a share of He's; whole ones let spikes multiply from step to step and hinder learning."""


class RSNN(nn.Module):
    """RSNN: linear-BN, 128 neurons with synapses among all of them, then a linear layer.

    `picojoule.zoo.create` builds it.

    Args:
        classes: The number of classes.
        input_shape: The shape of a frame, which is flattened.
        neuron: Makes the neurons: `IF` or `LIF`, or, for a single step, any.
        steps: Time steps.
        spiking_input: Whether frames are spikes.

    Raises:
        PicojouleError: The neuron cannot be run one step at a time.

    >>> import picojoule as pj
    >>> pj.zoo.create("rsnn", neuron=pj.LIF, steps=3)(torch.zeros(3, 2, 24, 1, 1)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int,
        input_shape: tuple[int, ...],
        neuron: Callable[[], nn.Module],
        steps: int,
        spiking_input: bool,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.input_shape = input_shape
        self.flatten = nn.Flatten()
        self.input = InputSpikes() if spiking_input else nn.Identity()
        self.encode = linear(torch.Size(input_shape).numel(), _HIDDEN)
        self.norm = nn.BatchNorm1d(_HIDDEN)
        self.recur = linear(_HIDDEN, _HIDDEN)
        nn.init.normal_(self.recur.weight, std=_FEEDBACK * (2 / _HIDDEN) ** 0.5)
        self.spike1 = _one_step(neuron(), steps)
        self.classify = linear(_HIDDEN, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits of frames over time, or of images that are given in every step.

        Args:
            x: Frames [T, B, C, H, W] or images [B, C, H, W].

        Returns:
            Logits [B, classes], averaged over time.
        """
        x = x.flatten(0, 1) if x.dim() == 5 else present(x, self.steps)
        spikes = torch.cat([self.input(frame) for frame in unfold(self.flatten(x), self.steps).unbind(0)])
        currents = unfold(self.norm(self.encode(spikes)), self.steps)
        return readout(self.classify(self._fire(currents)), self.steps)

    def _fire(self, currents: Tensor) -> Tensor:
        """Run the neurons step by step, [T, B, hidden] to [T·B, hidden]."""
        spikes, v, emitted = None, None, []
        for current in currents.unbind(0):
            u = current if spikes is None else current + self.recur(spikes)
            if isinstance(self.spike1, Cell):
                spikes, v = self.spike1(u, v)
            else:
                spikes = self.spike1(u)
            emitted.append(spikes)
        return torch.cat(emitted)


def _one_step(neuron: nn.Module, steps: int) -> nn.Module:
    """Make of neurons that take all steps at once some that take one."""
    if isinstance(neuron, MembraneNeuron):
        return Cell(neuron.membrane)
    if steps > 1:
        raise PicojouleError(
            f"rsnn feeds spikes back from step to step, which {type(neuron).__name__} does not let it do: take IF or "
            "LIF"
        )
    return neuron
