"""Training: the only loop there is.

    L = mean over the batch of [ CE + λ(e)·Ω ] + coupled weight decay,   λ(e) = strength · (e + 1)/E (schedule "linear")

or, where the recipe has a budget, the strength that `budget` finds from batch to batch;
with the learning rate ½·lr·(1 + cos(πe/E)) in epoch e = 0 … E−1. The result is that of the last epoch; penalty and
energy are taken on the spikes before dropout. On Lightning Fabric: CPU, CUDA or MPS, one device or several.

A run writes a checkpoint every epoch and when it is told to stop (SIGINT, SIGTERM); the same call resumes it and, on
CPU, ends with the same bits as a run that was never disturbed.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch
import torch.distributed
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from picojoule.activity import watch
from picojoule.batch_norm import by_batch_statistics, settle_averages
from picojoule.budget import Budget, Guard, pace
from picojoule.circumstances import circumstances
from picojoule.data import Batches, Data, Images, RandAugment
from picojoule.errors import PicojouleError
from picojoule.evaluation import Evaluation, Split, build_model, count_synapses, load_weights, measure, summed
from picojoule.interruption import Interrupted, Stop, stop_signals
from picojoule.kept import Candidate, Kept, verdict
from picojoule.penalty import Penalty, TargetPenalty
from picojoule.recipe import Recipe
from picojoule.record import Checkpoint, Run
from picojoule.synapse import Synapses

if TYPE_CHECKING:
    from lightning_fabric import Fabric


SAMPLE_BATCHES = 2
"""Batches of training images, always the same, on which a budget run looks at what the network spends."""
AVERAGED_BATCHES = 20
"""Batches of training images, always the same, over which a budget run takes its batch norms' averages."""
CHECKED_IMAGES = 1000
"""Of the validation images, on which it is asked within an epoch what the network spends."""


class Reporter(Protocol):
    """Somebody who is told how a run goes: a progress display, a log, TensorBoard."""

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None: ...
    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None: ...
    def epoch(self, metrics: dict[str, Any]) -> None: ...
    def say(self, text: str) -> None: ...
    def end(self) -> None: ...


class Log:
    """The reporter of last resort."""

    def begin(self, run: Run, recipe: Recipe, batches: int, epoch: int, batch: int) -> None: ...
    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None: ...
    def epoch(self, metrics: dict[str, Any]) -> None: ...
    def end(self) -> None: ...

    def say(self, text: str) -> None:
        logging.getLogger("picojoule").warning(text)


def train(fabric: Fabric, run: Run, recipe: Recipe, data: Data, reporters: tuple[Reporter, ...]) -> None:
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.training.threads)
    reporters = (reporters or (Log(),)) if fabric.global_rank == 0 else ()
    model = build_model(recipe)
    if fabric.global_rank:  # the same weights in every process, but not the same dropout
        torch.manual_seed(int(np.random.SeedSequence((recipe.seed, fabric.global_rank)).generate_state(1)[0]))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's annotations
    if recipe.training.start_from is not None:
        _start_from(run.beside(recipe.training.start_from, "training.start_from"), model)
    synapses = count_synapses(model, recipe)
    penalty = _penalty(run, recipe, synapses) if synapses is not None else None
    if fabric.world_size > 1 and any(isinstance(m, _BatchNorm) for m in model.modules()):
        if fabric.device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        else:
            _say(reporters, "batch-norm statistics are those of each process: the CPU has no synchronised batch norm")
    wrapped, optimizer = fabric.setup(model, _optimizer(recipe, model))
    guard = _guard(recipe, penalty)
    training = _Training(fabric, run, recipe, data, reporters, model, wrapped, optimizer, penalty, synapses, guard)
    try:
        with stop_signals() as stop:
            training.go(stop)
    finally:
        for reporter in reporters:
            reporter.end()


def _start_from(earlier: Run, model: nn.Module) -> None:
    load_weights(
        model,
        earlier.weights,
        f"the weights of {earlier.path}, which training.start_from names,",
        "name a run of the same model",
    )


