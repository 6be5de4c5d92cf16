"""The trade-off curves: six penalties over the whole range of λ', and the scores of each curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from picojoule import report
from picojoule.io.tables import Cell, Column, Sheet
from picojoule.paper import layer_shares, published
from picojoule.paper.context import Context, Experiment, Results
from picojoule.paper.scales import Scale
from picojoule.paper.settings import setting
from picojoule.penalty import PenaltyKind
from picojoule.recipe import Recipe
from picojoule.report import Collection, Curve, RunGroup
from picojoule.report.equal_energy import interval
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
    """The penalties of a trade-off, and the strengths of each.

    Attributes:
        penalties: Each with its p.
        strengths: λ' above 0, by p.
    """

    penalties: tuple[Power, ...]
    strengths: Mapping[int, tuple[int, ...]]


_FULL, _SMOKE = Grid(SIX, {1: STRENGTHS, 2: STRENGTHS}), Grid(ONLY_SYN, {1: (64,)})
_QUICK = Grid((("syn", 1), ("total", 1)), {1: (16, 128)})
"""The paper's penalty beside the usual one: where it costs hardly any accuracy, and where nearly all is saved."""


@dataclass(frozen=True)
class Tradeoff(Experiment):
    """The trade-off curves of one setting; energy is relative to λ' = 0 with the tuned weight decay.

    Attributes:
        base: The paper's setting.
        label: The label of the paper's table of scores.
        small: What is run at the scales small and mini.
        data: The data set, where it is not that of the base setting.
    """

    base: str
    label: str
    small: Grid
    data: str | None = None

    def setting(self, **values: Any) -> Recipe:
        """Return the paper's setting of these curves, with some values changed as by `Recipe.with_values`."""
        data = {"data": {"name": self.data}} if self.data is not None else {}
        return setting(self.base, **data, **values)

    def grid(self, scale: Scale) -> Grid:
        """Return the penalties and strengths of a scale.

        Args:
            scale: How much of it is run.
        """
        return {"full": _FULL, "quick": _QUICK, "smoke": _SMOKE}.get(scale.name, self.small)

    def has_setting(self, found: RunGroup) -> bool:
        """Return whether runs are of the same network, data set, optimizer and neurons, at whatever scale.

        Args:
            found: The runs, which share a setting.
        """
        own = flattened(self.setting())
        return all(found.recipe.get(key) == own[key] for key in _SAME)

    def baseline(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs without a penalty, one per seed.

        Args:
            scale: How much of it is run.
        """
        return self._seeds(scale, "syn", 1, 0)

    def curve(self, scale: Scale, kind: PenaltyKind, p: int) -> tuple[Recipe, ...]:
        """Return the runs of one penalty, without the baseline.

        Args:
            scale: How much of it is run.
            kind: The penalty.
            p: Its exponent.

        Returns:
            The recipes; none where the penalty is not part of the scale.
        """
        grid = self.grid(scale)
        if (kind, p) not in grid.penalties:
            return ()
        return tuple(recipe for strength in grid.strengths[p] for recipe in self._seeds(scale, kind, p, strength))

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs that it needs (see `Experiment`), so ordered that the first of them tell most.

        Baselines come first; then, exponent by exponent, strengths from the middle of the range outwards, with all
        penalties and seeds side by side: at every moment as many pairs as can be are there to compare.
        """
        grid = self.grid(scale)
        single = [replace(scale, seeds=(seed,)) for seed in scale.seeds]
        penalised = (
            recipe
            for p in sorted({p for _, p in grid.penalties})
            for strength in from_the_middle(grid.strengths[p])
            for one in single
            for kind, power in grid.penalties
            if power == p
            for recipe in self._seeds(one, kind, p, strength)
        )
        return (*self.baseline(scale), *penalised)

    def _seeds(self, scale: Scale, kind: PenaltyKind, p: int, strength: int) -> tuple[Recipe, ...]:
        """Return the runs of one strength, one per seed."""
        penalty = {"kind": kind, "p": p, "strength": strength}
        return tuple(scale.adapt(self.setting(penalty=penalty, seed=seed)) for seed in scale.seeds)

    def results(self, context: Context) -> Results:
        """Make the scores and the figure of the curves (see `Experiment`)."""
        printed = published.scores(self.label)
        group = finished_group(context, self.recipes(context.scale))
        drawn = {curve.label: curve for curve in group.curves} if group is not None else {}
        everything = [drawn.get(label) or empty_curve(label) for label in printed]
        moved = layer_shares.by_layer(group, group.curves) if group is not None else Results({})
        baselines = {"baseline": baseline_table(group)} if group is not None and group.baseline else {}
        return Results(
            {**baselines, **scored(everything, printed), **moved.tables},
            {**drawn_as("tradeoff", everything), **moved.figures},
        )


def baseline_table(group: RunGroup) -> Sheet:
    """Make a table of the runs without a penalty: each seed, and their means.

    Args:
        group: The finished runs.

    Returns:
        A row for each seed and one for all; the means carry their 95 % interval over seeds.
    """
    found = {entry.recipe.seed: entry.test for entry in group.baseline if entry.recipe and entry.test}
    accuracies = [test.accuracy for test in found.values()]
    joules = [test.joules for test in found.values() if test.joules is not None]
    columns = (Column("seed"), Column("accuracy [%]", 2, 100), Column("energy [µJ]", 3, 1e6))
    rows: list[tuple[Cell, ...]] = [(seed, found[seed].accuracy, found[seed].joules) for seed in sorted(found)]
    return Sheet(columns, (*rows, ("all", interval(accuracies), interval(joules))))


def from_the_middle(strengths: Sequence[int]) -> list[int]:
    """Order strengths from the middle of their range outwards, the stronger of two first.

    Args:
        strengths: In ascending order.

    Returns:
        The same strengths.

    >>> from_the_middle((1, 4, 16, 64, 256))
    [16, 64, 4, 256, 1]
    """
    middle = (len(strengths) - 1) / 2
    return sorted(strengths, key=lambda strength: abs(strengths.index(strength) - middle - 0.25))


def finished_group(context: Context, recipes: Sequence[Recipe]) -> RunGroup | None:
    """Return the runs that are finished, with their curves.

    Args:
        context: Where the runs are.
        recipes: What was to be trained; they share one baseline, so there is one setting at most.

    Returns:
        Their group; None where none is finished.
    """
    entries = tuple(report.read_entry(run) for run in context.finished(recipes))
    found = report.run_groups(Collection(context.folder, entries))
    return found[0] if found else None


def finished_curves(context: Context, recipes: Sequence[Recipe]) -> tuple[Curve, ...]:
    """Return the curves of the runs that are finished.

    Args:
        context: Where the runs are.
        recipes: As in `finished_group`.

    Returns:
        The curves.
    """
    group = finished_group(context, recipes)
    return group.curves if group is not None else ()


def empty_curve(label: str) -> Curve:
    """Make a curve without points, for a curve of the paper of which there is no run.

    Args:
        label: Its label in the paper's table.

    Returns:
        The curve.

    >>> empty_curve("Ω_syn (p = 1)").label
    'Ω_syn (p = 1)'
    """
    kind, _, variant = label.removesuffix(")").partition(" (")
    return Curve(kind, variant, ())


def scored(curves: Sequence[Curve], printed: dict[str, dict[str, float]]) -> dict[str, Sheet]:
    """Make a table of each score beside the paper's, one of all points, and one of the areas of single seeds.

    Args:
        curves: The curves.
        printed: The paper's scores by the label of the curve.

    Returns:
        The tables by name.
    """
    cutoffs = sorted({int(name.split("(")[1][:-1]) for scores in printed.values() for name in scores}, reverse=True)
    whole = report.score_table(curves, cutoffs, printed)
    parts = {"auc": "AUC", "spearman": "Spearman", "mutual-information": "MI", "knn-mutual-information": "kNN MI"}
    drawn = [curve for curve in curves if curve.points]
    several = len({point.seed for curve in drawn for point in curve.points}) > 1
    return {
        **{name: _one_score(whole, score) for name, score in parts.items()},
        **({"auc-by-seed": report.seed_table(drawn, cutoffs)} if several else {}),
        **({"equal-energy": report.accuracy_table(drawn)} if drawn else {}),
        **({"differences": report.difference_table(drawn)} if report.differences(drawn) else {}),
        "points": report.mean_table(drawn),
    }


def _one_score(sheet: Sheet, score: str) -> Sheet:
    """Take the columns of one score."""
    kept = [
        index for index, title in enumerate(sheet.titles) if index < 2 or title.partition("(")[0] == score
    ]  # which curve, how many points, and that score
    rows = tuple(tuple(row[index] for index in kept) for row in sheet.rows)
    return replace(sheet, columns=tuple(sheet.columns[index] for index in kept), rows=rows)


def drawn_as(name: str, curves: Sequence[Curve]) -> dict[str, alt.LayerChart]:
    """Draw the curves.

    Args:
        name: The name of the figure.
        curves: The curves.

    Returns:
        The figure under its name; nothing where no curve has a point.
    """
    drawn = [curve for curve in curves if curve.points]
    if not drawn:
        return {}
    kinds = list(dict.fromkeys(curve.kind for curve in drawn))
    variants = list(dict.fromkeys(curve.variant for curve in drawn))
    return {name: report.figures.tradeoff(report.rows.curve_rows(drawn), kinds, variants)}
