"""The trade-off curves: six penalties over the whole range of λ', and the scores of each curve."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from picojoule import report
from picojoule.io.tables import Sheet
from picojoule.paper import reference
from picojoule.paper.context import Bench, Findings, Work
from picojoule.paper.scales import Scale
from picojoule.paper.settings import setting
from picojoule.penalty import PenaltyKind
from picojoule.recipe import Recipe
from picojoule.report import Collection, Curve, RunGroup
from picojoule.report.group import flattened

if TYPE_CHECKING:
    import altair as alt

Power = tuple[PenaltyKind, int]
"""A penalty and its p."""

SIX: tuple[Power, ...] = (("syn", 1), ("syn", 2), ("total", 1), ("total", 2), ("balance", 1), ("balance", 2))
FIRST_POWER: tuple[Power, ...] = tuple(power for power in SIX if power[1] == 1)
ONLY_SYN: tuple[Power, ...] = (("syn", 1),)
STRENGTHS = tuple(2**k for k in range(14))
"""λ' = 1, 2, 4, …, 8192."""
_SAME = ("model.name", "data.name", "optimizer.name", "neuron.kind", "neuron.surrogate")
"""What makes runs comparable with a curve of the paper."""


@dataclass(frozen=True)
class Grid:
    """The penalties of a trade-off, and the λ' above 0 of each."""

    penalties: tuple[Power, ...]
    strengths: tuple[int, ...]


_FULL, _SMOKE = Grid(SIX, STRENGTHS), Grid(ONLY_SYN, (64,))


@dataclass(frozen=True)
class Tradeoff(Work):
    """Energy is relative to λ' = 0 with the tuned weight decay."""

    base: str
    label: str
    """Of the table of scores."""
    small: Grid
    changes: tuple[str, ...] = ()

    def grid(self, scale: Scale) -> Grid:
        return {"full": _FULL, "small": self.small, "smoke": _SMOKE}[scale.name]

    def is_that_of(self, found: RunGroup) -> bool:
        """Whether these runs are of the same kind, at whatever scale."""
        own = flattened(setting(self.base, *self.changes))
        return all(found.recipe.get(key) == own[key] for key in _SAME)

    def baseline(self, scale: Scale) -> tuple[Recipe, ...]:
        return self._seeds(scale, "syn", 1, 0)

    def curve(self, scale: Scale, kind: PenaltyKind, p: int) -> tuple[Recipe, ...]:
        """The runs of one penalty, if it is part of the scale, without the baseline."""
        grid = self.grid(scale)
        if (kind, p) not in grid.penalties:
            return ()
        return tuple(recipe for strength in grid.strengths for recipe in self._seeds(scale, kind, p, strength))

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        curves = (self.curve(scale, kind, p) for kind, p in SIX)
        return (*self.baseline(scale), *(recipe for curve in curves for recipe in curve))

    def _seeds(self, scale: Scale, kind: PenaltyKind, p: int, strength: int) -> tuple[Recipe, ...]:
        changes = (*self.changes, f"penalty.kind={kind}", f"penalty.p={p}", f"penalty.strength={strength}")
        return tuple(scale.adapt(setting(self.base, *changes, f"seed={seed}")) for seed in scale.seeds)

    def findings(self, bench: Bench) -> Findings:
        printed = reference.scores(self.label)
        drawn = {curve.label: curve for curve in finished_curves(bench, self.recipes(bench.scale))}
        everything = [drawn.get(label) or empty_curve(label) for label in printed]
        return Findings(scored(everything, printed), drawn_as("tradeoff", everything))


def finished_curves(bench: Bench, recipes: Sequence[Recipe]) -> tuple[Curve, ...]:
    """The curves of the runs that are done; they share one baseline, so there is one setting at most."""
    entries = tuple(entry for run in bench.finished(recipes) for entry in report.gather(run.path))
    found = report.run_groups(Collection(bench.folder, entries))
    return found[0].curves if found else ()


def empty_curve(label: str) -> Curve:
    """A curve of the paper of which there is no run.

    >>> empty_curve("Ω_syn (p = 1)").label
    'Ω_syn (p = 1)'
    """
    kind, _, variant = label.removesuffix(")").partition(" (")
    return Curve(kind, variant, ())


def scored(curves: Sequence[Curve], printed: dict[str, dict[str, float]]) -> dict[str, Sheet]:
    """A table for each score, beside the paper's, one of all points, and one of the areas of single seeds."""
    cutoffs = sorted({int(name.split("(")[1][:-1]) for scores in printed.values() for name in scores}, reverse=True)
    whole = report.score_table(curves, cutoffs, printed)
    parts = {"auc": "AUC", "spearman": "Spearman", "mutual-information": "MI", "knn-mutual-information": "kNN MI"}
    drawn = [curve for curve in curves if curve.points]
    several = len({point.seed for curve in drawn for point in curve.points}) > 1
    return {
        **{name: _only(whole, score) for name, score in parts.items()},
        **({"auc-by-seed": report.seed_table(drawn, cutoffs)} if several else {}),
        "points": report.mean_table(drawn),
    }


def _only(sheet: Sheet, score: str) -> Sheet:
    kept = [
        index for index, title in enumerate(sheet.titles) if index < 2 or title.partition("(")[0] == score
    ]  # which curve, how many points, and that score
    rows = tuple(tuple(row[index] for index in kept) for row in sheet.rows)
    return replace(sheet, columns=tuple(sheet.columns[index] for index in kept), rows=rows)


def drawn_as(name: str, curves: Sequence[Curve]) -> dict[str, alt.LayerChart]:
    """The figure of that name; none where no curve has a point."""
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return {}
    kinds = list(dict.fromkeys(curve.kind for curve in drawn))
    variants = list(dict.fromkeys(curve.variant for curve in drawn))
    return {name: report.figures.tradeoff(report.rows.curve_rows(drawn), kinds, variants)}
