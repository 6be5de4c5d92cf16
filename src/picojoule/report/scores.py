"""Scores of trade-off curves, side by side, and beside those that others found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from picojoule.io.tables import Cell, Column, Estimate, Sheet
from picojoule.report.curve import Curve
from picojoule.search import tradeoff

CUTOFFS = (70, 50)
"""The cutoffs P, in percent of accuracy, that the paper takes: AUC(70) and AUC(50)."""

_SCORES: dict[str, tuple[Callable[..., float | None], Column]] = {
    "AUC": (tradeoff.auc, Column(" [%]", 2, 100)),
    "Spearman": (tradeoff.spearman, Column("", 4)),
    "MI": (tradeoff.mutual_information, Column("", 3)),
    "kNN MI": (tradeoff.mutual_information_knn, Column("", 3)),
}


def score_names(cutoffs: Iterable[float] = CUTOFFS) -> list[str]:
    """Name all scores.

    Args:
        cutoffs: Cutoffs in percent of accuracy.

    Returns:
        The keys of `score`.

    Example:
        >>> score_names((70,))
        ['AUC(70)', 'Spearman(70)', 'MI(70)', 'kNN MI(70)']
    """
    return [f"{name}({cutoff:g})" for name in _SCORES for cutoff in cutoffs]


def score(curve: Curve, cutoffs: Iterable[float] = CUTOFFS) -> dict[str, float | None]:
    """Score a curve at every cutoff, seeds pooled.

    Args:
        curve: The curve.
        cutoffs: Cutoffs in percent of accuracy.

    Returns:
        The scores by names like "AUC(70)" (areas as fractions); None where one is not defined, as for one point.

    >>> from picojoule.report.curve import Point
    >>> curve = Curve("Ω_syn", "p = 1", (Point(0.5, 0.9, 1.0), Point(0.2, 0.8, 8.0)), (Point(1.0, 0.92),))
    >>> f"{score(curve, [70])['AUC(70)']:.2f}"
    '0.48'
    """
    cutoffs = tuple(cutoffs)
    is_curve = len(set(curve.energies)) > 1  # through one point, any curve could be drawn
    return {
        f"{name}({cutoff:g})": function(curve.energies, curve.accuracies, cutoff) if is_curve else None
        for name, (function, _) in _SCORES.items()
        for cutoff in cutoffs
    }


def score_table(
    curves: Iterable[Curve],
    cutoffs: Iterable[float] = CUTOFFS,
    reference: Mapping[str, Mapping[str, float]] | None = None,
    source: str = "paper",
) -> Sheet:
    """Make a table of scores, one row per curve.

    Args:
        curves: The curves.
        cutoffs: Cutoffs in percent of accuracy.
        reference: Scores that others found, by the curve's label, named and scaled as `score` does it.
        source: Who found them.

    Returns:
        The table; where a score has a reference for any curve, two columns follow it: that of the `source`, and the
        difference.

    >>> from picojoule.report.curve import Point
    >>> curve = Curve("Ω_syn", "p = 1", (Point(0.5, 0.9, 1.0), Point(0.2, 0.8, 8.0)), (Point(1.0, 0.92),))
    >>> score_table([curve], [70]).titles[:2]
    ['curve', 'points']
    """
    cutoffs = tuple(cutoffs)
    given = reference or {}
    curves = list(curves)
    columns, names = [Column("curve"), Column("points")], score_names(cutoffs)
    compared = {name for name in names if any(name in given.get(curve.label, {}) for curve in curves)}
    for name in names:
        form = _SCORES[name.partition("(")[0]][1]
        titles = [name, *([f"{name} {source}", f"{name} difference"] if name in compared else [])]
        columns += [Column(title + form.title, form.digits, form.scale) for title in titles]
    rows = []
    for curve in curves:
        row: list[str | int | float | None] = [curve.label, len(curve.points)]
        for name, value in score(curve, cutoffs).items():
            row.append(value)
            if name in compared:
                other = given.get(curve.label, {}).get(name)
                row += ["", ""] if other is None else [other, None if value is None else value - other]
        rows.append(tuple(row))
    return Sheet(tuple(columns), tuple(rows))


def seed_table(curves: Iterable[Curve], cutoffs: Iterable[float] = CUTOFFS) -> Sheet:
    """Make a table of the areas of each seed by itself, and their mean ± sample standard deviation.

    Energy stays relative to the baseline's mean over seeds. Pooled points keep the best seed at each energy, so the
    pooled area is above these means: this table tells how far a difference of areas is one of seeds.

    Args:
        curves: The curves.
        cutoffs: Cutoffs in percent of accuracy.

    Returns:
        One row per curve; the area of a seed with fewer than two points is not defined.

    >>> from picojoule.report.curve import Point
    >>> curve = Curve("Ω_syn", "p = 1", (Point(0.5, 0.9, 1.0), Point(0.2, 0.8, 8.0)), (Point(1.0, 0.92),))
    >>> seed_table([curve], [70]).titles
    ['curve', 'AUC(70) mean [%]', 'AUC(70) seed 0 [%]']
    """
    cutoffs, form = tuple(cutoffs), _SCORES["AUC"][1]
    curves = list(curves)
    seeds = sorted({point.seed for curve in curves for point in curve.points})
    titles = [f"AUC({cutoff:g}) {which}" for cutoff in cutoffs for which in ("mean", *(f"seed {s}" for s in seeds))]
    rows = []
    for curve in curves:
        row: list[Cell] = [curve.label]
        alone = {seed: score(curve.of_seed(seed), cutoffs) for seed in seeds}
        for cutoff in cutoffs:
            areas = [alone[seed][f"AUC({cutoff:g})"] for seed in seeds]
            defined = [area for area in areas if area is not None]
            row += [Estimate.of(defined) if defined else None, *areas]
        rows.append(tuple(row))
    columns = (Column("curve"), *(Column(title + form.title, form.digits, form.scale) for title in titles))
    return Sheet(columns, tuple(rows))
