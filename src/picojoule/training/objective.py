"""What a batch is trained for: its cross-entropy, and λ times what the penalty charges for its spikes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.penalty import Penalty, TargetPenalty
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.spikes.watch import watch
from picojoule.synapses.table import Synapses
from picojoule.training.budget.guard import Guard
from picojoule.training.reference import reference_figure


def penalty_of(run: Run, recipe: Recipe, synapses: Synapses) -> Penalty | TargetPenalty:
    settings = recipe.penalty
    if settings.kind != "target":
        return Penalty(synapses, settings.kind, settings.p, settings.normalized)
    assert settings.target is not None  # the recipe was checked
    unit = reference_figure(run, recipe)
    return TargetPenalty(synapses, settings.target * (1.0 if unit is None else unit))


def guard_of(recipe: Recipe, penalty: Penalty | TargetPenalty | None) -> Guard | None:
    wanted = recipe.penalty.budget is not None if recipe.penalty.guard is None else recipe.penalty.guard
    return Guard(penalty.by_layer_at_one(recipe.neuron.steps)) if wanted and isinstance(penalty, Penalty) else None


@dataclass
class Objective:
    network: nn.Module
    """As Fabric has wrapped it."""
    steps: int
    penalty: Penalty | TargetPenalty | None
    guard: Guard | None

    def of(self, images: Tensor, labels: Tensor, strength: float) -> tuple[Tensor, list[float], list[float]]:
        """The objective; what is summed over the epoch: samples, cross-entropy, right answers, Ω; the guard's rates."""
        rates: list[float] = []
        if self.penalty is None:
            logits, omega = self.network(images), torch.zeros(())
            charged = omega
        else:
            with watch(self.network, self.steps) as activity:
                logits = self.network(images)
            with torch.set_grad_enabled(strength != 0):
                if self.guard is None or isinstance(self.penalty, TargetPenalty):
                    charged = omega = self.penalty(activity)
                else:
                    shares = self.penalty.by_layer(activity)
                    omega = torch.stack(list(shares.values())).sum()
                    charged = self.guard.charge(shares) if strength > 0 else omega
                    rates = self.guard.rates(shares)
        logits = logits.float()
        entropy = F.cross_entropy(logits, labels)
        loss = entropy + strength * charged if strength != 0 else entropy
        right = (logits.argmax(1) == labels).sum().item()
        samples = len(labels)
        return loss, [samples, entropy.item() * samples, right, omega.item() * samples], rates
