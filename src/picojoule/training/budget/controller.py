"""The budget's controller in a run: what the network spends now, the strength that follows, and the network chosen."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from picojoule.data import Batches, Images
from picojoule.energy.hardware import get as price_list
from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError
from picojoule.neurons.time_steps import as_batch
from picojoule.recipe import Recipe
from picojoule.runs.evaluate import Evaluation
from picojoule.runs.model import load_weights
from picojoule.spikes.watch import watch
from picojoule.training.budget.batch_norm import by_batch_statistics, recompute_running_averages
from picojoule.training.budget.control_law import ENOUGH_UPDATES, ControlLaw
from picojoule.training.budget.selection import Candidate, Selection
from picojoule.training.distributed import all_reduced, measure
from picojoule.training.learning_rate import Annealing
from picojoule.training.process import Learner, RunProcess
from picojoule.training.reference import baseline_joules

SAMPLE_BATCHES = 2
"""Batches of training images, always the same, on which the penalty is looked at every few batches."""
AVERAGED_BATCHES = 20
"""Batches of training images, always the same, over which the running averages of batch norms are recomputed."""
CHECKED_IMAGES = 1000
"""Validation images, about, on which the energy is measured within an epoch."""


def few_updates(recipe: Recipe, batches: int) -> str | None:
    """Warn of a run that has too few updates to come down to its budget.

    Args:
        recipe: The run's recipe.
        batches: Batches per epoch.

    Returns:
        A sentence with what it has, what it would need and how it gets there; None where there are enough.
    """
    updates, size = recipe.training.epochs * batches, recipe.training.batch_size
    if updates >= ENOUGH_UPDATES:
        return None
    smaller = max(size * updates // ENOUGH_UPDATES, 2)
    return (
        f"a budget needs about {ENOUGH_UPDATES} updates to be met, and this run has {updates}: take "
        f"training.epochs={-(-ENOUGH_UPDATES // batches)} or training.batch_size={smaller}, or it may miss by far"
    )


STRICT_AIM = 0.97
"""The share of a strict budget that is aimed at: what is met within 3 % of it does not exceed the budget."""


def fixed_joules(recipe: Recipe, learner: Learner) -> float:
    """Price what no spike changes, where the recipe's budget counts it: the encoder and the neuron updates.

    Args:
        recipe: The run's recipe.
        learner: The network and its synapses.

    Returns:
        Joules per image; 0 where the budget counts spikes alone.

    Raises:
        PicojouleError: If the price list has no price for the encoder.
    """
    synapses = learner.synapses
    if recipe.penalty.budget_on != "total" or synapses is None:
        return 0.0
    prices = price_list(recipe.energy.hardware)
    if prices.multiply_accumulate is None and synapses.encoder_macs:
        raise PicojouleError(
            f"penalty.budget_on = 'total' needs a price for the encoder, which {prices.name} does not have: take "
            "another energy.hardware, or budget_on = 'spikes'"
        )
    updates = sum(layer.neurons * (prices.per_update(layer) or 0.0) for layer in synapses.spiking)
    return synapses.encoder_macs * (prices.multiply_accumulate or 0.0) + synapses.steps * updates


def _check_fixed(process: RunProcess, budget: ControlLaw, fixed: float) -> None:
    """Refuse a budget that what no spike changes takes up by itself, else say what is left."""
    target = budget.target
    if target is not None and target <= 0:
        raise PicojouleError(
            f"penalty.budget = {process.recipe.penalty.budget!r} is less than the {format_joules(fixed)} that encoder "
            "and neuron updates cost without a spike: ask for more energy, or take a smaller first layer"
        )
    left = "" if target is None else f", which leaves {format_joules(target)} for spikes"
    process.say(f"encoder and neuron updates cost {format_joules(fixed)} per image whatever fires{left}")


@dataclass
class BudgetController:
    """The controller of one run with a budget, in one of its processes.

    Attributes:
        process: This process of the run.
        learner: The network and its penalty.
        budget: The control law, which gives the strength.
        selection: The best network so far.
    """

    process: RunProcess
    learner: Learner
    budget: ControlLaw
    selection: Selection = field(default_factory=Selection)
    _sample: Tensor = field(init=False, repr=False)
    _averaged: Batches = field(init=False, repr=False)

    @classmethod
    def of(cls, process: RunProcess, learner: Learner, batches: int) -> BudgetController | None:
        """Make the controller that a recipe asks for.

        Args:
            process: This process of the run.
            learner: The network and its penalty.
            batches: Batches per epoch.

        Returns:
            The controller; None where the recipe has no budget.
        """
        recipe = process.recipe
        if recipe.penalty.budget is None:
            return None
        fixed, aim = fixed_joules(recipe, learner), STRICT_AIM if recipe.penalty.strict else 1.0
        budget = ControlLaw(
            recipe.penalty.budget,
            recipe.training.epochs,
            batches,
            process.reference,
            fixed=fixed,
            aim=aim,
            annealing=Annealing(recipe.training.epochs, batches, recipe.optimizer.anneal or "epochs"),
        )
        if fixed:
            _check_fixed(process, budget, fixed)
        warning = few_updates(recipe, batches)
        if warning is not None:
            process.say(warning)
        return cls(process, learner, budget)

    def __post_init__(self) -> None:
        sample = [images for images, _ in self._evenly_chosen(SAMPLE_BATCHES)]
        self._sample = as_batch(torch.cat(sample, dim=0 if self.process.recipe.frames is None else 1))
        self._averaged = self._evenly_chosen(AVERAGED_BATCHES)

    def _evenly_chosen(self, batches: int) -> Batches:
        """Take about so many batches from all over the training images, without augmentation."""
        recipe, train = self.process.recipe, self.process.data.train
        size = min(recipe.training.batch_size, len(train))
        chosen = torch.arange(0, len(train), max(len(train) // (batches * size), 1))
        chosen = chosen[: len(chosen) // size * size]  # batch norm may have no statistics of a remainder
        return Batches(
            Images(train.images[chosen], train.labels[chosen]),
            size,
            self.process.data.normalization if recipe.data.normalize else None,
            device=self.process.fabric.device,
        )

    @torch.no_grad()
    def _sample_penalty(self) -> float:
        """Return Ω of the fixed sample, by its own batch-norm statistics and averaged over all processes."""
        model, penalty, fabric = self.learner.model, self.learner.penalty, self.process.fabric
        assert penalty is not None  # a budget is one of spikes
        with by_batch_statistics(model), watch(model, self.process.recipe.neuron.steps) as activity:
            model(self._sample)
        return all_reduced(fabric, penalty(activity).item())[0] / fabric.world_size

    def refresh_batch_norm(self) -> None:
        """Recompute the running averages of batch norms for the network as it is now.

        Evaluation goes by these averages. As training leaves them, they are those of the networks before it, and so
        not of the network that was controlled. Before the reference energy is known, they stay as they are.
        """
        if self.budget.reference is not None:
            batches = (as_batch(images) for images, _ in self._averaged)
            recompute_running_averages(self.learner.model, batches)

    def after_batch(self, epoch: int, batch: int) -> None:
        """Update the strength after a batch.

        Args:
            epoch: The epoch, counted from 0.
            batch: The batch in it, counted from 0.
        """
        budget = self.budget
        budget.update(epoch, batch, self._sample_penalty() if budget.needs_estimate(epoch, batch) else None)
        if budget.needs_measurement(epoch, batch):
            self.refresh_batch_norm()
            budget.calibrate(self._joules_now(), self._sample_penalty())

    def _joules_now(self) -> float:
        """Measure the joules per image on about `CHECKED_IMAGES` validation images."""
        process, learner, validation = self.process, self.learner, self.process.data.validation
        every = max(len(validation) // CHECKED_IMAGES, 1)
        few = replace(process.data, validation=Images(validation.images[::every], validation.labels[::every]))
        energy = measure(process.fabric, learner.model, process.recipe, few, "validation", learner.synapses).energy
        learner.model.train()
        assert energy is not None  # a budget is one of spikes
        return energy.joules

    def after_epoch(self, epoch: int, validation: Evaluation) -> None:
        """Calibrate the control law after an epoch and offer the network to the selection.

        Args:
            epoch: The epoch, counted from 0.
            validation: The network on all validation images.
        """
        budget, energy = self.budget, validation.energy
        assert energy is not None  # a budget is one of spikes
        budget.finish_epoch(epoch, energy.joules, self._sample_penalty())
        if budget.wanted_joules(epoch) is not None and budget.target is not None and budget.reference is not None:
            silent = tuple(layer.name for layer in energy.layers if layer.rate == 0)
            strict = bool(self.process.recipe.penalty.strict)
            candidate = Candidate(epoch, energy.joules, validation.accuracy, silent, strict)
            self.selection.offer(candidate, self.learner.model.state_dict(), budget.target, budget.reference)

    def go_on_from_earlier(self, factor: float) -> None:
        """Take note that the network has the weights of an earlier epoch again, and go on with a lower strength.

        Args:
            factor: What the strength is multiplied by.
        """
        self.budget.weaken(factor)
        self.refresh_batch_norm()
        self.budget.calibrate(self._joules_now(), self._sample_penalty())

    def finish(self, held: list[str]) -> tuple[bool, dict[str, Any]]:
        """Give the network the weights that were selected.

        Args:
            held: The layers that the guard holds at the least firing rate.

        Returns:
            Whether the network is another one than after the last epoch, and the entries of `result.json` on the
            budget.
        """
        budget, best, last = self.budget, self.selection.best, self.selection.last
        if best is None or last is None or budget.target is None or budget.reference is None:
            return False, {}
        target, reference = budget.target, budget.reference
        another = best != last and not last.hits(target, reference)
        chosen = best if another else last
        process = self.process
        if chosen.strict and not chosen.meets(target, reference):
            raise PicojouleError(
                f"no network of this run stays within {format_joules(target)} for its spikes (the nearest spends "
                f"{format_joules(chosen.joules)}), which penalty.strict demands: train for more epochs, or ask for "
                "more energy"
            )
        if another:
            where = f"the weights of epoch {chosen.epoch + 1} in {process.run.path}"
            load_weights(self.learner.model, self.selection.weights, where)
        return another, {
            "reference_joules": reference,
            "budget": {
                "target_joules": target,
                "met": chosen.meets(target, reference),
                "epoch": chosen.epoch,
                "baseline_joules": baseline_joules(process.run, process.recipe, process.say),
                "silenced": [{"layer": name, **when} for name, when in self.selection.silenced.items()],
                "held": held,
            },
        }
