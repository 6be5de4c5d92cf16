"""The network that a budget run keeps: the last one if it met the budget, else the best that met it or came nearest."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from picojoule.training.budget.budget import tolerance


@dataclass(frozen=True)
class Candidate:
    """The network after one epoch, on the validation images."""

    epoch: int
    joules: float
    accuracy: float
    silent: tuple[str, ...] = ()
    """Its layers without any spike."""

    def met(self, target: float, reference: float) -> bool:
        """Whether it spends no more than the target, give or take the tolerance, and has no silent layer."""
        return not self.silent and self.joules <= target + tolerance(target, reference)

    def hit(self, target: float, reference: float) -> bool:
        """Whether it met the target and does not spend less than it may."""
        return self.met(target, reference) and self.joules >= target - tolerance(target, reference)

    def rank(self, target: float, reference: float) -> tuple[bool, bool, float]:
        """Higher is better: no silent layer; met, the more accurate the better; nearer to the target.

        >>> met, near, far = Candidate(3, 0.49, 0.8), Candidate(4, 0.6, 0.9), Candidate(5, 0.9, 0.9)
        >>> met.rank(0.5, 1.0) > near.rank(0.5, 1.0) > far.rank(0.5, 1.0)
        True
        """
        met = self.met(target, reference)
        return not self.silent, met, self.accuracy if met else -abs(math.log(max(self.joules, 1e-30) / target))


class Selection:
    """The best network so far, with its weights."""

    def __init__(self) -> None:
        self.candidate: Candidate | None = None
        self.last: Candidate | None = None
        """The network after the latest epoch."""
        self.weights: dict[str, Tensor] = {}
        self.silenced: dict[str, dict[str, Any]] = {}
        """The layers that have been silent after some epoch, with the first such epoch and the joules then."""

    def offer(self, candidate: Candidate, weights: Mapping[str, Tensor], target: float, reference: float) -> None:
        self.last = candidate
        for layer in candidate.silent:
            self.silenced.setdefault(layer, {"epoch": candidate.epoch, "joules": candidate.joules})
        best = self.candidate
        if best is None or candidate.rank(target, reference) >= best.rank(target, reference):
            self.candidate = candidate
            self.weights = {name: tensor.detach().cpu().clone() for name, tensor in weights.items()}

    def state_dict(self) -> dict[str, Any]:
        return {"candidate": _packed(self.candidate), "last": _packed(self.last), "silenced": self.silenced}

    def load_state_dict(self, state: Mapping[str, Any], weights: dict[str, Tensor]) -> None:
        self.candidate, self.last = _unpacked(state["candidate"]), _unpacked(state["last"])
        self.silenced, self.weights = dict(state["silenced"]), weights


def _packed(candidate: Candidate | None) -> dict[str, Any] | None:
    return dataclasses.asdict(candidate) if candidate is not None else None


def _unpacked(stored: Mapping[str, Any] | None) -> Candidate | None:
    return Candidate(**{**stored, "silent": tuple(stored["silent"])}) if stored is not None else None
