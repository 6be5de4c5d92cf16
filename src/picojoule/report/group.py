"""Groups of runs that belong together: they differ only in penalty and seed, and share a baseline.

Convention: a *group* has all of its recipe in common but the seed and what of its penalty is a choice of how much and
of what (`FREE_KEYS`). Its baseline are its runs without penalty, whatever their kind and p, which play no part in them;
their energy is averaged over seeds. A group has a curve for each (kind, p), all seeds pooled: one of every run with a
fixed strength; one of every run with a budget; and one of a frontier, whose points belong to the group of the run that
it began with. Frontiers in several folders are several curves.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from picojoule.recipe import Recipe
from picojoule.report.collection import Collection, Entry
from picojoule.report.curve import Curve, Point, budget_label, kind_label, rank, variant_label
from picojoule.runs.result import SplitResult

FREE_KEYS = (
    *("penalty.kind", "penalty.p", "penalty.strength", "seed"),
    *("penalty.budget", "penalty.guard", "penalty.reference"),
)
"""What may differ within a group."""


@dataclass(frozen=True)
class RunGroup:
    """A group of runs that differ only in penalty and seed."""

    label: str
    """Model, data set, and what else tells it from other groups."""
    recipe: dict[str, Any]
    """What its recipes share, as `section.key`, without keys that are None."""
    entries: tuple[Entry, ...]
    """Its runs, in whatever state."""
    baseline_joules: float | None
    """Mean over seeds of the runs without penalty; None where there are none, or where they fire no spike."""
    curves: tuple[Curve, ...] = field(default=())
    """Its trade-off curves; none without a baseline."""
    kinds: Mapping[str, str] = field(default_factory=dict)
    """The kind of the curve that a run is on, by its name."""

    @property
    def slug(self) -> str:
        """The label as the name of a file."""
        return re.sub(r"[^a-z0-9.]+", "-", self.label.lower()).strip("-")[:80]

    @property
    def baseline(self) -> tuple[Entry, ...]:
        """Its finished runs without penalty."""
        return tuple(run.entry for run in measured(self.entries) if not run.recipe.penalised)


def run_groups(collection: Collection, baselines: Mapping[str, float] | None = None) -> list[RunGroup]:
    """Group all readable runs, and draw the curves of each group.

    Args:
        collection: The runs.
        baselines: Joules to divide by, by the label of a group, in place of its own baseline's.

    Returns:
        The groups, the one with most runs first.

    >>> from picojoule.report import gather
    >>> [group.label for group in run_groups(gather(finished_run.path.parent))]
    ['cnn7 · digits']
    """
    members: dict[tuple[tuple[str, str], ...], list[Entry]] = {}
    recipes: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    roots = _roots(collection)
    for entry in collection:
        if entry.recipe is not None:
            content = flattened(roots.get(entry.path, entry.recipe))
            shared = {key: value for key, value in content.items() if key not in FREE_KEYS}
            identity = tuple((key, repr(value)) for key, value in shared.items())
            members.setdefault(identity, []).append(entry)
            recipes[identity] = shared
    groups = []
    for (identity, entries), label in zip(members.items(), _labels(list(recipes.values())), strict=True):
        joules = (baselines or {}).get(label) or _baseline_joules(entries)
        kinds = _kinds(entries, roots)
        drawn = _curves(entries, joules, kinds, roots)
        groups.append(RunGroup(label, recipes[identity], tuple(entries), joules, drawn, kinds))
    return sorted(groups, key=lambda group: -len(group.entries))


def curves(collection: Collection, baselines: Mapping[str, float] | None = None) -> dict[str, tuple[Curve, ...]]:
    """Draw the curves of all groups.

    Args:
        collection: The runs.
        baselines: Joules to divide by, as in `run_groups`.

    Returns:
        The curves of each group, by its label.

    >>> from picojoule.report import gather
    >>> curves(gather(finished_run.path.parent))  # of a baseline alone there is no curve
    {'cnn7 · digits': ()}
    """
    return {group.label: group.curves for group in run_groups(collection, baselines)}


class MeasuredRun(NamedTuple):
    """A finished run whose energy is known."""

    entry: Entry
    recipe: Recipe
    test: SplitResult
    joules: float
    """Energy per sample on the test images."""


def measured(entries: Iterable[Entry]) -> list[MeasuredRun]:
    """Choose the finished runs whose energy is known.

    Args:
        entries: Runs in any state.

    Returns:
        Those with joules; of copies of one run, the first.
    """
    kept: dict[Recipe, MeasuredRun] = {}
    for entry in entries:
        if entry.recipe is not None and entry.test is not None and entry.test.joules is not None:
            kept.setdefault(entry.recipe, MeasuredRun(entry, entry.recipe, entry.test, entry.test.joules))
    return list(kept.values())


def flattened(recipe: Recipe) -> dict[str, Any]:
    r"""Write a recipe as one flat dictionary.

    Args:
        recipe: The recipe.

    Returns:
        Its values by `section.key`, without those that are None.

    Example:
        >>> flattened(Recipe.loads('model.name = "cnn7"\ndata.name = "fashion-mnist"'))["data.pad"]
        2
    """
    flat: dict[str, Any] = {}
    for section, content in recipe.to_dict().items():
        for key, value in content.items() if isinstance(content, dict) else [(None, content)]:
            if value is not None:
                flat[f"{section}.{key}" if key else section] = value
    return flat


def _roots(collection: Collection) -> dict[Path, Recipe]:
    """Find the baseline that a frontier began with, for each of its points whose chain is all there."""
    recipes = {entry.path: entry.recipe for entry in collection if entry.recipe is not None}
    roots: dict[Path, Recipe] = {}
    for path, recipe in recipes.items():
        seen, here, root = {path}, path, recipe
        while _is_frontier_step(root):
            here = here.parent / str(root.training.start_from)
            if here in seen or here not in recipes:
                break
            seen.add(here)
            root = recipes[here]
        if root is not recipe and not root.penalised:
            roots[path] = root
    return roots


def _is_frontier_step(recipe: Recipe) -> bool:
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
    """Name groups by model and data set, and by what else tells one from another."""
    keys = dict.fromkeys(key for recipe in recipes for key in recipe)
    named = ("model.name", "data.name")
    differing = [key for key in keys if key not in named and len({repr(recipe.get(key)) for recipe in recipes}) > 1]
    return [
        " · ".join(
            [str(recipe[key]) for key in named] + [_in_words(key, recipe[key]) for key in differing if key in recipe]
        )
        for recipe in recipes
    ]


def _in_words(key: str, value: Any) -> str:
    leaf = key.rpartition(".")[2]
    if isinstance(value, bool):
        return f"{leaf} {'yes' if value else 'no'}"
    if isinstance(value, str) and leaf in ("name", "surrogate"):
        return value
    return f"{leaf} {value:.12g}" if isinstance(value, float) else f"{leaf} {value}"
