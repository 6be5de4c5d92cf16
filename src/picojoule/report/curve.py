"""Trade-off curves: runs that differ only in penalty and seed, with energy relative to the baseline.

Convention: a *setting* is all of a recipe but the seed and what of its penalty is a choice of how much and of what
(`FREE_KEYS`). Its baseline are its runs without penalty, whatever their kind and p, which play no part in them; their
energy is averaged over seeds. A *curve* is one (kind, p) within a setting, all seeds pooled: of every run with a fixed
strength; of every run with a budget; or of a frontier, whose points belong to the setting of the run that it began
with. Frontiers in several folders are several curves.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from picojoule.energy.units import parse_joules
from picojoule.io.tables import Column, Estimate, Sheet
from picojoule.recipe import Recipe
from picojoule.report.collection import Collection, Entry
from picojoule.runs.result import SplitResult

FREE_KEYS = (
    *("penalty.kind", "penalty.p", "penalty.strength", "seed"),
    *("penalty.budget", "penalty.guard", "penalty.reference"),
)
"""What may differ within a setting."""


@dataclass(frozen=True)
class Point:
    """One run on a curve; energy is relative to the baseline, accuracy a fraction."""

    energy: float
    accuracy: float
    strength: float = 0.0
    budget: str = ""
    """In words; "" for a fixed strength."""
    rank: float = 0.0
    """The place in its curve, from much energy to little."""
    seed: int = 0
    run: str = ""
    joules: float | None = None
    dead_rate: float | None = None
    rate_mean: float | None = None

    @property
    def amount(self) -> str:
        """The budget, or the strength where there is none."""
        return self.budget or f"{self.strength:g}"


@dataclass(frozen=True)
class Curve:
    """The points of one way to save energy. `kind` decides its colour and `variant` its dashes in a figure."""

    kind: str
    variant: str
    points: tuple[Point, ...]
    baseline: tuple[Point, ...] = ()
    continued: bool = False
    """Whether its networks are a frontier's: trained on from the baseline, and so for longer than it."""

    @property
    def label(self) -> str:
        """
        >>> Curve("Ω_syn", "p = 1", ()).label
        'Ω_syn (p = 1)'
        """
        return f"{self.kind} ({self.variant})" if self.variant else self.kind

    @property
    def levels(self) -> list[tuple[Point, ...]]:
        """The points of each strength or budget, which differ only in their seeds."""
        return levels(self.points)

    @property
    def energies(self) -> list[float]:
        return [point.energy for point in self.points]

    @property
    def accuracies(self) -> list[float]:
        return [point.accuracy for point in self.points]

    def of_seed(self, seed: int) -> Curve:
        """Those of its points that have this seed."""
        return replace(self, points=tuple(point for point in self.points if point.seed == seed))


def levels(points: Iterable[Point]) -> list[tuple[Point, ...]]:
    """
    >>> [len(same) for same in levels([Point(0.5, 0.8, 2, seed=0), Point(0.5, 0.9, 2, seed=1), Point(0.3, 0.7, 8)])]
    [2, 1]
    """
    groups: dict[tuple[float, str], list[Point]] = {}
    for point in points:
        groups.setdefault((point.strength, point.budget), []).append(point)
    return [tuple(same) for same in groups.values()]


