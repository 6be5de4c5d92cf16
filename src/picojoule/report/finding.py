"""The main finding of a group: how little energy is enough for how much accuracy.

Convention: levels of a curve (one strength or budget, all its seeds) are compared by their means over the seeds that
they share with the baseline, and their accuracy with that of the baseline of the same seeds. Only levels with the most
shared seeds take part: among many, one that was tried once is soon the best by luck. Frontiers, whose networks are
trained for longer than the baseline, take part only where there is nothing else.
"""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Literal

from picojoule.io.tables import Estimate
from picojoule.report.curve import Curve, Point
from picojoule.report.group import RunGroup
from picojoule.report.rows import BASELINE

TOLERATED_LOSSES = (0.01, 0.05)
"""Losses of accuracy, as fractions; the first is that of the headline."""


@dataclass(frozen=True)
class Level:
    """One strength or budget of a curve, over its seeds."""

    label: str
    """The label of its curve."""
    points: tuple[Point, ...]
    """Its runs with the seeds that it shares with the baseline."""
    lost: float
    """Accuracy that it lacks beside the baseline of the same seeds; negative if it is better."""

    @property
    def amount(self) -> str:
        """The strength, or the budget: the label of the curve says that it is one."""
        point = self.points[0]
        return point.budget or f"λ' = {point.strength:g}"

    @property
    def seeds(self) -> int:
        """How many seeds it has."""
        return len({point.seed for point in self.points})

    @property
    def accuracy(self) -> Estimate:
        """Accuracy over the seeds: mean and deviation."""
        return Estimate.of(point.accuracy for point in self.points)

    @property
    def energy(self) -> Estimate:
        """Energy over the seeds, relative to the mean of the baseline."""
        return Estimate.of(point.energy for point in self.points)

    @property
    def joules(self) -> float | None:
        """Mean energy per sample; None where it is not known."""
        known = [point.joules for point in self.points if point.joules is not None]
        return statistics.fmean(known) if known else None

    @property
    def typical(self) -> Point:
        """The run that is nearest to the mean accuracy."""
        return min(self.points, key=lambda point: abs(point.accuracy - self.accuracy.mean))

    @property
    def headline(self) -> str:
        """What it saves and what that costs, in a few words."""
        return saving(self.energy.mean, self.lost)


@dataclass(frozen=True)
class Finding:
    """The levels that a reader looks for first."""

    baseline: Level
    """Without penalty."""
    best: Level
    """The most accurate level with a penalty."""
    within: tuple[Level | None, ...]
    """The least energy within each of TOLERATED_LOSSES; None where nothing saves energy at that loss."""
    left_out: int
    """How many levels have fewer seeds, and took no part."""
    frontiers: Literal["none", "left out", "alone"]
    """What became of the frontiers: there are none, they were left out beside others, or there is nothing else."""


def finding(group: RunGroup) -> Finding | None:
    """Find how little energy is enough for how much accuracy.

    Args:
        group: Runs with their curves.

    Returns:
        The main finding; None where there is nothing to compare: no curve, or no seed in common with the baseline.
    """
    if not group.curves:
        return None
    plain = {point.seed: point for point in group.curves[0].baseline}
    alike = [curve for curve in group.curves if not curve.continued]
    candidates = [level for curve in alike or group.curves for level in _levels(curve, plain)]
    most = max((level.seeds for level in candidates), default=0)
    if not most:
        return None
    compared = [level for level in candidates if level.seeds == most]
    within = []
    for loss in TOLERATED_LOSSES:
        frugal = [level for level in compared if level.lost <= loss and level.energy.mean < 1]
        within.append(min(frugal, key=lambda level: level.energy.mean, default=None))
    best = min(compared, key=lambda level: (level.lost, level.energy.mean))
    return Finding(
        Level(BASELINE, tuple(plain.values()), 0.0),
        best,
        tuple(within),
        len(candidates) - len(compared),
        "none" if len(alike) == len(group.curves) else "left out" if alike else "alone",
    )


def saving(ratio: float, lost: float) -> str:
    """Say a saving in words.

    Args:
        ratio: Energy as a share of the baseline's.
        lost: The accuracy that it costs, a fraction; negative if there is more.

    Returns:
        A few words.

    Example:
        >>> saving(0.168, 0.0123), saving(0.5, 0.0)
        ('17 % of the energy, 1.2 points of accuracy less', '50 % of the energy, the same accuracy')
        >>> saving(0.084, -0.002)
        '8.4 % of the energy, 0.2 points of accuracy more'
    """
    share = f"{100 * ratio:.{0 if ratio >= 0.0995 else 1}f} % of the energy"
    points = f"{abs(100 * lost):.1f}"
    if points == "0.0":
        return f"{share}, the same accuracy"
    return f"{share}, {points} points of accuracy {'less' if lost > 0 else 'more'}"


def _levels(curve: Curve, plain: dict[int, Point]) -> list[Level]:
    made = []
    for same in curve.levels:
        shared = tuple(point for point in same if point.seed in plain)
        if shared:
            lost = statistics.fmean(plain[point.seed].accuracy - point.accuracy for point in shared)
            made.append(Level(curve.label, shared, lost))
    return made
