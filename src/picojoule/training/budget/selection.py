"""The network that a budget run returns: the last if it hits the budget, else the best that met it or came nearest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from picojoule.training.budget.control_law import tolerance


@dataclass(frozen=True)
class Candidate:
    """The network after one epoch, as measured on the validation images.

    Attributes:
        epoch: The epoch, counted from 0.
        joules: Energy per image.
        accuracy: As a fraction.
        silent: Its layers without any spike.
        strict: Whether the target must not be exceeded at all.
    """

    epoch: int
    joules: float
    accuracy: float
    silent: tuple[str, ...] = ()
    strict: bool = False

    def meets(self, target: float, reference: float) -> bool:
        """Return whether it spends at most the target, within the tolerance, and has no silent layer.

        Args:
            target: The budget in joules per image.
            reference: The unpenalised energy in joules per image.
        """
        over = 0.0 if self.strict else tolerance(target, reference)
        return not self.silent and self.joules <= target + over

    def hits(self, target: float, reference: float) -> bool:
        """Return whether it meets the target and does not stay below it by more than the tolerance.

        Args:
            target: The budget in joules per image.
            reference: The unpenalised energy in joules per image.
        """
        below = tolerance(target, reference) * (2 if self.strict else 1)
        return self.meets(target, reference) and self.joules >= target - below

    def rank(self, target: float, reference: float) -> tuple[bool, bool, float]:
        """Return a value that is higher for a better network.

        First comes a network without silent layers, then one that meets the target; of those that meet it the more
        accurate one, of the others the one nearer to the target.

        Args:
            target: The budget in joules per image.
            reference: The unpenalised energy in joules per image.

        Returns:
            A tuple to be compared with other candidates'.

        >>> met, near, far = Candidate(3, 0.49, 0.8), Candidate(4, 0.6, 0.9), Candidate(5, 0.9, 0.9)
        >>> met.rank(0.5, 1.0) > near.rank(0.5, 1.0) > far.rank(0.5, 1.0)
        True
        """
        met = self.meets(target, reference)
        return not self.silent, met, self.accuracy if met else -abs(math.log(max(self.joules, 1e-30) / target))


class Selection:
    """The best network of a budget run so far, with its weights.

    Attributes:
        best: The best network so far; None before the first one is offered.
        last: The network after the latest epoch.
        weights: Those of the best network.
        silenced: The layers that have been silent after some epoch, with the first such epoch and the joules then.
    """

    def __init__(self) -> None:
        self.best: Candidate | None = None
        self.last: Candidate | None = None
        self.weights: dict[str, Tensor] = {}
        self.silenced: dict[str, dict[str, Any]] = {}

    def offer(self, candidate: Candidate, weights: Mapping[str, Tensor], target: float, reference: float) -> None:
        """Take a network if it is at least as good as the best one so far.

        Args:
            candidate: The network after an epoch.
            weights: Its weights, which are copied.
            target: The budget in joules per image.
            reference: The unpenalised energy in joules per image.
        """
        self.last = candidate
        for layer in candidate.silent:
            self.silenced.setdefault(layer, {"epoch": candidate.epoch, "joules": candidate.joules})
        if self.best is None or candidate.rank(target, reference) >= self.best.rank(target, reference):
            self.best = candidate
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return all but the weights, in plain types, as a checkpoint stores it.

        Returns:
            The state; its key for the best network is "candidate".
        """
        return {"candidate": _packed(self.best), "last": _packed(self.last), "silenced": self.silenced}

    def load_state_dict(self, state: Mapping[str, Any], weights: dict[str, Tensor]) -> None:
        """Go on from a stored state.

        Args:
            state: What `state_dict` gave.
            weights: Those of the best network then.
        """
        self.best, self.last = _unpacked(state["candidate"]), _unpacked(state["last"])
        self.silenced, self.weights = dict(state["silenced"]), weights


def _packed(candidate: Candidate | None) -> dict[str, Any] | None:
    """Turn a candidate into plain types."""
    return dataclasses.asdict(candidate) if candidate is not None else None


def _unpacked(stored: Mapping[str, Any] | None) -> Candidate | None:
    """Turn plain types, in which JSON has lists for tuples, into a candidate."""
    return Candidate(**{**stored, "silent": tuple(stored["silent"])}) if stored is not None else None