def _penalty(run: Run, recipe: Recipe, synapses: Synapses) -> Penalty | TargetPenalty:
    settings = recipe.penalty
    if settings.kind != "target":
        return Penalty(synapses, settings.kind, settings.p, settings.normalized)
    unit = 1.0
    if settings.reference is not None:
        unit = run.beside(settings.reference, "penalty.reference").result["validation"]["synops"]
        if not unit:
            raise PicojouleError(
                f"penalty.reference = {settings.reference!r} names a run that spends no synaptic operations: name one "
                "that does, or leave it out and give penalty.target in operations per image"
            )
    assert settings.target is not None  # the recipe was checked
    return TargetPenalty(synapses, settings.target * unit)


def _guard(recipe: Recipe, penalty: Penalty | TargetPenalty | None) -> Guard | None:
    wanted = recipe.penalty.budget is not None if recipe.penalty.guard is None else recipe.penalty.guard
    return Guard(penalty.by_layer_at_one(recipe.neuron.steps)) if wanted and isinstance(penalty, Penalty) else None


def _reference_joules(run: Run, recipe: Recipe) -> float | None:
    """What the run that `penalty.reference` names spends on the validation images."""
    if recipe.penalty.budget is None or recipe.penalty.reference is None:
        return None
    reference = run.beside(recipe.penalty.reference, "penalty.reference")
    if reference.recipe.energy != recipe.energy:
        raise PicojouleError(
            f"penalty.reference = {recipe.penalty.reference!r} was measured with another energy.psi or "
            "energy.hardware: name a run with the same"
        )
    joules: float | None = reference.result["validation"]["joules"]
    if not joules:
        raise PicojouleError(
            f"penalty.reference = {recipe.penalty.reference!r} names a run without spikes: name one that has some, or "
            "leave it out"
        )
    return joules


def _optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    settings = recipe.optimizer
    norms = {id(p) for m in model.modules() if isinstance(m, _BatchNorm) for p in m.parameters(recurse=False)}
    spared = [p for p in model.parameters() if id(p) in norms and not settings.decay_batch_norm]
    decayed = [p for p in model.parameters() if id(p) not in norms or settings.decay_batch_norm]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    if settings.name == "adam":
        return torch.optim.Adam(groups, lr=settings.lr, betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=0.9)


