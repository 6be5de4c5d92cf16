"""What a run begins with: the network with its first weights, its penalty and its optimiser, handed to the loop."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from picojoule.io.signals import stop_signals
from picojoule.kernels.torch_private import BatchNorm
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.model import build_model, count_synapses, load_weights
from picojoule.training.kernel_choices import use_kernels
from picojoule.training.loop import Training
from picojoule.training.objective import penalty_of
from picojoule.training.optimizers import Adam
from picojoule.training.process import Learner, RunProcess


def train(process: RunProcess) -> None:
    """Train one run from its last checkpoint, or from the start, to its result.

    Args:
        process: This process of the run.

    Raises:
        Interrupted: If the process was told to stop; a checkpoint is written.
        PicojouleError: If the run diverged, or cannot be trained as the recipe asks.
    """
    training = Training(process, build_learner(process))
    try:
        with stop_signals() as stop:
            training.go(stop)
    finally:
        for reporter in process.reporters:
            reporter.end()


def build_learner(process: RunProcess) -> Learner:
    """Build the network of a run with its first weights, its penalty and its optimiser, on the run's device.

    Args:
        process: This process of the run. Its random numbers are seeded by the recipe.

    Returns:
        The network and what trains it.
    """
    fabric, recipe = process.fabric, process.recipe
    torch.manual_seed(recipe.seed)
    torch.set_num_threads(recipe.training.threads)
    model = build_model(recipe, trust=True)  # a recipe that is given to be trained is the caller's word
    if fabric.global_rank:  # the same weights in every process, but not the same dropout
        torch.manual_seed(int(np.random.SeedSequence((recipe.seed, fabric.global_rank)).generate_state(1)[0]))
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's annotations
    if recipe.training.start_from is not None:
        _start_from(process.run.beside(recipe.training.start_from, "training.start_from"), model)
    synapses = count_synapses(model, recipe)
    penalty = penalty_of(recipe, synapses, process.reference) if synapses is not None else None
    if fabric.world_size > 1 and any(isinstance(m, BatchNorm) for m in model.modules()):
        if fabric.device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
        else:
            process.say("batch-norm statistics are those of each process: the CPU has no synchronised batch norm")
    use_kernels(model, recipe, fabric.device)
    wrapped, optimizer = fabric.setup(model, _optimizer(recipe, model))
    return Learner(model, wrapped, optimizer, synapses, penalty)


def _start_from(earlier: Run, model: nn.Module) -> None:
    """Load the weights of an earlier run."""
    load_weights(
        model,
        earlier.weights,
        f"the weights of {earlier.path}, which training.start_from names,",
        "name a run of the same model",
    )


def _optimizer(recipe: Recipe, model: nn.Module) -> torch.optim.Optimizer:
    """Build the optimiser, with weight decay on batch norms only where the recipe asks for it."""
    settings = recipe.optimizer
    norms = {id(p) for m in model.modules() if isinstance(m, BatchNorm) for p in m.parameters(recurse=False)}
    spared = [p for p in model.parameters() if id(p) in norms and not settings.decay_batch_norm]
    decayed = [p for p in model.parameters() if id(p) not in norms or settings.decay_batch_norm]
    groups = [
        {"params": decayed, "weight_decay": settings.weight_decay},
        {"params": spared, "weight_decay": 0.0},
    ]
    if settings.name == "adam":
        return Adam(groups, lr=settings.lr, betas=(0.9, 0.999), eps=1e-8)
    return torch.optim.SGD(groups, lr=settings.lr, momentum=0.9)
