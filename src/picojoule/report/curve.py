"""Trade-off curves: points of energy relative to the baseline and accuracy, one point per run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from picojoule.energy.units import parse_joules
from picojoule.io.tables import Column, Estimate, Sheet
from picojoule.recipe import Recipe


@dataclass(frozen=True)
class Point:
    """One run on a curve."""

    energy: float
    """Relative to the baseline."""
    accuracy: float
    """A fraction."""
    strength: float = 0.0
    """Of the penalty, λ'."""
    budget: str = ""
    """In words; "" for a fixed strength."""
    rank: float = 0.0
    """The place in its curve, from much energy to little."""
    seed: int = 0
    """Of the recipe."""
    run: str = ""
    """The name of its entry in the collection."""
    joules: float | None = None
    """Energy per sample."""
    dead_rate: float | None = None
    """Share of neurons that never fired."""
    rate_mean: float | None = None
    """Mean firing rate of the layers."""

    @property
    def amount(self) -> str:
        """The budget, or the strength where there is none."""
        return self.budget or f"{self.strength:g}"


@dataclass(frozen=True)
class Curve:
    """The points of one way to save energy.

    Example:
        >>> Curve("Ω_syn", "p = 1", ()).label
        'Ω_syn (p = 1)'
    """

    kind: str
    """The penalty, and "budget" or "frontier" where it is one; decides the colour in a figure."""
    variant: str
    """The exponent p; decides the dashes."""
    points: tuple[Point, ...]
    """From much energy to little."""
    baseline: tuple[Point, ...] = ()
    """The runs without penalty, one for each seed."""
    continued: bool = False
    """Whether its networks are a frontier's: trained on from the baseline, and so for longer than it."""

    @property
    def label(self) -> str:
        """Kind and variant, as a legend names the curve."""
        return f"{self.kind} ({self.variant})" if self.variant else self.kind

    @property
    def levels(self) -> list[tuple[Point, ...]]:
        """The points of each strength or budget, which differ only in their seeds."""
        return levels(self.points)

    @property
    def energies(self) -> list[float]:
        """The energy of each point."""
        return [point.energy for point in self.points]

    @property
    def accuracies(self) -> list[float]:
        """The accuracy of each point."""
        return [point.accuracy for point in self.points]

    def of_seed(self, seed: int) -> Curve:
        """Take the points of one seed.

        Args:
            seed: The seed.

        Returns:
            The same curve with these points alone.
        """
        return replace(self, points=tuple(point for point in self.points if point.seed == seed))


def levels(points: Iterable[Point]) -> list[tuple[Point, ...]]:
    """Group points by strength or budget.

    Args:
        points: Points of one curve.

    Returns:
        The points of each level, which differ only in their seeds.

    Example:
        >>> [len(same) for same in levels([Point(0.5, 0.8, 2, seed=0), Point(0.5, 0.9, 2, seed=1), Point(0.3, 0.7, 8)])]
        [2, 1]
    """
    groups: dict[tuple[float, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.strength, point.budget), []).append(point)
    return [tuple(same) for same in groups.values()]


def mean_table(curves: Iterable[Curve]) -> Sheet:
    """Make a table of the means over seeds, ± the sample standard deviation.

    Args:
        curves: The curves; the baseline is that of the first.

    Returns:
        A row for each level; a budget stands in a strength's place.

    >>> curve = Curve("Ω_syn", "p = 1", (Point(0.5, 0.9, 1.0), Point(0.2, 0.8, 8.0)), (Point(1.0, 0.92),))
    >>> len(mean_table([curve]).rows)  # the baseline and two strengths
    3
    """
    columns = (
        *(Column("penalty"), Column("strength"), Column("seeds"), Column("accuracy [%]", scale=100)),
        *(Column("energy / baseline [%]", scale=100), Column("dead rate [%]", scale=100), Column("R [%]", scale=100)),
    )
    rows: list[tuple[str | int | Estimate | None, ...]] = []
    curves = list(curves)
    for label, points in [
        *([("none", curves[0].baseline)] if curves and curves[0].baseline else []),
        *((curve.label, curve.points) for curve in curves),
    ]:
        for same in levels(points):
            values = [
                [getattr(point, key) for point in same] for key in ("accuracy", "energy", "dead_rate", "rate_mean")
            ]
            cells = [None if None in column else Estimate.of(column) for column in values]
            rows.append((label, same[0].amount, len(same), *cells))
    return Sheet(columns, tuple(rows))


def kind_label(kind: str) -> str:
    """Name a penalty.

    Args:
        kind: "syn", "total" or "balance".

    Returns:
        As in "Ω_syn".
    """
    return f"Ω_{kind}"


def variant_label(p: float) -> str:
    """Name an exponent.

    Args:
        p: The exponent.

    Returns:
        As in "p = 1".
    """
    return f"p = {p:g}"


def budget_label(recipe: Recipe) -> str:
    r"""Name the budget of a recipe.

    Args:
        recipe: The recipe.

    Returns:
        A percentage or an energy; "" where it has no budget.

    Example:
        >>> base = 'model.name = "cnn7"\ndata.name = "digits"\n'
        >>> [budget_label(Recipe.loads(base, *more)) for more in ((), ["penalty.budget=0.3"], ["penalty.budget=2uJ"])]
        ['', '30 %', '2 µJ']
    """
    budget = recipe.penalty.budget
    if budget is None or isinstance(budget, str):
        return budget or ""
    return f"{100 * budget:g} %"


def rank(recipe: Recipe, baseline: float | None) -> float:
    """Place a run on its curve: by its strength, or by its budget from the largest to the smallest.

    Args:
        recipe: The run's recipe.
        baseline: Joules of the baseline, by which a budget in joules becomes a share.

    Returns:
        A number that grows as the energy falls.
    """
    budget = recipe.penalty.budget
    if isinstance(budget, str):
        budget = parse_joules(budget) / (baseline or 1.0)
    return recipe.penalty.strength if budget is None else -budget
