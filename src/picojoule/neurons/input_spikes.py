"""Input that arrives as spikes: events of a sensor, or readings that were encoded as spikes."""

from __future__ import annotations

from torch import Tensor, nn


class InputSpikes(nn.Module):
    """The place where spikes from outside enter a network, so that they are billed as spikes.

    Without it the synapses that the input feeds are an encoder, whose multiply-accumulates are counted apart. Behind it
    they are accumulates, one for each spike and synapse, and the input has an entry of its own in `Synapses`,
    `Activity` and every report. It has no neurons: Ω_total, Ω_balance, rates and dead neurons do not see it. No penalty
    can lower what it costs, for the data decide it; it is part of Ω_syn, so that E = E_AC · E[Ω_syn] stays true.

    >>> import torch
    >>> import picojoule as pj
    >>> net = nn.Sequential(InputSpikes(), nn.Linear(4, 3), pj.Spike(), nn.Linear(3, 2))
    >>> synapses = pj.trace(net, torch.zeros(1, 4))
    >>> synapses["0"].fan_out.tolist(), synapses["0"].neurons, synapses.encoder_macs
    ([3, 3, 3, 3], 0, 0)
    """

    def forward(self, spikes: Tensor) -> Tensor:
        """Pass the spikes on as they are.

        Args:
            spikes: Whole numbers of spikes, in any shape.

        Returns:
            The same.
        """
        return spikes
