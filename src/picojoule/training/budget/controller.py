"""A budget in a run: what the network spends now, the strength that follows from it, and the network that is kept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from picojoule.data import Batches, Data, Images
from picojoule.penalty import Penalty, TargetPenalty
from picojoule.recipe import Recipe
from picojoule.runs.evaluate import Evaluation
from picojoule.runs.folder import Run
from picojoule.runs.model import load_weights
from picojoule.spikes.watch import watch
from picojoule.synapses.table import Synapses
from picojoule.training.budget.batch_norm import by_batch_statistics, settle_averages
from picojoule.training.budget.budget import Budget
from picojoule.training.budget.selection import Candidate, Kept
from picojoule.training.distributed import agreed, measure
from picojoule.training.reference import baseline_joules

if TYPE_CHECKING:
    from lightning_fabric import Fabric

SAMPLE_BATCHES = 2
"""Batches of training images, always the same, on which a budget run looks at what the network spends."""
AVERAGED_BATCHES = 20
"""Batches of training images, always the same, over which a budget run takes its batch norms' averages."""
CHECKED_IMAGES = 1000
"""Of the validation images, on which it is asked within an epoch what the network spends."""


@dataclass
class Steering:
    """The state of one process in a run with a budget."""

    fabric: Fabric
    run: Run
    recipe: Recipe
    data: Data
    model: nn.Module
    penalty: Penalty | TargetPenalty
    synapses: Synapses
    budget: Budget
    kept: Kept = field(default_factory=Kept)
    sample: Tensor = field(init=False)
    """The training images on which a budget run looks at what the network spends."""
    averaged: Batches = field(init=False)
    """The training images over which a budget run takes its batch norms' averages."""

    def __post_init__(self) -> None:
        sample = [images for images, _ in self._evenly_chosen(SAMPLE_BATCHES)]
        self.sample = torch.cat(sample).contiguous(memory_format=torch.channels_last)
        self.averaged = self._evenly_chosen(AVERAGED_BATCHES)

    def _evenly_chosen(self, batches: int) -> Batches:
        """About so many batches from all over the training images, as they are."""
        recipe, train = self.recipe, self.data.train
        size = min(recipe.training.batch_size, len(train))
        chosen = torch.arange(0, len(train), max(len(train) // (batches * size), 1))
        chosen = chosen[: len(chosen) // size * size]  # batch norm may have no statistics of a remainder
        return Batches(
            Images(train.images[chosen], train.labels[chosen]),
            size,
            self.data.normalization if recipe.data.normalize else None,
            device=self.fabric.device,
        )

    @torch.no_grad()
    def _look(self) -> float:
        """Ω of the sample, by its own statistics."""
        with by_batch_statistics(self.model), watch(self.model, self.recipe.neuron.steps) as activity:
            self.model(self.sample)
        return agreed(self.fabric, self.penalty(activity).item())[0] / self.fabric.world_size

    def settle(self) -> None:
        """What is judged by its averages is the network that was steered, not the mean of those before it."""
        if self.budget.reference is not None:
            batches = (images.contiguous(memory_format=torch.channels_last) for images, _ in self.averaged)
            settle_averages(self.model, batches)

    def steer(self, epoch: int, batch: int) -> None:
        """After a batch."""
        self.budget.step(epoch, batch, self._look() if self.budget.looks(epoch, batch) else None)
        if self.budget.checks(epoch, batch):
            self.settle()
            self.budget.checked(self._joules_now(), self._look())

    def _joules_now(self) -> float:
        validation = self.data.validation
        every = max(len(validation) // CHECKED_IMAGES, 1)
        few = replace(self.data, validation=Images(validation.images[::every], validation.labels[::every]))
        energy = measure(self.fabric, self.model, self.recipe, few, "validation", self.synapses).energy
        self.model.train()
        assert energy is not None  # a budget is one of spikes
        return energy.joules

    def judge(self, epoch: int, validation: Evaluation) -> None:
        """After an epoch."""
        budget, energy = self.budget, validation.energy
        assert energy is not None  # a budget is one of spikes
        budget.measured(epoch, energy.joules, self._look())
        if budget.wanted(epoch) is not None and budget.target is not None and budget.reference is not None:
            silent = tuple(layer.name for layer in energy.layers if layer.rate == 0)
            candidate = Candidate(epoch, energy.joules, validation.accuracy, silent)
            self.kept.offer(candidate, self.model.state_dict(), budget.target, budget.reference)

    def end(self, held: list[str], say: Callable[[str], None]) -> tuple[bool, dict[str, Any]]:
        """Take the network that is kept: whether it is another than the last, and how it stands to the budget."""
        budget, kept, last = self.budget, self.kept.candidate, self.kept.last
        if kept is None or last is None or budget.target is None or budget.reference is None:
            return False, {}
        target, reference = budget.target, budget.reference
        another = kept != last and not last.hit(target, reference)
        if another:
            load_weights(self.model, self.kept.weights, f"the weights of epoch {kept.epoch + 1} in {self.run.path}")
        else:
            kept = last
        return another, {
            "reference_joules": reference,
            "budget": {
                "target_joules": target,
                "met": kept.met(target, reference),
                "epoch": kept.epoch,
                "baseline_joules": baseline_joules(self.run, self.recipe, say),
                "silenced": [{"layer": name, **when} for name, when in self.kept.silenced.items()],
                "held": held,
            },
        }