@dataclass(frozen=True)
class Setting:
    """Runs that differ only in penalty and seed."""

    label: str
    recipe: dict[str, Any]
    """Flat, without the free keys and those that are None."""
    entries: tuple[Entry, ...]
    baseline_joules: float | None
    """Mean over seeds of the runs without penalty; None where there are none, or where they fire no spike."""
    curves: tuple[Curve, ...] = field(default=())
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The kind of the curve that a run is on, by its name."""

    @property
    def slug(self) -> str:
        """The label as the name of a file."""
        return re.sub(r"[^a-z0-9.]+", "-", self.label.lower()).strip("-")[:80]

    @property
    def baseline(self) -> tuple[Entry, ...]:
        return tuple(run.entry for run in measured(self.entries) if not run.recipe.penalised)


def settings(collection: Collection, baselines: Mapping[str, float] | None = None) -> list[Setting]:
    """The settings of all readable runs with their curves, the one with most runs first.

    `baselines` gives joules to divide by, by the label of a setting, in place of its own baseline's.
    """
    groups: dict[tuple[tuple[str, str], ...], list[Entry]] = {}
    flat: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    roots = _roots(collection)
    for entry in collection:
        if entry.recipe is not None:
            content = flattened(roots.get(entry.path, entry.recipe))
            shared = {key: value for key, value in content.items() if key not in FREE_KEYS}
            group = tuple((key, repr(value)) for key, value in shared.items())
            groups.setdefault(group, []).append(entry)
            flat[group] = shared
    labels = _labels(list(flat.values()))
    made = []
    for (group, entries), label in zip(groups.items(), labels, strict=True):
        joules = (baselines or {}).get(label) or _baseline_joules(entries)
        kinds = _kinds(entries, roots)
        drawn = _curves(entries, joules, kinds, roots)
        made.append(Setting(label, flat[group], tuple(entries), joules, drawn, kinds))
    return sorted(made, key=lambda setting: -len(setting.entries))


def curves(collection: Collection, baselines: Mapping[str, float] | None = None) -> dict[str, tuple[Curve, ...]]:
    """The curves of each setting, by its label."""
    return {setting.label: setting.curves for setting in settings(collection, baselines)}


class Priced(NamedTuple):
    """A finished run that has a bill."""

    entry: Entry
    recipe: Recipe
    test: SplitResult
    joules: float


def measured(entries: Iterable[Entry]) -> list[Priced]:
    """The finished runs that have a bill; of copies of one run, the first."""
    kept: dict[Recipe, Priced] = {}
    for entry in entries:
        if entry.recipe is not None and entry.test is not None and entry.test.joules is not None:
            kept.setdefault(entry.recipe, Priced(entry, entry.recipe, entry.test, entry.test.joules))
    return list(kept.values())


def mean_table(curves: Iterable[Curve]) -> Sheet:
    """Every point of the curves, ± the sample standard deviation over seeds; a budget stands in a strength's place."""
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


def flattened(recipe: Recipe) -> dict[str, Any]:
    """A recipe as `section.key`, without what is None.

    >>> flattened(Recipe.loads('model.name = "cnn7"\\ndata.name = "fashion-mnist"'))["data.pad"]
    2
    """
    flat: dict[str, Any] = {}
    for section, content in recipe.to_dict().items():
        for key, value in content.items() if isinstance(content, dict) else [(None, content)]:
            if value is not None:
                flat[f"{section}.{key}" if key else section] = value
    return flat


def kind_label(kind: str) -> str:
    return f"Ω_{kind}"


def variant_label(p: float) -> str:
    return f"p = {p:g}"


def budget_label(recipe: Recipe) -> str:
    """
    >>> base = 'model.name = "cnn7"\\ndata.name = "digits"\\n'
    >>> [budget_label(Recipe.loads(base, *more)) for more in ((), ["penalty.budget=0.3"], ["penalty.budget=2uJ"])]
    ['', '30 %', '2 µJ']
    """
    budget = recipe.penalty.budget
    if budget is None or isinstance(budget, str):
        return budget or ""
    return f"{100 * budget:g} %"


def rank(recipe: Recipe, baseline: float | None) -> float:
    """Strengths in order, and budgets from the largest to the smallest; the two are never on one curve."""
    budget = recipe.penalty.budget
    if isinstance(budget, str):
        budget = parse_joules(budget) / (baseline or 1.0)
    return recipe.penalty.strength if budget is None else -budget


