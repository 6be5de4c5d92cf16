"""Penalties at equal energy: the accuracy of each at some shares of the baseline's energy, and their differences.

Convention: accuracy is read off the curve of each seed by itself (`search.tradeoff.accuracy_at`), the baseline of that
seed being one of its points. Seeds are what varies: an interval is the 95 % percentile interval of the mean over
bootstrap samples of the seeds, and differences are taken seed by seed. With three seeds that interval runs from the
least to the greatest, so it excludes 0 if all seeds agree. One seed has no interval, and tells nothing.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from picojoule.io.tables import Cell, Column, Interval, Sheet
from picojoule.report.curve import Curve, Point, kind_label, variant_label
from picojoule.search import tradeoff

SHARES = (0.5, 0.3, 0.2, 0.1, 0.05)
"""Shares of the baseline's energy at which accuracies are compared."""

Verdict = Literal["holds", "the other way round", "cannot be told"]
_LEVEL = 0.95
_RESAMPLES = 9999

_SYN, _TOTAL, _BALANCE = (kind_label(kind) for kind in ("syn", "total", "balance"))
_FIRST, _SECOND = variant_label(1), variant_label(2)
_Name = tuple[str, str]
"""Kind and variant of a curve."""
_CLAIMS: dict[str, tuple[_Name, _Name]] = {
    **{f"{_SYN} − {other}, {p}": ((_SYN, p), (other, p)) for p in (_FIRST, _SECOND) for other in (_TOTAL, _BALANCE)},
    **{f"{kind}: {_FIRST} − {_SECOND}": ((kind, _FIRST), (kind, _SECOND)) for kind in (_SYN, _TOTAL, _BALANCE)},
}
"""What the paper claims to be above 0."""


def interval(values: Sequence[float]) -> Interval:
    """Take the mean of some values and its bootstrap interval.

    Args:
        values: One per seed, at least one.

    Returns:
        The mean and the ends of its 95 % interval, which a single value does not have.

    Example:
        >>> interval([0.25]), interval([0.25, 0.5, 0.75])
        (Interval(mean=0.25, low=None, high=None), Interval(mean=0.5, low=0.25, high=0.75))
    """
    mean = statistics.fmean(values)
    if len(values) < 2:
        return Interval(mean, None, None)
    from scipy.stats import bootstrap

    found = bootstrap(
        (np.array(values),),
        np.mean,
        confidence_level=_LEVEL,
        n_resamples=_RESAMPLES,
        method="percentile",
        random_state=0,
    ).confidence_interval
    return Interval(mean, float(found.low), float(found.high))


def accuracies(curve: Curve, share: float) -> dict[int, float]:
    """Read the accuracy at a share of the baseline's energy off the curve of each seed.

    Args:
        curve: The curve, with its baseline.
        share: The share.

    Returns:
        The accuracy by seed; a seed whose points do not surround that energy is left out.
    """
    found = {}
    for seed in sorted({point.seed for point in curve.points}):
        points = [point for point in (*curve.points, *curve.baseline) if point.seed == seed]
        accuracy = tradeoff.accuracy_at([p.energy for p in points], [p.accuracy for p in points], share)
        if accuracy is not None:
            found[seed] = accuracy
    return found


@dataclass(frozen=True)
class Difference:
    """The difference of two curves at equal energy, seed by seed."""

    label: str
    """Which curves; the paper claims that it is above 0."""
    at: Mapping[float, Interval]
    """The difference in accuracy by share, where both curves have it with a common seed."""
    overall: Interval | None
    """The mean over those shares that all common seeds have."""
    seeds: int
    """How many seeds the overall difference is of."""

    @property
    def verdict(self) -> Verdict:
        """Whether the paper's claim holds: the interval of the overall difference excludes 0."""
        return verdict(self.overall)

    def to_dict(self) -> dict[str, Any]:
        """Return the difference as plain values.

        Returns:
            What JSON can hold; accuracies as fractions.
        """
        return {
            "label": self.label,
            "verdict": self.verdict,
            "seeds": self.seeds,
            "overall": self.overall and self.overall._asdict(),
            "at": {f"{share:g}": found._asdict() for share, found in self.at.items()},
        }


