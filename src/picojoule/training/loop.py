"""The loop: epochs of batches, what is measured after each, and the result at the end."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
from torch import nn

from picojoule.data import Batches, Data, RandAugment
from picojoule.errors import PicojouleError
from picojoule.io.signals import Interrupted, Stop
from picojoule.penalty import Penalty, TargetPenalty
from picojoule.recipe import Recipe
from picojoule.runs.evaluate import Evaluation
from picojoule.runs.folder import Run
from picojoule.runs.metadata import run_metadata
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.result import LayerResult, RunResult, Split
from picojoule.runs.verdict import verdict
from picojoule.synapses.table import Synapses
from picojoule.training.budget.budget import Budget
from picojoule.training.budget.controller import Steering
from picojoule.training.budget.guard import Guard
from picojoule.training.checkpoints import Checkpoints
from picojoule.training.distributed import agreed, measure, summed
from picojoule.training.objective import Objective
from picojoule.training.reference import reference_figure
from picojoule.training.reporters import Reporter, say
from picojoule.training.schedules import pace, scheduled_strength

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class Training:
    """The state of one process in one run."""

    fabric: Fabric
    run: Run
    recipe: Recipe
    data: Data
    reporters: tuple[Reporter, ...]
    model: nn.Module
    wrapped: nn.Module
    optimizer: Any
    penalty: Penalty | TargetPenalty | None
    synapses: Synapses | None
    guard: Guard | None
    batches: Batches = field(init=False)
    objective: Objective = field(init=False)
    steering: Steering | None = field(init=False)
    """Where there is a budget."""
    checkpoints: Checkpoints = field(init=False)
    validated: Evaluation | None = None
    """The network as it was measured after its latest epoch."""

    def __post_init__(self) -> None:
        recipe, fabric = self.recipe, self.fabric
        augment = RandAugment(recipe.data.randaugment_n, recipe.data.randaugment_m) if recipe.data.augment else None
        self.batches = Batches(
            self.data.train.to(fabric.device),
            recipe.training.batch_size,
            self.data.normalization if recipe.data.normalize else None,
            seed=recipe.seed,
            augment=augment,
            device=fabric.device,
            rank=fabric.global_rank,
            world_size=fabric.world_size,
        )
        self.objective = Objective(self.wrapped, recipe.neuron.steps, self.penalty, self.guard)
        self.steering = self._steering()
        self.checkpoints = Checkpoints(fabric, self.run, self.model, self.optimizer, self.guard, self.steering)

    def _steering(self) -> Steering | None:
        recipe = self.recipe
        if recipe.penalty.budget is None:
            return None
        assert self.penalty is not None  # a budget is one of spikes
        assert self.synapses is not None
        reference = reference_figure(self.run, recipe)
        budget = Budget(recipe.penalty.budget, recipe.training.epochs, len(self.batches), reference)
        return Steering(self.fabric, self.run, recipe, self.data, self.model, self.penalty, self.synapses, budget)

    def go(self, stop: Stop) -> None:
        recipe, fabric = self.recipe, self.fabric
        first, start, sums, metrics = self.checkpoints.resume(lambda text: say(self.reporters, text))
        if fabric.global_rank == 0:
            self.run.write_metrics(metrics)  # without what the checkpoint does not cover
        for reporter in self.reporters:
            reporter.begin(self.run, recipe, len(self.batches), first, start)
        for epoch in range(first, recipe.training.epochs):
            began = time.monotonic()
            for group in self.optimizer.param_groups:
                group["lr"] = recipe.optimizer.lr * pace(epoch, recipe.training.epochs)
            sums = self._epoch(epoch, start, sums, metrics, stop)
            self._check_weights(epoch)
            start = 0
            metrics.append(self._epoch_metrics(epoch, sums, time.monotonic() - began))
            sums = [0.0] * 4
            if fabric.global_rank == 0:
                self.run.write_metrics(metrics)
            self.checkpoints.write(epoch + 1, 0, sums, metrics)
            for reporter in self.reporters:
                reporter.epoch(metrics[-1])
            if agreed(fabric, stop.requested)[0]:
                raise Interrupted(f"stopped after epoch {epoch + 1}; the same command goes on from there")
        self._finish()

    def _epoch(self, epoch: int, start: int, sums: list[float], metrics: list[EpochMetrics], stop: Stop) -> list[float]:
        self.model.train()
        for number, (images, labels) in enumerate(self.batches.epoch(epoch, start), start):
            images = images.contiguous(memory_format=torch.channels_last)
            loss, terms, rates = self.objective.of(images, labels, self._strength(epoch, number))
            stopping, total_loss, *rates = agreed(self.fabric, stop.requested, loss.item(), *rates)
            if not math.isfinite(total_loss):
                raise self._diverged(f"the loss became {total_loss} in epoch {epoch + 1}, batch {number + 1}")
            self.optimizer.zero_grad()
            self.fabric.backward(loss)
            self.optimizer.step()
            if self.guard is not None:
                self.guard.observe([rate / self.fabric.world_size for rate in rates])
            if self.steering is not None:
                self.steering.steer(epoch, number)
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
            for reporter in self.reporters:
                reporter.step(epoch, number + 1, sums[1] / sums[0], sums[2] / sums[0])
            if stopping:
                self._check_weights(epoch)
                self.checkpoints.write(epoch, number + 1, sums, metrics)
                raise Interrupted(
                    f"stopped in epoch {epoch + 1} after batch {number + 1}; the same command goes on from there"
                )
        return sums

    def _strength(self, epoch: int, batch: int) -> float:
        """λ for a batch."""
        if self.steering is not None:
            return self.steering.budget.strength
        return scheduled_strength(self.recipe, epoch, batch, len(self.batches))

    def _epoch_metrics(self, epoch: int, sums: list[float], seconds: float) -> EpochMetrics:
        if self.steering is not None:
            self.steering.settle()
        if self.fabric.world_size > 1:
            sums = summed(self.fabric, torch.tensor(sums, dtype=torch.float64)).tolist()
            for buffer in self.model.buffers():  # batch norm's: one network is measured, the first process's
                torch.distributed.broadcast(buffer, 0)
        samples, entropy, right, omega = sums
        strength = self._strength(epoch, len(self.batches) - 1)
        validation = self.validated = self._measure("validation")
        energy = validation.energy
        if self.steering is not None:
            self.steering.judge(epoch, validation)
        for layer in energy.layers if energy is not None else ():
            if layer.rate == 0:
                say(
                    self.reporters,
                    f"the layer {layer.name} has fallen silent: no spike on the whole validation set (epoch "
                    f"{epoch + 1})",
                )
        return EpochMetrics(
            epoch=epoch,
            train_loss=entropy / samples,
            train_accuracy=right / samples,
            train_penalty=omega / samples if self.penalty is not None else None,
            validation_loss=validation.loss,
            validation_accuracy=validation.accuracy,
            joules=energy.joules if energy is not None else None,
            rate_mean=energy.rate_mean if energy is not None else None,
            dead_rate=energy.dead_rate if energy is not None else None,
            layers=tuple(LayerResult.parse(layer.to_dict()) for layer in energy.layers) if energy is not None else (),
            lr=self.optimizer.param_groups[0]["lr"],
            strength=strength,
            target_joules=self.steering.budget.wanted(epoch) if self.steering is not None else None,
            seconds=seconds,
        )

    def _finish(self) -> None:
        outcome: dict[str, Any] = {}
        if self.steering is not None:
            held = self.guard.holding if self.guard is not None else []
            another, outcome = self.steering.end(held, lambda text: say(self.reporters, text))
            self.validated = None if another else self.validated
        validation = self.validated or self._measure("validation")  # again where the run was resumed at its very end
        splits = {"test": self._measure("test").to_dict(), "validation": validation.to_dict()}
        if self.fabric.global_rank != 0:
            return
        result = RunResult.parse({**splits, **outcome, **run_metadata(self.recipe, self.fabric)})
        self.run.write_weights(self.model.state_dict())
        self.run.write_result(result)
        said = verdict(result)
        if said is not None:
            say(self.reporters, said)

    def _measure(self, split: Split) -> Evaluation:
        measured = measure(self.fabric, self.model, self.recipe, self.data, split, self.synapses)
        if not math.isfinite(measured.loss):
            raise self._diverged(f"the {split} loss became {measured.loss}")
        return measured

    def _check_weights(self, epoch: int) -> None:
        """A potential that is NaN does not fire, so NaN weights need not show in the loss."""
        for name, parameter in self.model.named_parameters():
            if not parameter.isfinite().all():
                raise self._diverged(f"{name} became infinite or NaN in epoch {epoch + 1}")

    def _diverged(self, what: str) -> PicojouleError:
        kept = f"; the last good checkpoint is kept in {self.run.path}" if self.run.checkpoints else ""
        remedy = "penalty.strength" if self.steering is None else "ask for more energy with penalty.budget"
        return PicojouleError(f"{what}: lower optimizer.lr or {remedy}{kept}")