def _roots(collection: Collection) -> dict[Path, Recipe]:
    """The baseline that a frontier began with, for each of its points whose chain is all there."""
    recipes = {entry.path: entry.recipe for entry in collection if entry.recipe is not None}
    roots: dict[Path, Recipe] = {}
    for path, recipe in recipes.items():
        seen, here, root = {path}, path, recipe
        while _is_step(root):
            here = here.parent / str(root.training.start_from)
            if here in seen or here not in recipes:
                break
            seen.add(here)
            root = recipes[here]
        if root is not recipe and not root.penalised:
            roots[path] = root
    return roots


def _is_step(recipe: Recipe) -> bool:
    penalty = recipe.penalty
    fixed = penalty.strength > 0 and penalty.target is None and penalty.schedule == "constant"
    return fixed and recipe.training.start_from is not None


def _kinds(entries: list[Entry], roots: Mapping[Path, Recipe]) -> dict[str, str]:
    folders = {entry.path.parent for entry in entries if entry.path in roots}
    kinds = {}
    for entry in entries:
        if entry.recipe is not None:
            way = "budget" if entry.recipe.penalty.budget is not None else ""
            if entry.path in roots:
                name = entry.path.parent.name if len(folders) > 1 else "frontier"
                way = name if name.startswith("frontier") else f"frontier {name}"
            kinds[entry.name] = f"{kind_label(entry.recipe.penalty.kind)} {way}".strip()
    return kinds


def _baseline_joules(entries: list[Entry]) -> float | None:
    by_seed: dict[int, list[float]] = {}
    for run in measured(entries):
        if not run.recipe.penalised:
            by_seed.setdefault(run.recipe.seed, []).append(run.joules)
    if not by_seed:
        return None
    return statistics.fmean(statistics.fmean(joules) for joules in by_seed.values()) or None


def _curves(
    entries: list[Entry], baseline: float | None, kinds: Mapping[str, str], roots: Mapping[Path, Recipe]
) -> tuple[Curve, ...]:
    if baseline is None:
        return ()
    by_curve: dict[tuple[str, float], list[Point]] = {}
    without: dict[int, Point] = {}
    continued = {kinds[entry.name] for entry in entries if entry.path in roots}
    for entry, recipe, test, joules in measured(entries):
        point = Point(
            energy=joules / baseline,
            accuracy=test.accuracy,
            strength=recipe.penalty.strength,
            budget=budget_label(recipe),
            rank=rank(recipe, baseline),
            seed=recipe.seed,
            run=entry.name,
            joules=joules,
            dead_rate=test.dead_rate,
            rate_mean=test.rate_mean,
        )
        if not recipe.penalised:
            without.setdefault(recipe.seed, point)
        else:
            by_curve.setdefault((kinds[entry.name], recipe.penalty.p), []).append(point)
    order = [kind_label(kind) for kind in ("syn", "total", "balance")]
    ranked = sorted(by_curve, key=lambda key: (order.index(key[0]) if key[0] in order else len(order), key))
    return tuple(
        Curve(
            kind,
            variant_label(p),
            tuple(sorted(by_curve[kind, p], key=lambda point: (point.rank, point.seed))),
            tuple(without[seed] for seed in sorted(without)),
            kind in continued,
        )
        for kind, p in ranked
    )


def _labels(recipes: list[dict[str, Any]]) -> list[str]:
    """Model and data set, and what else tells one setting from another."""
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    named = ("model.name", "data.name")
    differing = [key for key in keys if key not in named and len({repr(recipe.get(key)) for recipe in recipes}) > 1]
    return [
        " · ".join(
            [str(recipe[key]) for key in named] + [_spoken(key, recipe[key]) for key in differing if key in recipe]
        )
        for recipe in recipes
    ]


def _spoken(key: str, value: Any) -> str:
    leaf = key.rpartition(".")[2]
    if isinstance(value, bool):
        return f"{leaf} {'yes' if value else 'no'}"
    if isinstance(value, str) and leaf in ("name", "surrogate"):
        return value
    return f"{leaf} {value:.12g}" if isinstance(value, float) else f"{leaf} {value}"
