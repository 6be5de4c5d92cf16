"""The outcome of a sweep: finished runs and failures, as plain values and as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from picojoule.energy.units import format_joules
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run

_MEASURES = ("accuracy", "loss", "joules", "synops", "rate_mean", "dead_rate")
_SHOWN_IN_NAME = {"seed", "model.name", "data.name", "penalty.kind", "penalty.p", "penalty.strength"}


@dataclass(frozen=True)
class Failure:
    """A run that could not be finished.

    Attributes:
        recipe: What was to be trained.
        reason: Why it failed.
    """

    recipe: Recipe
    reason: str


@dataclass(frozen=True)
class Outcome:
    """The finished runs of a sweep and the failed ones, each in the order of their recipes.

    Attributes:
        runs: The finished runs.
        failures: The failed ones.
    """

    runs: tuple[Run, ...]
    failures: tuple[Failure, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return the outcome as plain values, as `picojoule sweep --json` prints it.

        Returns:
            Every run with the values in which it differs from others and its figures on the test split.
        """
        recipes = [run.recipe for run in self.runs]
        keys = varied([*recipes, *(failure.recipe for failure in self.failures)])
        return {
            "runs": [
                {
                    "name": recipe.name,
                    "path": str(run.path),
                    "varied": _values(recipe, keys),
                    **{measure: getattr(test, measure) for measure in _MEASURES},
                }
                for run, recipe in zip(self.runs, recipes, strict=True)
                for test in [run.result.test]
            ],
            "failures": [
                {"name": recipe.name, "varied": _values(recipe, keys), "reason": failure.reason}
                for failure in self.failures
                for recipe in [failure.recipe]
            ],
        }

    def table(self) -> Table:
        """Return the finished runs as a table: accuracy, energy and mean firing rate on the test split."""
        content = self.to_dict()["runs"]
        keys = [key for key in (content[0]["varied"] if content else ()) if key not in _SHOWN_IN_NAME]
        table = Table("run")
        for key in keys:
            table.add_column(key)
        for measure in ("accuracy", "energy", "rate"):
            table.add_column(measure, justify="right")
        for entry in content:
            joules, rate = entry["joules"], entry["rate_mean"]
            table.add_row(
                entry["name"],
                *(str(entry["varied"][key]) for key in keys),
                f"{entry['accuracy']:.2%}",
                "–" if joules is None else format_joules(joules),
                "–" if rate is None else f"{rate:.2%}",
            )
        return table


def varied(recipes: Sequence[Recipe]) -> list[str]:
    """List the keys in which recipes differ.

    Args:
        recipes: The recipes.

    Returns:
        Dotted keys, in the order of a recipe.

    >>> recipe = Recipe.loads('model.name = "cnn7"', "data.name=digits")
    >>> varied([recipe, recipe.with_values(penalty={"p": 2}, seed=1)])
    ['seed', 'penalty.p']
    """
    flat = [_flat(recipe) for recipe in recipes]
    return [key for key in (flat[0] if flat else ()) if any(values[key] != flat[0][key] for values in flat)]


def _values(recipe: Recipe, keys: Sequence[str]) -> dict[str, Any]:
    """Take some values of a recipe by their dotted keys."""
    flat = _flat(recipe)
    return {key: flat[key] for key in keys}


def _flat(recipe: Recipe) -> dict[str, Any]:
    """Return every value of a recipe by its dotted key."""
    flat: dict[str, Any] = {}
    for key, value in recipe.to_dict().items():
        flat |= {f"{key}.{leaf}": each for leaf, each in value.items()} if isinstance(value, dict) else {key: value}
    return flat
