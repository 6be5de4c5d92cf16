"""A floor under the firing rate of every layer, so that no penalty silences one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

FLOOR = 1e-3
"""The guard's least firing rate, in spikes per neuron and step, each weighted as in the penalty."""


class Guard:
    """A guard against silent layers: a layer near the floor is not penalised, one below it is rewarded for firing.

        charge = Σ_l w_l Ω_l,   w_l = (r_l/floor − 1)/3 up to 1, and −1 at r_l = 0

    with r_l the layer's firing rate on the batch before, Ω_l / Ω_l(1). From four times the floor up, w_l = 1. It works
    ahead of silence, because out of it there is hardly a way back: far below the threshold the surrogate has vanished.

    Args:
        at_one: Ω_l(1) of each guarded layer.
        floor: The least firing rate.

    >>> guard = Guard({"spike1": 0.6, "spike2": 0.4})
    >>> guard.observe([0.2, 0.0025])
    >>> guard.weights, guard.holding
    ({'spike1': 1.0, 'spike2': 0.5}, ['spike2'])
    """

    def __init__(self, at_one: Mapping[str, float], floor: float = FLOOR) -> None:
        self._at_one, self._floor = dict(at_one), floor
        self._rates: list[float] | None = None

    @property
    def weights(self) -> dict[str, float]:
        """The weight w_l of each layer's share for the next batch."""
        rates = self._rates or [math.inf] * len(self._at_one)
        return {name: self._weight(rate) for name, rate in zip(self._at_one, rates, strict=True)}

    def _weight(self, rate: float) -> float:
        return min((rate / self._floor - 1) / 3, 1.0) if rate > 0 else -1.0

    @property
    def holding(self) -> list[str]:
        """The layers that are near or below the floor, and would be penalised further without the guard."""
        return [name for name, weight in self.weights.items() if weight < 1]

    def charge(self, shares: Mapping[str, Tensor]) -> Tensor:
        """Return the penalty Σ_l w_l Ω_l.

        Args:
            shares: Ω_l of each layer on one batch.

        Returns:
            A scalar that can be differentiated.
        """
        weights = self.weights
        return torch.stack([share * weights.get(name, 1.0) for name, share in shares.items()]).sum()

    def rates(self, shares: Mapping[str, Tensor]) -> list[float]:
        """Return the firing rates of the guarded layers on one batch, each neuron weighted as in the penalty.

        Args:
            shares: Ω_l of each layer.

        Returns:
            One rate per guarded layer.
        """
        values: list[float] = torch.stack([shares[name].detach() for name in self._at_one]).tolist()
        return [value / one for value, one in zip(values, self._at_one.values(), strict=True)]

    def observe(self, rates: Sequence[float]) -> None:
        """Take note of the firing rates, which decide the weights of the next batch.

        Args:
            rates: What `rates` gave, averaged over the processes.
        """
        self._rates = list(rates)

    def state_dict(self) -> list[float] | None:
        """Return the latest firing rates, as a checkpoint stores them."""
        return self._rates

    def load_state_dict(self, state: list[float] | None) -> None:
        """Go on from stored firing rates.

        Args:
            state: What `state_dict` gave.
        """
        self._rates = state
