"""The training objective of a batch: L = CE + λ·Ω, with the penalty Ω on its spikes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.kernels.event_driven.layers import choices
from picojoule.neurons.time_steps import logits_of
from picojoule.penalty import Penalty, TargetPenalty
from picojoule.recipe import Recipe
from picojoule.spikes.watch import watch
from picojoule.synapses.table import Synapses
from picojoule.training.budget.guard import LayerGuard
from picojoule.training.process import Learner


def penalty_of(recipe: Recipe, synapses: Synapses, reference: float | None) -> Penalty | TargetPenalty:
    """Build the penalty that a recipe asks for.

    Args:
        recipe: The run's recipe.
        synapses: ψ of the network's layers.
        reference: Synaptic operations of the reference run, in whose multiples a target is given; None for a target
            in operations.

    Returns:
        The penalty on spikes.
    """
    settings = recipe.penalty
    if settings.kind != "target":
        return Penalty(synapses, settings.kind, settings.p, settings.normalized)
    assert settings.target is not None  # the recipe was checked
    return TargetPenalty(synapses, settings.target * (1.0 if reference is None else reference))


def guard_of(recipe: Recipe, penalty: Penalty | TargetPenalty | None) -> LayerGuard | None:
    """Build the guard of the firing rates, if the recipe asks for one.

    Args:
        recipe: The run's recipe.
        penalty: The penalty whose shares are guarded.

    Returns:
        The guard; None where the recipe has none, or the penalty has no shares by layer.
    """
    wanted = recipe.penalty.budget is not None if recipe.penalty.guard is None else recipe.penalty.guard
    if not wanted or not isinstance(penalty, Penalty):
        return None
    return LayerGuard(penalty.by_layer_at_one(recipe.neuron.steps), classes=recipe.classes)


@dataclass(frozen=True)
class EpochSums:
    """Sums over the images that an epoch has shown so far.

    Attributes:
        samples: Images.
        cross_entropy: Their cross-entropy.
        correct: Right answers.
        penalty: Ω.

    >>> EpochSums(10, 23.0, 4, 0.5) + EpochSums(10, 21.0, 5, 0.5)
    EpochSums(samples=20, cross_entropy=44.0, correct=9, penalty=1.0)
    """

    samples: float = 0.0
    cross_entropy: float = 0.0
    correct: float = 0.0
    penalty: float = 0.0

    def __add__(self, other: EpochSums) -> EpochSums:
        return EpochSums(
            self.samples + other.samples,
            self.cross_entropy + other.cross_entropy,
            self.correct + other.correct,
            self.penalty + other.penalty,
        )

    def to_tensor(self) -> Tensor:
        """Return the sums as a tensor of float64, in the order of the attributes.

        Returns:
            A tensor of four numbers, as a checkpoint stores it.
        """
        return torch.tensor([getattr(self, field.name) for field in fields(self)], dtype=torch.float64)

    @classmethod
    def from_tensor(cls, values: Tensor) -> EpochSums:
        """Take the sums from what `to_tensor` gave.

        Args:
            values: Four numbers.

        Returns:
            The sums.
        """
        return cls(*values.tolist())

    @property
    def loss(self) -> float:
        """Mean cross-entropy per image."""
        return self.cross_entropy / self.samples

    @property
    def accuracy(self) -> float:
        """Share of right answers."""
        return self.correct / self.samples


@dataclass(frozen=True)
class BatchResult:
    """What the forward pass of a batch gave.

    Attributes:
        loss: The objective, to be differentiated.
        sums: What the batch adds to the sums of its epoch.
        rates: Firing rates of the guarded layers and the cross-entropy; empty without a guard.
    """

    loss: Tensor
    sums: EpochSums
    rates: list[float]


@dataclass(frozen=True)
class Objective:
    """The loss L = CE + λ·Ω of a network; with a guard, Ω is weighted by layer.

    Attributes:
        learner: The network and its penalty.
        steps: Time steps of an image.
        guard: The guard of the firing rates, if there is one.
        classes: Classes of the data.
    """

    learner: Learner
    steps: int
    guard: LayerGuard | None
    classes: int

    @cached_property
    def _packed(self) -> bool:
        """Whether layers skip silent inputs: the spikes are then kept as bits, as the layers do."""
        return bool(choices(self.learner.model))

    def evaluate(self, images: Tensor, labels: Tensor, strength: float) -> BatchResult:
        """Show a batch to the network in training and compute its loss.

        Args:
            images: The batch, [B, C, H, W].
            labels: Its classes, [B].
            strength: λ; with 0 the penalty is only measured.

        Returns:
            The loss, and what is noted of the batch.
        """
        network, penalty = self.learner.wrapped, self.learner.penalty
        shares: dict[str, Tensor] = {}
        if penalty is None:
            outputs, omega = network(images), torch.zeros(())
            charged = omega
        else:
            with watch(network, self.steps, packed=self._packed) as activity:
                outputs = network(images)
            with torch.set_grad_enabled(strength != 0):
                if self.guard is None or isinstance(penalty, TargetPenalty):
                    charged = omega = penalty(activity)
                else:
                    shares = penalty.by_layer(activity)
                    omega = torch.stack(list(shares.values())).sum()
                    charged = self.guard.charge(shares, strength) if strength > 0 else omega
        logits = logits_of(outputs, len(labels), self.classes).float()
        entropy = F.cross_entropy(logits, labels)
        rates = self.guard.observations(shares, entropy.item()) if self.guard is not None and shares else []
        loss = entropy + strength * charged if strength != 0 else entropy
        correct = (logits.argmax(1) == labels).sum().item()
        samples = len(labels)
        sums = EpochSums(samples, entropy.item() * samples, correct, omega.item() * samples)
        return BatchResult(loss, sums, rates)
