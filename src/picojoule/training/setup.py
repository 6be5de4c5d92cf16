"""What a run is made of: the network with its first weights, penalty and optimiser, handed to the loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from picojoule.data import Data
from picojoule.io.signals import stop_signals
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.model import build_model, count_synapses, load_weights
from picojoule.training.loop import Training
from picojoule.training.objective import guard_of, penalty_of
from picojoule.training.reporters import LogReporter, Reporter, say

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def train(fabric: Fabric, run: Run, recipe: Recipe, data: Data, reporters: tuple[Reporter, ...]) -> None:
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.training.threads)
    reporters = (reporters or (LogReporter(),)) if fabric.global_rank == 0 else ()
    model = build_model(recipe, trust=True)  # a recipe that is given to be trained is the caller's word
    if fabric.global_rank:  # the same weights in every process, but not the same dropout
        torch.manual_seed(int(np.random.SeedSequence((recipe.seed, fabric.global_rank)).generate_state(1)[0]))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's annotations
    if recipe.training.start_from is not None:
        _start_from(run.beside(recipe.training.start_from, "training.start_from"), model)
    synapses = count_synapses(model, recipe)
    penalty = penalty_of(run, recipe, synapses) if synapses is not None else None
    if fabric.world_size > 1 and any(isinstance(m, _BatchNorm) for m in model.modules()):
        if fabric.device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        else:
            say(reporters, "batch-norm statistics are those of each process: the CPU has no synchronised batch norm")
    wrapped, optimizer = fabric.setup(model, _optimizer(recipe, model))
    guard = guard_of(recipe, penalty)
    try:
        with stop_signals() as stop:
            Training(fabric, run, recipe, data, reporters, model, wrapped, optimizer, penalty, synapses, guard).go(stop)
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
