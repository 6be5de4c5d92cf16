"""The time that a penalty adds to training: the paper's table, for all three networks."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial

import torch

from picojoule.io.tables import Cell, Column, Sheet
from picojoule.kernels.allocator import retain_freed_memory
from picojoule.kernels.thread_count import threads
from picojoule.paper import comparison, published
from picojoule.paper.context import Context, Experiment, Results
from picojoule.paper.scales import Scale
from picojoule.paper.settings import MODELS, setting
from picojoule.paper.step_time import Steps, StepTimes
from picojoule.penalty import Penalty, PenaltyKind

_BASES = {
    "cnn7": "cnn7-fashion-mnist-adam-s3nn",
    "vgg11": "vgg11-cifar-10-adam-s3nn",
    "resnet18": "resnet18-cifar-10-adam-s3nn",
}
_PRINTED = "resnet18"
"""The network of the paper's table."""
_ROUNDS = {"full": (100, 50), "small": (50, 8), "mini": (50, 8), "quick": (20, 4), "smoke": (2, 2)}
"""Images in a batch, and steps of each kind."""
_PENALTIES: dict[str, PenaltyKind | None] = {"none": None, "syn": "syn", "total": "total", "balance": "balance"}


@dataclass(frozen=True)
class TrainingTime(Experiment):
    """Training steps with each penalty and without any, in turn on one network; the median ratio over turns."""

    def extra_seconds(self, scale: Scale, step_times: StepTimes) -> float:
        """Estimate the time beside its runs (see `Experiment`)."""
        images, rounds = _ROUNDS[scale.name]
        return sum((rounds + 1) * len(_PENALTIES) * (time.step + images * time.image) for time in step_times.values())

    def results(self, context: Context) -> Results:
        """Make the table of ratios (see `Experiment`)."""
        printed = published.training_time()
        images, rounds = _ROUNDS[context.scale.name]
        lines: list[tuple[Cell, ...]] = []
        for model in MODELS:
            ratios = context.measured(
                f"training-time-{model}-{context.scale.name}", partial(_ratios, model, images, rounds)
            )
            for penalty in _PENALTIES:
                paper = printed[penalty] if model == _PRINTED else None
                shown = "none" if penalty == "none" else f"Ω_{penalty}"
                lines.append((MODELS[model], shown, *comparison.cells(ratios[penalty], paper, Column(""))))
        columns = (Column("model"), Column("penalty"), *comparison.columns("time / none", digits=3))
        note = f"p = 1, Adam, {rounds} steps of each kind with {images} images, taken in turn on one network."
        return Results({"training-time": Sheet(columns, tuple(lines))}, notes=(note,))


def _ratios(model: str, images: int, rounds: int) -> dict[str, float]:
    """Measure the time of a step with each penalty relative to that without."""
    recipe = setting(_BASES[model])
    # As in a run: freed memory stays at hand.
    with torch.random.fork_rng(devices=[]), threads(recipe.training.threads), retain_freed_memory():
        steps = Steps(recipe, images)
        penalties = {name: steps.penalty(kind) if kind is not None else None for name, kind in _PENALTIES.items()}
        turns = [_turn(steps, penalties) for _ in range(rounds + 1)][1:]  # the first one allocates
    return {name: statistics.median(turn[name] / turn["none"] for turn in turns) for name in penalties}


def _turn(steps: Steps, penalties: dict[str, Penalty | None]) -> dict[str, float]:
    """Measure one step with each penalty."""
    return {name: steps.seconds(partial(steps.train, penalty)) for name, penalty in penalties.items()}
