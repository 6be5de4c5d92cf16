"""How long each experiment would take on this machine, from a few training steps of each network."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from picojoule.io.machine import cores
from picojoule.io.tables import Column, Sheet
from picojoule.paper import step_time
from picojoule.paper.experiments import EXPERIMENTS, NamedExperiment
from picojoule.paper.scales import SCALES, Scale, Size
from picojoule.paper.settings import settings
from picojoule.paper.step_time import StepTimes
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run

_STARTING = 2.0
"""Seconds a run takes beside training and evaluation: its process, the data, its files."""
_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True)
class Cost:
    """The cost of one experiment at one scale.

    Attributes:
        runs: All its runs.
        done: Those that are finished.
        seconds: The time for all of it, as if nothing were done yet.

    >>> str(Cost(37, 12, 5400)), str(Cost(0, 0, 0.2))
    ('37 runs, 12 done, 1.5 h', '0 runs, 1 s')
    """

    runs: int
    done: int
    seconds: float

    def __str__(self) -> str:
        done = f", {self.done} done" if self.done else ""
        return f"{self.runs} runs{done}, {duration(self.seconds)}"


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
            "scales": {
                size: {"runs": estimate.runs, "done": estimate.done, "seconds": round(estimate.seconds, 1)}
                for size, estimate in self.scales.items()
            },
        }


def estimates(into: str | os.PathLike[str] = "runs/paper") -> tuple[Line, ...]:
    """Estimate the cost of every experiment; takes some seconds, because each network trains for a moment.

    Args:
        into: The folder of runs, for those that are finished.

    Returns:
        One line per experiment.
    """
    step_times = {recipe.model.name: step_time.measure(recipe) for recipe in _one_each(settings().values())}
    return tuple(
        Line(named, {size: _estimate(named, scale, step_times, Path(into)) for size, scale in SCALES.items()})
        for named in EXPERIMENTS.values()
    )


def table(lines: Iterable[Line]) -> Sheet:
    """Make the table of `picojoule paper list`.

    Args:
        lines: One per experiment.

    Returns:
        The table.
    """
    columns = (Column("name"), Column("in the paper"), Column("what"), *(Column(size) for size in SCALES))
    rows = (
        (line.experiment.name, line.experiment.place, line.experiment.title, *map(str, line.scales.values()))
        for line in lines
    )
    return Sheet(columns, tuple(rows))


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


def _estimate(named: NamedExperiment, scale: Scale, step_times: StepTimes, into: Path) -> Cost:
    """Estimate the cost of one experiment at one scale, its runs side by side on all cores."""
    recipes = named.experiment.recipes(scale)
    needed: dict[str, float] = {}
    ends: dict[str, float] = {}
    for recipe in recipes:  # a run comes after those that it starts from
        needed[recipe.name] = _STARTING + step_times[recipe.model.name].training(recipe)
        ends[recipe.name] = needed[recipe.name] + max((ends[name] for name in recipe.needs.values()), default=0.0)
    side_by_side = sum(needed.values()) / cores()
    seconds = max(side_by_side, max(ends.values(), default=0.0)) + named.experiment.extra_seconds(scale, step_times)
    done = sum(Run.named(name, into).finished for name in needed)
    return Cost(len(recipes), done, seconds)
