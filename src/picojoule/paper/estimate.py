"""How long each experiment would take: on this machine from a few training steps, on a GPU by arithmetic."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picojoule.io.machine import cores
from picojoule.io.tables import Cell, Column, Sheet
from picojoule.paper import on_gpu, step_time
from picojoule.paper.experiments import EXPERIMENTS, NamedExperiment
from picojoule.paper.scales import SCALES, Scale, Size
from picojoule.paper.settings import settings
from picojoule.paper.step_time import StepTimes
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run

_STARTING = 2.0
"""Seconds a run takes beside training and evaluation: its process, the data, its files."""
_SHOWN: tuple[Size, ...] = ("full", "small", "mini", "quick")
"""The scales of the table; smoke takes seconds."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True)
class Cost:
    """The cost of one experiment at one scale.

    Attributes:
        runs: All its runs.
        done: Those that are finished.
        seconds: The time for all of it on this machine, as if nothing were done yet.
        gpu_seconds: The same on a GPU, as `on_gpu` reckons it.
    """

    runs: int
    done: int
    seconds: float
    gpu_seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Return the cost as plain values."""
        times = {"seconds": round(self.seconds, 1), "gpu_seconds": round(self.gpu_seconds, 1)}
        return {"runs": self.runs, "done": self.done, **times}


@dataclass(frozen=True)
class Line:
    """The cost of one experiment at every scale.

    Attributes:
        experiment: The experiment.
        scales: Its cost by scale.
    """

    experiment: NamedExperiment
    scales: dict[Size, Cost]

    def to_dict(self) -> dict[str, Any]:
        """Return the line as plain values, as `picojoule paper list --json` prints it."""
        named = self.experiment
        return {
            "name": named.name,
            "title": named.title,
            "place": named.place,
            "labels": list(named.labels),
            "scales": {size: cost.to_dict() for size, cost in self.scales.items()},
        }

    def runs(self) -> str:
        """Write how many runs there are at each scale.

        >>> costs = {"full": Cost(255, 0, 9e6, 1e5), "small": Cost(37, 12, 3e4, 4e3), "smoke": Cost(2, 0, 10, 1)}
        >>> Line(EXPERIMENTS["tradeoff-cnn7-adam"], costs).runs()
        '255 full, 37 small (12 done)'
        """
        shown = [(size, cost) for size, cost in self.scales.items() if cost.runs and size in _SHOWN]
        return ", ".join(f"{cost.runs} {size}" + (f" ({cost.done} done)" if cost.done else "") for size, cost in shown)


def estimates(into: str | os.PathLike[str] = "runs/paper") -> tuple[Line, ...]:
    """Estimate the cost of every experiment; takes some seconds, because each network trains for a moment.

    Args:
        into: The folder of runs, for those that are finished.

    Returns:
        One line per experiment.
    """
    recipes = list(_one_each(settings().values()))
    here = {recipe.model.name: step_time.measure(recipe) for recipe in recipes}
    gpu = {recipe.model.name: on_gpu.on_gpu(recipe) for recipe in recipes}
    return tuple(
        Line(named, {size: _estimate(named, scale, here, gpu, Path(into)) for size, scale in SCALES.items()})
        for named in EXPERIMENTS.values()
    )


def table(lines: Iterable[Line]) -> Sheet:
    """Make the table of `picojoule paper list`.

    Args:
        lines: One per experiment.

    Returns:
        The table.
    """
    times = [_Time(size) for size in _SHOWN]
    columns = (Column("name"), Column("what"), Column("runs"), times[0], _Time("full on a GPU"), *times[1:])
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            line.experiment.name,
            f"{line.experiment.place}: {line.experiment.title}",
            line.runs(),
            line.scales["full"].seconds,
            line.scales["full"].gpu_seconds,
            *(line.scales[size].seconds for size in _SHOWN[1:]),
        )
        for line in lines
    )
    return Sheet(columns, rows)


def remark(lines: Iterable[Line]) -> str:
    """Say what the times of the table are.

    Args:
        lines: One per experiment.

    Returns:
        A sentence or two.
    """
    smoke = duration(sum(line.scales["smoke"].seconds for line in lines))
    counted = "1 core" if cores() == 1 else f"{cores()} cores"
    return (
        f"Times are estimates: on this machine, runs side by side on {counted}, from a few training steps; "
        f"{on_gpu.ASSUMED}. The scale smoke takes {smoke} for all together."
    )


class _Time(Column):
    """A column of durations."""

    def show(self, cell: Cell) -> str:
        return duration(cell) if isinstance(cell, float) else super().show(cell)


def duration(seconds: float) -> str:
    """Write a time with two digits.

    Args:
        seconds: The time.

    Returns:
        The time in its largest unit, at least 1 s.

    >>> duration(95), duration(5000), duration(0.3), duration(260_000)
    ('1.6 min', '1.4 h', '1 s', '3 d')
    """
    size, unit = next(((size, unit) for size, unit in _UNITS if seconds >= size), (1, "s"))
    amount = max(seconds / size, 1)
    return f"{amount:.0f} {unit}" if amount >= 9.95 or size == 1 else f"{amount:.1f}".removesuffix(".0") + f" {unit}"


def _one_each(recipes: Iterable[Recipe]) -> Iterable[Recipe]:
    """Take one recipe of each model."""
    return {recipe.model.name: recipe for recipe in recipes}.values()


def _estimate(named: NamedExperiment, scale: Scale, here: StepTimes, gpu: StepTimes, into: Path) -> Cost:
    """Estimate the cost of one experiment at one scale: here on all cores, on a GPU one run after another."""
    recipes = named.experiment.recipes(scale)
    done = sum(Run.named(recipe.name, into).finished for recipe in recipes)
    seconds, on_a_gpu = (
        _seconds(recipes, times, at_once) + named.experiment.extra_seconds(scale, times)
        for times, at_once in ((here, cores()), (gpu, 1))
    )
    return Cost(len(recipes), done, seconds, on_a_gpu)


def _seconds(recipes: Iterable[Recipe], step_times: StepTimes, at_once: int) -> float:
    """Estimate the time of runs, so many of them side by side; one comes after those that it starts from."""
    needed: dict[str, float] = {}
    ends: dict[str, float] = {}
    for recipe in recipes:
        needed[recipe.name] = _STARTING + step_times[recipe.model.name].training(recipe)
        ends[recipe.name] = needed[recipe.name] + max((ends[name] for name in recipe.needs.values()), default=0.0)
    return max(sum(needed.values()) / at_once, max(ends.values(), default=0.0))
