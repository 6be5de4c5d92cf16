"""Checkpoints of a run: everything that it takes to go on as if nothing had happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from picojoule.runs.checkpoint import Checkpoint
from picojoule.runs.folder import Run
from picojoule.runs.metrics import EpochMetrics
from picojoule.runs.model import load_weights
from picojoule.training.budget.controller import Steering
from picojoule.training.budget.guard import Guard
from picojoule.training.distributed import gathered

if TYPE_CHECKING:
    from lightning_fabric import Fabric


@dataclass
class Checkpoints:
    """Those of one process in one run."""

    fabric: Fabric
    run: Run
    model: nn.Module
    optimizer: Any
    guard: Guard | None
    steering: Steering | None

    def write(self, epoch: int, batch: int, sums: list[float], metrics: list[EpochMetrics]) -> None:
        each = {
            "sums": gathered(self.fabric, torch.tensor(sums, dtype=torch.float64)),
            "random": gathered(self.fabric, torch.get_rng_state()),
        }
        if self.fabric.device.type == "cuda":
            each["random_cuda"] = gathered(self.fabric, torch.cuda.get_rng_state(self.fabric.device))
        if self.fabric.global_rank != 0:
            return
        tensors = {f"model.{name}": tensor for name, tensor in self.model.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{index}.{key}": value for key, value in state.items() if isinstance(value, Tensor)}
        notes: dict[str, Any] = {"metrics": [epoch.to_dict() for epoch in metrics]}
        if self.steering is not None:
            kept = self.steering.kept
            tensors |= {f"kept.{name}": tensor for name, tensor in kept.weights.items()}
            notes |= {"budget": self.steering.budget.state_dict(), "kept": kept.state_dict()}
        if self.guard is not None:
            notes["guard"] = self.guard.state_dict()
        self.run.write_checkpoint(Checkpoint(epoch, batch, {**tensors, **each}, notes))

    def resume(self, say: Callable[[str], None]) -> tuple[int, int, list[float], list[EpochMetrics]]:
        """Epoch and batch to go on from, the sums of the epoch so far, and the metrics of those before it."""
        checkpoint = self.run.last_checkpoint(say)
        if checkpoint is None:
            return 0, 0, [0.0] * 4, []
        tensors = checkpoint.tensors
        load_weights(self.model, _below("model.", tensors), f"the checkpoint's weights in {self.run.path}")
        self._restore_optimizer(tensors)
        if self.steering is not None:
            self.steering.budget.load_state_dict(checkpoint.notes["budget"])
            self.steering.kept.load_state_dict(checkpoint.notes["kept"], _below("kept.", tensors))
        if self.guard is not None:
            self.guard.load_state_dict(checkpoint.notes["guard"])
        rank, world, processes = self.fabric.global_rank, self.fabric.world_size, len(tensors["random"])
        if processes != world:
            say(
                f"the run was begun with {processes} and goes on with {world} processes: "
                "it will not end with the same bits as with one number throughout"
            )
        # Copies, because torch reads a view of a row as if it began where the whole tensor does.
        torch.set_rng_state(tensors["random"][rank % processes].clone())
        if "random_cuda" in tensors and self.fabric.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random_cuda"][rank % processes].clone(), self.fabric.device)
        sums = tensors["sums"][rank::world].sum(0).tolist()  # each its own, or whatever adds up to the same
        metrics = [EpochMetrics.parse(entry) for entry in checkpoint.notes["metrics"]]
        return checkpoint.epoch, checkpoint.batch, sums, metrics

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


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