@dataclass
class _Training:
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
    batches: int = 0
    """In an epoch."""
    budget: Budget | None = None
    kept: Kept = field(default_factory=Kept)
    sample: Tensor | None = None
    """The training images on which a budget run looks at what the network spends."""
    averaged: Batches | None = None
    """The training images over which a budget run takes its batch norms' averages."""
    validated: Evaluation | None = None
    """The network as it was measured after its latest epoch."""

    def go(self, stop: Stop) -> None:
        recipe, fabric = self.recipe, self.fabric
        augment = RandAugment(recipe.data.randaugment_n, recipe.data.randaugment_m) if recipe.data.augment else None
        batches = Batches(
            self.data.train.to(fabric.device),
            recipe.training.batch_size,
            self.data.normalization if recipe.data.normalize else None,
            seed=recipe.seed,
            augment=augment,
            device=fabric.device,
            rank=fabric.global_rank,
            world_size=fabric.world_size,
        )
        self.batches = len(batches)
        if recipe.penalty.budget is not None:
            self._set_budget(recipe.penalty.budget, len(batches))
        first, start, sums, metrics = self._resume()
        if fabric.global_rank == 0:
            self.run.write_metrics(metrics)  # without what the checkpoint does not cover
        for reporter in self.reporters:
            reporter.begin(self.run, recipe, len(batches), first, start)
        for epoch in range(first, recipe.training.epochs):
            began = time.monotonic()
            for group in self.optimizer.param_groups:
                group["lr"] = recipe.optimizer.lr * pace(epoch, recipe.training.epochs)
            sums = self._epoch(batches, epoch, start, sums, metrics, stop)
            self._check_weights(epoch)
            start = 0
            metrics.append(self._epoch_metrics(epoch, sums, time.monotonic() - began))
            sums = [0.0] * 4
            if fabric.global_rank == 0:
                self.run.write_metrics(metrics)
            self._checkpoint(epoch + 1, 0, sums, metrics)
            for reporter in self.reporters:
                reporter.epoch(metrics[-1])
            if self._agreed(stop.requested)[0]:
                raise Interrupted(f"stopped after epoch {epoch + 1}; the same command goes on from there")
        self._finish()

    def _epoch(
        self,
        batches: Batches,
        epoch: int,
        start: int,
        sums: list[float],
        metrics: list[dict[str, Any]],
        stop: Stop,
    ) -> list[float]:
        self.model.train()
        for number, (images, labels) in enumerate(batches.epoch(epoch, start), start):
            images = images.contiguous(memory_format=torch.channels_last)
            loss, terms, rates = self._losses(images, labels, self._strength(epoch, number))
            stopping, total_loss, *rates = self._agreed(stop.requested, loss.item(), *rates)
            if not math.isfinite(total_loss):
                raise self._diverged(f"the loss became {total_loss} in epoch {epoch + 1}, batch {number + 1}")
            self.optimizer.zero_grad()
            self.fabric.backward(loss)
            self.optimizer.step()
            self._steer(epoch, number, rates)
            sums = [total + term for total, term in zip(sums, terms, strict=True)]
            for reporter in self.reporters:
                reporter.step(epoch, number + 1, sums[1] / sums[0], sums[2] / sums[0])
            if stopping:
                self._check_weights(epoch)
                self._checkpoint(epoch, number + 1, sums, metrics)
                raise Interrupted(
                    f"stopped in epoch {epoch + 1} after batch {number + 1}; the same command goes on from there"
                )
        return sums

    def _strength(self, epoch: int, batch: int) -> float:
        """λ for a batch."""
        if self.budget is not None:
            return self.budget.strength
        settings, epochs = self.recipe.penalty, self.recipe.training.epochs
        if settings.rise_from is not None:
            risen = (epoch * self.batches + batch + 1) / (epochs * self.batches)
            return settings.rise_from + (settings.strength - settings.rise_from) * risen
        return settings.strength * ((epoch + 1) / epochs if settings.schedule == "linear" else 1.0)

    def _losses(self, images: Tensor, labels: Tensor, strength: float) -> tuple[Tensor, list[float], list[float]]:
        """The objective; what is summed over the epoch: samples, cross-entropy, right answers, Ω; the guard's rates."""
        rates: list[float] = []
        if self.penalty is None:
            logits, omega = self.wrapped(images), torch.zeros(())
            charged = omega
        else:
            with watch(self.wrapped, self.recipe.neuron.steps) as activity:
                logits = self.wrapped(images)
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

    def _epoch_metrics(self, epoch: int, sums: list[float], seconds: float) -> dict[str, Any]:
        self._settle()
        if self.fabric.world_size > 1:
            sums = summed(self.fabric, torch.tensor(sums, dtype=torch.float64)).tolist()
            for buffer in self.model.buffers():  # batch norm's: one network is measured, the first process's
                torch.distributed.broadcast(buffer, 0)
        samples, entropy, right, omega = sums
        strength = self._strength(epoch, self.batches - 1)
        validation = self.validated = self._measure("validation")
        energy = validation.energy
        self._judge(epoch, validation)
        for layer in energy.layers if energy is not None else ():
            if layer.rate == 0:
                _say(
                    self.reporters,
                    f"the layer {layer.name} has fallen silent: no spike on the whole validation set (epoch "
                    f"{epoch + 1})",
                )
        return {
            "epoch": epoch,
            "train_loss": entropy / samples,
            "train_accuracy": right / samples,
            "train_penalty": omega / samples if self.penalty is not None else None,
            "validation_loss": validation.loss,
            "validation_accuracy": validation.accuracy,
            "joules": energy.joules if energy is not None else None,
            "rate_mean": energy.rate_mean if energy is not None else None,
            "dead_rate": energy.dead_rate if energy is not None else None,
            "layers": [layer.to_dict() for layer in energy.layers] if energy is not None else [],
            "lr": self.optimizer.param_groups[0]["lr"],
            "strength": strength,
            "target_joules": self.budget.wanted(epoch) if self.budget is not None else None,
            "seconds": seconds,
        }

    def _finish(self) -> None:
        outcome = self._settle_budget()
        validation = self.validated or self._measure("validation")  # again where the run was resumed at its very end
        results = {"test": self._measure("test").to_dict(), "validation": validation.to_dict(), **outcome}
        if self.fabric.global_rank != 0:
            return
        results |= circumstances(self.recipe, self.fabric)
        self.run.write_weights(self.model.state_dict())
        self.run.write_result(results)
        said = verdict(results)
        if said is not None:
            _say(self.reporters, said)

    def _measure(self, split: Split) -> Evaluation:
        measured = measure(self.model, self.recipe, self.data, split, self.synapses, self.fabric)
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
        remedy = "penalty.strength" if self.budget is None else "ask for more energy with penalty.budget"
        return PicojouleError(f"{what}: lower optimizer.lr or {remedy}{kept}")

    def _agreed(self, *values: float) -> list[float]:
        """Σ over all processes: they must stop, or fail, after the same batch."""
        if self.fabric.world_size == 1:
            return list(values)
        total: list[float] = summed(self.fabric, torch.tensor(values, dtype=torch.float32)).tolist()
        return total

    # ----------------------------------------------------------------------------------------------------------- budget

    def _set_budget(self, budget: float | str, batches: int) -> None:
        reference = _reference_joules(self.run, self.recipe)
        self.budget = Budget(budget, self.recipe.training.epochs, batches, reference)
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
        assert self.penalty is not None  # a recipe with a budget
        assert self.sample is not None
        with by_batch_statistics(self.model), watch(self.model, self.recipe.neuron.steps) as activity:
            self.model(self.sample)
        return self._agreed(self.penalty(activity).item())[0] / self.fabric.world_size

    def _settle(self) -> None:
        """What is judged by its averages is the network that was steered, not the mean of those before it."""
        if self.budget is not None and self.budget.reference is not None and self.averaged is not None:
            batches = (images.contiguous(memory_format=torch.channels_last) for images, _ in self.averaged)
            settle_averages(self.model, batches)

    def _steer(self, epoch: int, batch: int, rates: list[float]) -> None:
        if self.guard is not None:
            self.guard.observe([rate / self.fabric.world_size for rate in rates])
        if self.budget is None:
            return
        self.budget.step(epoch, batch, self._look() if self.budget.looks(epoch, batch) else None)
        if self.budget.checks(epoch, batch):
            self._settle()
            self.budget.checked(self._joules_now(), self._look())

    def _joules_now(self) -> float:
        validation = self.data.validation
        every = max(len(validation) // CHECKED_IMAGES, 1)
        few = replace(self.data, validation=Images(validation.images[::every], validation.labels[::every]))
        energy = measure(self.model, self.recipe, few, "validation", self.synapses, self.fabric).energy
        self.model.train()
        assert energy is not None  # a budget is one of spikes
        return energy.joules

    def _judge(self, epoch: int, validation: Evaluation) -> None:
        budget, energy = self.budget, validation.energy
        if budget is None or energy is None:
            return
        budget.measured(epoch, energy.joules, self._look())
        if budget.wanted(epoch) is not None and budget.target is not None and budget.reference is not None:
            silent = tuple(layer.name for layer in energy.layers if layer.rate == 0)
            candidate = Candidate(epoch, energy.joules, validation.accuracy, silent)
            self.kept.offer(candidate, self.model.state_dict(), budget.target, budget.reference)

    def _settle_budget(self) -> dict[str, Any]:
        """Take the network that is kept; how it stands to the budget."""
        budget, kept, last = self.budget, self.kept.candidate, self.kept.last
        if budget is None or kept is None or last is None or budget.target is None or budget.reference is None:
            return {}
        target, reference = budget.target, budget.reference
        if kept != last and not last.hit(target, reference):
            load_weights(self.model, self.kept.weights, f"the weights of epoch {kept.epoch + 1} in {self.run.path}")
            self.validated = None
        else:
            kept = last
        held = self.guard.holding if self.guard is not None else []
        baseline = self._baseline_joules()
        return {
            "reference_joules": reference,
            "budget": {
                "target_joules": target,
                "met": kept.met(target, reference),
                "epoch": kept.epoch,
                "baseline_joules": baseline,
                "silenced": [{"layer": name, **when} for name, when in self.kept.silenced.items()],
                "held": held,
            },
        }

    def _baseline_joules(self) -> float | None:
        """What the same recipe without a penalty spends on the validation images, if that run is in the same folder."""
        baseline = Run(self.run.path.parent / self.recipe.unpenalised.name)
        joules: float | None = baseline.result["validation"]["joules"] if baseline.finished else None
        return joules

    # ------------------------------------------------------------------------------------------------------ checkpoints

    def _checkpoint(self, epoch: int, batch: int, sums: list[float], metrics: list[dict[str, Any]]) -> None:
        each = {
            "sums": self._gathered(torch.tensor(sums, dtype=torch.float64)),
            "random": self._gathered(torch.get_rng_state()),
        }
        if self.fabric.device.type == "cuda":
            each["random_cuda"] = self._gathered(torch.cuda.get_rng_state(self.fabric.device))
        if self.fabric.global_rank != 0:
            return
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
        tensors |= {f"kept.{name}": tensor for name, tensor in self.kept.weights.items()}
        notes: dict[str, Any] = {"metrics": metrics}
        if self.budget is not None:
            notes |= {"budget": self.budget.state_dict(), "kept": self.kept.state_dict()}
        if self.guard is not None:
            notes["guard"] = self.guard.state_dict()
        self.run.write_checkpoint(Checkpoint(epoch, batch, {**tensors, **each}, notes))

    def _gathered(self, state: Tensor) -> Tensor:
        """One row a process."""
        if self.fabric.world_size == 1:
            return state[None]
        rows = [torch.empty_like(state, device=self.fabric.device) for _ in range(self.fabric.world_size)]
        torch.distributed.all_gather(rows, state.to(self.fabric.device))
        return torch.stack(rows).cpu()

    def _resume(self) -> tuple[int, int, list[float], list[dict[str, Any]]]:
        """Epoch and batch to go on from, the sums of the epoch so far, and the metrics of those before it."""
        checkpoint = self.run.last_checkpoint(lambda text: _say(self.reporters, text))
        if checkpoint is None:
            return 0, 0, [0.0] * 4, []
        tensors = checkpoint.tensors
        weights = {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
        load_weights(self.model, weights, f"the checkpoint's weights in {self.run.path}")
        self._restore_optimizer(tensors)
        if self.budget is not None:
            self.budget.load_state_dict(checkpoint.notes["budget"])
            kept = {k.removeprefix("kept."): v for k, v in tensors.items() if k.startswith("kept.")}
            self.kept.load_state_dict(checkpoint.notes["kept"], kept)
        if self.guard is not None:
            self.guard.load_state_dict(checkpoint.notes["guard"])
        rank, world, processes = self.fabric.global_rank, self.fabric.world_size, len(tensors["random"])
        if processes != world:
            _say(
                self.reporters,
                f"the run was begun with {processes} and goes on with {world} processes: "
                "it will not end with the same bits as with one number throughout",
            )
        # Copies, because torch reads a view of a row as if it began where the whole tensor does.
        torch.set_rng_state(tensors["random"][rank % processes].clone())
        if "random_cuda" in tensors and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random_cuda"][rank % processes].clone(), self.fabric.device)
        sums = tensors["sums"][rank::world].sum(0).tolist()  # each its own, or whatever adds up to the same
        return checkpoint.epoch, checkpoint.batch, sums, checkpoint.notes["metrics"]

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                like = parameters[int(index)]
                # The layout in memory is part of what makes sums come out bit for bit the same.
                laid_out = torch.empty_like(like).copy_(tensor) if tensor.shape == like.shape else tensor
                state.setdefault(int(index), {})[key] = laid_out
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


def _say(reporters: tuple[Reporter, ...], text: str) -> None:
    for reporter in reporters:
        reporter.say(text)
