"""The training loop: epochs of batches, what is measured after each, and the result at the end."""

from __future__ import annotations

import math
import time
from typing import Any

import torch
import torch.distributed

from picojoule.data import Batches, RandAugment
from picojoule.errors import PicojouleError
from picojoule.io.machine import peak_bytes
from picojoule.io.signals import Interrupted, Stop
from picojoule.neurons.time_steps import as_batch
from picojoule.runs.evaluate import Evaluation
from picojoule.runs.metadata import run_metadata
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.model import load_weights
from picojoule.runs.result import LayerResult, RunResult, Split
from picojoule.runs.verdict import verdict
from picojoule.training.budget.controller import BudgetController
from picojoule.training.budget.recovery import LOWER, LOWER_IN_BUDGET, Recovery
from picojoule.training.checkpoints import Checkpoints, RunProgress
from picojoule.training.distributed import all_reduced, measure, summed
from picojoule.training.fixed_strength import scheduled_strength
from picojoule.training.kernel_choices import kernels_result
from picojoule.training.learning_rate import Annealing
from picojoule.training.objective import EpochSums, Objective, guard_of
from picojoule.training.process import Learner, RunProcess


class Training:
    """The training of one network, as one process of its run sees it.

    Args:
        process: This process of the run.
        learner: The network and what trains it.
    """

    def __init__(self, process: RunProcess, learner: Learner) -> None:
        recipe = process.recipe
        self._process, self._learner = process, learner
        self._batches = _training_batches(process)
        self._guard = guard_of(recipe, learner.penalty)
        self._objective = Objective(learner, recipe.neuron.steps, self._guard, recipe.classes)
        self._controller = BudgetController.of(process, learner, len(self._batches))
        self._recovery = Recovery() if self._guard is not None else None
        self._checkpoints = Checkpoints(process, learner, self._guard, self._controller, self._recovery)
        self._annealing = Annealing(
            process.recipe.training.epochs, len(self._batches), process.recipe.optimizer.anneal or "epochs"
        )
        self._validation: Evaluation | None = None
        """The network as it was measured after its latest epoch."""
        self._silent: set[str] = set()
        """The layers that were silent then, which are not named again while they stay so."""

    def go(self, stop: Stop) -> None:
        """Train from the last checkpoint, or from the start, and write the result.

        Args:
            stop: Asked after every batch whether the run is to stop.

        Raises:
            Interrupted: If it is to stop; a checkpoint is written.
            PicojouleError: If the loss or the weights became infinite or NaN.
        """
        process, recipe = self._process, self._process.recipe
        progress = self._checkpoints.resume()
        if process.is_first:
            process.run.write_metrics(progress.metrics)  # without what the checkpoint does not cover
        for reporter in process.reporters:
            reporter.begin(process.run, recipe, len(self._batches), progress.epoch, progress.batch)
        for epoch in range(progress.epoch, recipe.training.epochs):
            began = time.monotonic()
            self._train_epoch(progress, stop)
            self._check_weights(epoch)
            entry = self._epoch_metrics(epoch, progress.sums, time.monotonic() - began)
            progress = RunProgress(epoch + 1, metrics=[*progress.metrics, entry])
            if process.is_first:
                process.run.write_metrics(progress.metrics)
            self._checkpoints.write(progress)
            for reporter in process.reporters:
                reporter.epoch(entry)
            if all_reduced(process.fabric, stop.requested)[0]:
                raise Interrupted(f"stopped after epoch {epoch + 1}; the same command goes on from there")
        self._finish()

    def _train_epoch(self, progress: RunProgress, stop: Stop) -> None:
        """Train on the batches of an epoch that are not done yet, and note them in the progress."""
        process, learner, epoch = self._process, self._learner, progress.epoch
        fabric = process.fabric
        learner.model.train()
        for number, (images, labels) in enumerate(self._batches.epoch(epoch, progress.batch), progress.batch):
            result = self._objective.evaluate(as_batch(images), labels, self._strength(epoch, number))
            stopping, total_loss, *rates = all_reduced(fabric, stop.requested, result.loss.item(), *result.rates)
            if not math.isfinite(total_loss):
                raise self._diverged(f"the loss became {total_loss} in epoch {epoch + 1}, batch {number + 1}")
            for group in learner.optimizer.param_groups:
                group["lr"] = self._learning_rate(epoch, number)
            learner.optimizer.zero_grad()
            fabric.backward(result.loss)
            learner.optimizer.step()
            if self._guard is not None:
                self._guard.observe([rate / fabric.world_size for rate in rates])
            if self._controller is not None:
                self._controller.after_batch(epoch, number)
            progress.batch, progress.sums = number + 1, progress.sums + result.sums
            for reporter in process.reporters:
                reporter.step(epoch, number + 1, progress.sums.loss, progress.sums.accuracy)
            if stopping:
                self._check_weights(epoch)
                self._checkpoints.write(progress)
                raise Interrupted(
                    f"stopped in epoch {epoch + 1} after batch {number + 1}; the same command goes on from there"
                )

    def _learning_rate(self, epoch: int, batch: int) -> float:
        """Return the learning rate of a batch."""
        return self._process.recipe.optimizer.lr * self._annealing.share(epoch, batch)

    def _strength(self, epoch: int, batch: int) -> float:
        """Return λ for a batch: the budget's, or that of the schedule."""
        if self._controller is not None:
            return self._controller.budget.strength
        scheduled = scheduled_strength(self._process.recipe, epoch, batch, len(self._batches))
        return scheduled if self._recovery is None else scheduled * self._recovery.factor

    def _epoch_metrics(self, epoch: int, sums: EpochSums, seconds: float) -> EpochMetrics:
        """Measure the network after an epoch and return the epoch's line of `metrics.jsonl`."""
        if self._controller is not None:
            self._controller.refresh_batch_norm()
        if self._process.fabric.world_size > 1:
            sums = EpochSums.from_tensor(summed(self._process.fabric, sums.to_tensor()))
            for buffer in self._learner.model.buffers():  # batch norm's: one network is measured, the first process's
                torch.distributed.broadcast(buffer, 0)
        strength = self._strength(epoch, len(self._batches) - 1)
        validation = self._validation = self._measure("validation")
        energy = validation.energy
        if self._controller is not None:
            self._controller.after_epoch(epoch, validation)
        silent = {each.name: each.layer for each in energy.layers if each.rate == 0} if energy is not None else {}
        for name, layer in silent.items():
            if name not in self._silent:
                self._process.say(
                    f"the layer {layer.title} has fallen silent: no spike on the whole validation set (epoch "
                    f"{epoch + 1}); {self._remedy_of_silence(strength)}"
                )
        self._silent = set(silent)
        self._go_back_if_lost(epoch, list(silent), strength)
        layers = tuple(LayerResult.parse(layer.to_dict()) for layer in energy.layers) if energy is not None else ()
        return EpochMetrics(
            epoch=epoch,
            train_loss=sums.loss,
            train_accuracy=sums.accuracy,
            train_penalty=sums.penalty / sums.samples if self._learner.penalty is not None else None,
            validation_loss=validation.loss,
            validation_accuracy=validation.accuracy,
            joules=energy.joules if energy is not None else None,
            rate_mean=energy.rate_mean if energy is not None else None,
            dead_rate=energy.dead_rate if energy is not None else None,
            layers=layers,
            lr=self._learning_rate(epoch, len(self._batches) - 1),
            strength=strength,
            target_joules=self._controller.budget.wanted_joules(epoch) if self._controller is not None else None,
            seconds=seconds,
            peak_bytes=peak_bytes(),
        )

    def _remedy_of_silence(self, strength: float) -> str:
        """Say what to do about a silent layer."""
        if self._controller is not None:
            return "ask for more energy with penalty.budget"
        if strength == 0:
            return "lower neuron.threshold or optimizer.lr until it fires"
        guard = "" if self._guard is not None else ", or take penalty.guard=true"
        return f"lower penalty.strength{guard}"

    def _go_back_if_lost(self, epoch: int, silent: list[str], strength: float) -> None:
        """Go back to the last good network, with a lower strength, when a guarded run has lost it.

        A run with a budget loses a network by silence alone, for its own law steers what was learned and spent; after
        the last epoch its best network is selected.
        """
        guard, recovery, learner, controller = self._guard, self._recovery, self._learner, self._controller
        if guard is None or recovery is None:
            return
        last = epoch + 1 == self._process.recipe.training.epochs
        if controller is not None and (last or controller.budget.reference is None):
            return
        share, factor = (guard.share, LOWER) if controller is None else (1.0, LOWER_IN_BUDGET)
        if recovery.after_epoch(silent, share, learner.model.state_dict()):
            load_weights(learner.model, recovery.weights, f"the last good weights in {self._process.run.path}")
            if controller is not None:
                controller.go_on_from_earlier(factor)
            learner.optimizer.state.clear()
            self._validation = None
            self._process.say(
                f"the penalty was too strong for this network: after epoch {epoch + 1} the run goes back to its last "
                f"good weights, with a strength of {factor * strength:g} in place of {strength:g}"
            )

    def _finish(self) -> None:
        """Measure the network that is the run's, and write its weights and its result."""
        process = self._process
        outcome: dict[str, Any] = {}
        if self._controller is not None:
            another, outcome = self._controller.finish(self._guard.holding if self._guard is not None else [])
            self._validation = None if another else self._validation
        if self._recovery is not None and self._controller is None and self._recovery.to_be_taken:
            load_weights(self._learner.model, self._recovery.weights, f"the last good weights in {process.run.path}")
            self._validation = None
            process.say("the network of the last epochs had lost what it had learned: the last good one is taken")
        validation = self._validation or self._measure("validation")  # again where a run was resumed at its very end
        splits = {"test": self._measure("test").to_dict(), "validation": validation.to_dict()}
        if not process.is_first:
            return
        metadata = run_metadata(process.recipe, process.fabric)
        kernels = kernels_result(self._learner.model)
        result = RunResult.parse({**splits, **outcome, **metadata, "kernels": kernels})
        process.run.write_weights(self._learner.model.state_dict())
        process.run.write_result(result)
        said = verdict(result)
        if said is not None:
            process.say(said)

    def _measure(self, split: Split) -> Evaluation:
        """Evaluate the network on one split, over all processes."""
        process = self._process
        synapses, model = self._learner.synapses, self._learner.model
        measured = measure(process.fabric, model, process.recipe, process.data, split, synapses)
        if not math.isfinite(measured.loss):
            raise self._diverged(f"the {split} loss became {measured.loss}")
        return measured

    def _check_weights(self, epoch: int) -> None:
        """Refuse weights that are not finite: a potential that is NaN does not fire, so the loss need not show them."""
        for name, parameter in self._learner.model.named_parameters():
            if not parameter.isfinite().all():
                raise self._diverged(f"{name} became infinite or NaN in epoch {epoch + 1}")

    def _diverged(self, what: str) -> PicojouleError:
        """Make the error of a run whose numbers are not finite."""
        run = self._process.run
        kept = f"; the last good checkpoint is kept in {run.path}" if run.checkpoints else ""
        remedy = "penalty.strength" if self._controller is None else "ask for more energy with penalty.budget"
        return PicojouleError(f"{what}: lower optimizer.lr or {remedy}{kept}")


def _training_batches(process: RunProcess) -> Batches:
    """Make the batches of this process, augmented and in random order as the recipe has it."""
    recipe, fabric, data = process.recipe, process.fabric, process.data
    augment = RandAugment(recipe.data.randaugment_n, recipe.data.randaugment_m) if recipe.data.augment else None
    return Batches(
        data.train.to(fabric.device),
        recipe.training.batch_size,
        data.normalization if recipe.data.normalize else None,
        seed=recipe.seed,
        augment=augment,
        device=fabric.device,
        rank=fabric.global_rank,
        world_size=fabric.world_size,
    )
