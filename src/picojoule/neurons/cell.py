"""A layer of neurons with a membrane, one time step a call: for networks that feed spikes back."""

from __future__ import annotations

from torch import Tensor, nn

from picojoule.neurons.lif import Membrane, step


class Cell(nn.Module):
    """One time step of `IF` or `LIF`: takes the currents and the potential, and gives the spikes and the potential.

    The potential is the caller's to keep, so nothing is held between calls.

    Args:
        membrane: The equations of one time step.

    >>> import torch
    >>> spikes, v = Cell(Membrane(leak=0.5))(torch.tensor([[0.8, 1.2]]))
    >>> spikes, v
    (tensor([[0., 1.]]), tensor([[0.8000, 0.2000]]))
    """

    def __init__(self, membrane: Membrane) -> None:
        super().__init__()
        self.membrane = membrane

    def forward(self, currents: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Take one time step.

        Args:
            currents: What the synapses give in this step, [B, …].
            v: The potential that the step before left; None is 0.

        Returns:
            The spikes, and the potential that is left.
        """
        return step(v, currents, self.membrane)
