"""A floor under the firing rate of every layer, so that no penalty silences one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

FLOOR = 1e-3
"""The guard's least firing rate, in spikes per neuron and step, each weighted as in the penalty."""
_BATCHES = 5
"""Over about so many batches the cross-entropy is averaged."""
_BETTER_THAN_CHANCE = 0.1
_WAKING = 16.0
"""The most that a silent layer is rewarded with, by strength, before the network has learned anything."""
_MUCH = 0.4
"""From here on what was learned bears the whole charge."""
_KEPT, _LOST = 0.6, 0.3
"""Shares of the best that was learned: the charge is whole down to the one, and rests below the other."""


class LayerGuard:
    """A guard against networks that die: of silent layers, and of a charge that undoes what was learned.

        charge = Σ_l w_l Ω_l,   w_l = g · (r_l/floor − 1)/3 up to g, and −1 at r_l = 0

    with r_l the layer's firing rate on the batch before, Ω_l / Ω_l(1): a layer near the floor is not penalised, one
    below it is rewarded for firing. It works ahead of silence, because out of it there is hardly a way back: far below
    the threshold the surrogate has vanished.

    A floor alone does not keep a network alive: one neuron that always fires keeps a layer above it and tells nothing.
    So the charge waits, g = 0, until the network is better than chance, and rests when it has lost seven tenths of the
    best that it had learned; g = 1 as long as it keeps six tenths, and four tenths of all there is to learn. What is
    learned is 1 − CE/ln(classes), CE the mean over the latest batches.

    A layer that is silent before anything was learned, as without norms many are from the start, is woken gently, with
    a strength of 16 at most: nothing is charged yet that would hold it down, and a reward far beyond the loss would
    saturate the layers before it, and stay in the moments of the optimiser long after.

    Args:
        at_one: Ω_l(1) of each guarded layer.
        floor: The least firing rate.
        classes: The number of classes; None leaves g = 1.

    >>> guard = LayerGuard({"spike1": 0.6, "spike2": 0.4})
    >>> guard.observe([0.2, 0.0025])
    >>> guard.weights, guard.holding
    ({'spike1': 1.0, 'spike2': 0.5}, ['spike2'])
    """

    def __init__(self, at_one: Mapping[str, float], floor: float = FLOOR, classes: int | None = None) -> None:
        self._at_one, self._floor = dict(at_one), floor
        self._chance = None if classes is None else math.log(classes)
        self._rates: list[float] | None = None
        self._learned, self._best = 0.0, 0.0

    @property
    def weights(self) -> dict[str, float]:
        """The weight w_l of each layer's share for the next batch."""
        rates = self._rates or [math.inf] * len(self._at_one)
        return {name: self._weight(rate) for name, rate in zip(self._at_one, rates, strict=True)}

    @property
    def has_learned(self) -> bool:
        """Whether the network has been better than chance."""
        return self._best >= _BETTER_THAN_CHANCE

    @property
    def share(self) -> float:
        """The share g of the charge that the network can bear now."""
        if self._chance is None:
            return 1.0
        if not self.has_learned:
            return 0.0
        kept = _between(self._learned / self._best, _LOST, _KEPT)
        return kept * _between(self._learned, _BETTER_THAN_CHANCE, _MUCH)

    def _weight(self, rate: float) -> float:
        return min((rate / self._floor - 1) / 3, 1.0) if rate > 0 else -1.0

    @property
    def holding(self) -> list[str]:
        """The layers that are near or below the floor, and would be penalised further without the guard."""
        return [name for name, weight in self.weights.items() if weight < 1]

    def charge(self, shares: Mapping[str, Tensor], strength: float = 1.0) -> Tensor:
        """Return the penalty Σ_l w_l Ω_l.

        Args:
            shares: Ω_l of each layer on one batch.
            strength: What it is going to be multiplied by.

        Returns:
            A scalar that can be differentiated.
        """
        weights, borne = self.weights, self.share
        waking = self._chance is not None and not self.has_learned
        reward = min(_WAKING / strength, 1.0) if waking and strength > 0 else 1.0
        signed = {name: weights.get(name, 1.0) for name in shares}
        each = {name: w * (reward if w < 0 else borne) for name, w in signed.items()}
        return torch.stack([share * each[name] for name, share in shares.items()]).sum()

    def observations(self, shares: Mapping[str, Tensor], cross_entropy: float) -> list[float]:
        """Return what `observe` takes of one batch, to be averaged over processes.

        Args:
            shares: Ω_l of each layer.
            cross_entropy: Mean cross-entropy of the batch.

        Returns:
            The firing rate of each guarded layer, each neuron weighted as in the penalty, and the cross-entropy.
        """
        values: list[float] = torch.stack([shares[name].detach() for name in self._at_one]).tolist()
        return [*(value / one for value, one in zip(values, self._at_one.values(), strict=True)), cross_entropy]

    def observe(self, observations: Sequence[float]) -> None:
        """Take note of a batch, which decides the weights of the next one.

        Args:
            observations: What `observations` gave, averaged over the processes; without a cross-entropy, what was
                learned stays as it was.
        """
        rates = len(self._at_one)
        self._rates = list(observations[:rates])
        if self._chance is not None and len(observations) > rates:
            now = 1 - min(observations[rates] / self._chance, 1.0)
            self._learned += (now - self._learned) / _BATCHES
            self._best = max(self._best, self._learned)

    def state_dict(self) -> dict[str, Any]:
        """Return the state in plain types, as a checkpoint stores it."""
        return {"rates": self._rates, "learned": self._learned, "best": self._best}

    def load_state_dict(self, state: Mapping[str, Any] | list[float] | None) -> None:
        """Go on from a stored state.

        Args:
            state: What `state_dict` gave; of an earlier version, the firing rates alone.
        """
        if isinstance(state, Mapping):
            self._rates, self._learned, self._best = state["rates"], state["learned"], state["best"]
        else:
            self._rates, self._learned, self._best = state, 1.0, 1.0


def _between(value: float, low: float, high: float) -> float:
    """Return 0 up to `low`, 1 from `high` on, and a straight line between them."""
    return min(max((value - low) / (high - low), 0.0), 1.0)