def verdict(found: Interval | None) -> Verdict:
    """Judge a claim by its interval.

    Args:
        found: The interval of what should be above 0.

    Returns:
        "holds" if all of it is above 0, "the other way round" if all of it is below.

    Example:
        >>> verdict(Interval(0.1, 0.05, 0.2)), verdict(Interval(0.1, -0.05, 0.2)), verdict(Interval(0.1, None, None))
        ('holds', 'cannot be told', 'cannot be told')
    """
    if found is None or found.low is None or found.high is None or found.low <= 0 <= found.high:
        return "cannot be told"
    return "holds" if found.low > 0 else "the other way round"


def differences(curves: Iterable[Curve], shares: Iterable[float] = SHARES) -> tuple[Difference, ...]:
    """Compare the curves of which the paper claims that one is above the other.

    Args:
        curves: The curves of one group.
        shares: Shares of the baseline's energy.

    Returns:
        One difference for each claim of which both curves are there.

    Example:
        >>> differences([])  # curves of which nothing is claimed
        ()
    """
    by_name = {(curve.kind, curve.variant): curve for curve in curves if curve.points}
    shares = tuple(shares)
    return tuple(
        _difference(label, by_name[one], by_name[other], shares)
        for label, (one, other) in _CLAIMS.items()
        if one in by_name and other in by_name
    )


def _difference(label: str, one: Curve, other: Curve, shares: Sequence[float]) -> Difference:
    gaps: dict[float, dict[int, float]] = {}
    for share in shares:
        above, below = accuracies(one, share), accuracies(other, share)
        gaps[share] = {seed: above[seed] - below[seed] for seed in above if seed in below}
    at = {share: interval(list(gap.values())) for share, gap in gaps.items() if gap}
    seeds = {seed for gap in gaps.values() for seed in gap}
    common = [gap for gap in gaps.values() if seeds and gap.keys() == seeds]
    means = [statistics.fmean(gap[seed] for gap in common) for seed in sorted(seeds)] if common else []
    return Difference(label, at, interval(means) if means else None, len(means))


def accuracy_table(curves: Iterable[Curve], shares: Iterable[float] = SHARES) -> Sheet:
    """Make a table of the accuracy at equal energy: a row for each curve, with 95 % intervals over seeds.

    Args:
        curves: The curves of one group.
        shares: Shares of the baseline's energy.

    Returns:
        The table; a curve that does not reach an energy has no accuracy there.

    Example:
        >>> accuracy_table([]).titles[0]
        'curve'
    """
    shares = tuple(shares)
    columns = (Column("curve"), Column("seeds"), *(Column(f"at {100 * share:g} % [%]", 2, 100) for share in shares))
    rows: list[tuple[Cell, ...]] = []
    for curve in curves:
        found = [list(accuracies(curve, share).values()) for share in shares]
        cells = [interval(values) if values else None for values in found]
        rows.append((curve.label, len({point.seed for point in curve.points}), *cells))
    return Sheet(columns, tuple(rows))


def difference_table(curves: Iterable[Curve], shares: Iterable[float] = SHARES) -> Sheet:
    """Make a table of the differences at equal energy, in points of accuracy, with what they tell.

    Args:
        curves: The curves of one group.
        shares: Shares of the baseline's energy.

    Returns:
        The table.

    Example:
        >>> difference_table([]).rows
        ()
    """
    shares = tuple(shares)
    titles = ("mean", *(f"at {100 * share:g} %" for share in shares))
    columns = (
        *(Column("difference"), Column("verdict"), Column("seeds")),
        *(Column(f"{title} [points]", 2, 100) for title in titles),
    )
    rows = tuple(
        (found.label, found.verdict, found.seeds, found.overall, *(found.at.get(share) for share in shares))
        for found in differences(curves, shares)
    )
    return Sheet(columns, rows)


def nearest_level(curve: Curve, share: float) -> tuple[Point, ...]:
    """Find the strength or budget of a curve whose mean energy is nearest to a share of the baseline's.

    Args:
        curve: The curve.
        share: The share.

    Returns:
        Its points, one per seed; none where the curve has no point that spends energy.

    Example:
        >>> points = [Point(energy=x, accuracy=0.9, strength=1 / x, seed=0) for x in (0.5, 0.12)]
        >>> [point.energy for point in nearest_level(Curve("Ω_syn", "p = 1", tuple(points), ()), 0.1)]
        [0.12]
    """
    spending = [level for level in curve.levels if all(point.energy > 0 for point in level)]

    def distance(level: tuple[Point, ...]) -> float:
        return abs(math.log(statistics.fmean(point.energy for point in level) / share))

    return min(spending, key=distance, default=())
