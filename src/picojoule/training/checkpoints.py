"""Checkpoints of a run: everything that it takes to go on as if nothing had happened."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from picojoule.runs.checkpoint import Checkpoint
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.model import load_weights
from picojoule.training.budget.controller import BudgetController
from picojoule.training.budget.guard import LayerGuard
from picojoule.training.budget.recovery import Recovery
from picojoule.training.distributed import gathered
from picojoule.training.kernel_choices import CHOICES, choices_to_tensor, restore_choices
from picojoule.training.objective import EpochSums
from picojoule.training.process import Learner, RunProcess


@dataclass
class RunProgress:
    """How far a run has come.

    Attributes:
        epoch: The epoch under way, or the next one.
        batch: Batches of it that are done.
        sums: Sums over these batches, in this process.
        metrics: The lines of `metrics.jsonl` for the epochs before it.
    """

    epoch: int = 0
    batch: int = 0
    sums: EpochSums = field(default_factory=EpochSums)
    metrics: list[EpochMetrics] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run, as one of its processes writes and reads them.

    Attributes:
        process: This process of the run.
        learner: The network and its optimiser.
        guard: The guard of the firing rates, if there is one.
        controller: The budget's controller, if there is a budget.
        recovery: The way back of a guarded run.
    """

    process: RunProcess
    learner: Learner
    guard: LayerGuard | None
    controller: BudgetController | None
    recovery: Recovery | None = None

    def write(self, progress: RunProgress) -> None:
        """Write a checkpoint; every process has to call this.

        Args:
            progress: How far the run has come.
        """
        fabric = self.process.fabric
        each = {
            "sums": gathered(fabric, progress.sums.to_tensor()),
            "random": gathered(fabric, torch.get_rng_state()),
        }
        if (made := choices_to_tensor(self.learner.model)) is not None:
            each[CHOICES] = gathered(fabric, made)
        if fabric.device.type == "cuda":
            each["random_cuda"] = gathered(fabric, torch.cuda.get_rng_state(fabric.device))
        if not self.process.is_first:
            return
        tensors = {f"model.{name}": tensor for name, tensor in self.learner.model.state_dict().items()}
        for index, state in self.learner.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
        notes: dict[str, Any] = {"metrics": [epoch.to_dict() for epoch in progress.metrics]}
        if self.controller is not None:  # "kept" is the selection's name on disk
            selection = self.controller.selection
            tensors |= {f"kept.{name}": tensor for name, tensor in selection.weights.items()}
            notes |= {"budget": self.controller.budget.state_dict(), "kept": selection.state_dict()}
        if self.guard is not None:
            notes["guard"] = self.guard.state_dict()
        if self.recovery is not None:
            tensors |= {f"good.{name}": tensor for name, tensor in self.recovery.weights.items()}
            notes["recovery"] = self.recovery.state_dict()
        self.process.run.write_checkpoint(Checkpoint(progress.epoch, progress.batch, {**tensors, **each}, notes))

    def resume(self) -> RunProgress:
        """Put everything back as it was when the last good checkpoint was written.

        Returns:
            How far the run had come; the very beginning where there is no checkpoint.

        Raises:
            PicojouleError: If the checkpoint's weights are those of another network.
        """
        process, fabric = self.process, self.process.fabric
        checkpoint = process.run.last_checkpoint(process.say)
        if checkpoint is None:
            return RunProgress()
        tensors = checkpoint.tensors
        where = f"the checkpoint's weights in {process.run.path}"
        load_weights(self.learner.model, _below("model.", tensors), where)
        self._restore_optimizer(tensors)
        if self.controller is not None:
            self.controller.budget.load_state_dict(checkpoint.notes["budget"])
            self.controller.selection.load_state_dict(checkpoint.notes["kept"], _below("kept.", tensors))
        if self.guard is not None:
            self.guard.load_state_dict(checkpoint.notes["guard"])
        if self.recovery is not None and "recovery" in checkpoint.notes:
            self.recovery.load_state_dict(checkpoint.notes["recovery"], _below("good.", tensors))
        rank, world, processes = fabric.global_rank, fabric.world_size, len(tensors["random"])
        if processes != world:
            process.say(
                f"the run was begun with {processes} and goes on with {world} processes: "
                "it will not end with the same bits as with one number throughout"
            )
        restore_choices(self.learner.model, tensors[CHOICES][rank % processes] if CHOICES in tensors else None)
        # Copies, because torch reads a view of a row as if it began where the whole tensor does.
        torch.set_rng_state(tensors["random"][rank % processes].clone())
        if "random_cuda" in tensors and fabric.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random_cuda"][rank % processes].clone(), fabric.device)
        # Each process its own, or with another number of them whatever adds up to the same.
        sums = EpochSums.from_tensor(tensors["sums"][rank::world].sum(0))
        metrics = [EpochMetrics.parse(entry) for entry in checkpoint.notes["metrics"]]
        return RunProgress(checkpoint.epoch, checkpoint.batch, sums, metrics)

    def _restore_optimizer(self, tensors: dict[str, Tensor]) -> None:
        """Give the optimiser the state that a checkpoint holds."""
        optimizer = self.learner.optimizer
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in tensors.items():
            if name.startswith("optimizer."):
                _, index, key = name.split(".")
                like = parameters[int(index)]
                # The layout in memory is part of what makes sums come out bit for bit the same.
                laid_out = torch.empty_like(like).copy_(tensor) if tensor.shape == like.shape else tensor
                state.setdefault(int(index), {})[key] = laid_out
        optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Take the tensors whose names begin with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
