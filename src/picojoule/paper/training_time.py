"""What a penalty adds to the time of training: the paper's table, for all three networks."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from functools import partial

import torch

from picojoule.io.tables import Cell, Column, Sheet
from picojoule.kernels.allocator import kept_memory
from picojoule.kernels.thread_count import threads
from picojoule.paper import comparison, reference
from picojoule.paper.context import Bench, Findings, Work
from picojoule.paper.scales import Scale
from picojoule.paper.settings import MODELS, setting
from picojoule.paper.step_time import Paces, Steps
from picojoule.penalty import Penalty, PenaltyKind

_BASES = {
    "cnn7": "cnn7-fashion-mnist-adam-s3nn",
    "vgg11": "vgg11-cifar-10-adam-s3nn",
    "resnet18": "resnet18-cifar-10-adam-s3nn",
}
_PRINTED = "resnet18"
"""The network of the paper's table."""
_ROUNDS = {"full": (100, 50), "small": (50, 8), "smoke": (2, 2)}
"""Images in a batch, and steps of each kind."""
_PENALTIES: dict[str, PenaltyKind | None] = {"none": None, "syn": "syn", "total": "total", "balance": "balance"}


@dataclass(frozen=True)
class TrainingTime(Work):
    """Steps with each penalty and without any, in turn on one network; the median of the ratios of each turn."""

    def seconds_beside(self, scale: Scale, paces: Paces) -> float:
        images, rounds = _ROUNDS[scale.name]
        return sum((rounds + 1) * len(_PENALTIES) * (pace.step + images * pace.image) for pace in paces.values())

    def findings(self, bench: Bench) -> Findings:
        printed = reference.training_time()
        images, rounds = _ROUNDS[bench.scale.name]
        lines: list[tuple[Cell, ...]] = []
        for model in MODELS:
            ratios = bench.kept(f"training-time-{model}-{bench.scale.name}", partial(_ratios, model, images, rounds))
            for penalty in _PENALTIES:
                paper = printed[penalty] if model == _PRINTED else None
                shown = "none" if penalty == "none" else f"Ω_{penalty}"
                lines.append((MODELS[model], shown, *comparison.cells(ratios[penalty], paper, Column(""))))
        columns = (Column("model"), Column("penalty"), *comparison.columns("time / none", digits=3))
        note = f"p = 1, Adam, {rounds} steps of each kind with {images} images, taken in turn on one network."
        return Findings({"training-time": Sheet(columns, tuple(lines))}, notes=(note,))


def _ratios(model: str, images: int, rounds: int) -> dict[str, float]:
    recipe = setting(_BASES[model])
    # As in a run: freed memory stays at hand.
    with torch.random.fork_rng(devices=[]), threads(recipe.training.threads), kept_memory():
        steps = Steps(recipe, images)
        penalties = {name: steps.penalty(kind) if kind is not None else None for name, kind in _PENALTIES.items()}
        turns = [_turn(steps, penalties) for _ in range(rounds + 1)][1:]  # the first one allocates
    return {name: statistics.median(turn[name] / turn["none"] for turn in turns) for name in penalties}


def _turn(steps: Steps, penalties: dict[str, Penalty | None]) -> dict[str, float]:
    return {name: steps.seconds(partial(steps.train, penalty)) for name, penalty in penalties.items()}
