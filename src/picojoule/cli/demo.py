"""The demonstration: the same network trained without and with the penalty side by side, and their two bills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from picojoule import data as datasets
from picojoule.data import Progress
from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from picojoule.report import Comparison
from picojoule.runs.folder import Run
from picojoule.search import sweep

_SETTINGS = {
    "fashion-mnist": {"limit": 10_000, "epochs": 3, "batch_size": 25, "lr": 2e-3, "strength": 16},
    "digits": {"limit": 1200, "epochs": 12, "batch_size": 50, "lr": 1e-3, "strength": 16},
}
_VALIDATED = 500
"""Of Fashion-MNIST: enough to follow the training, which is what validation is for here."""
_LABELS = ("no penalty", "Ω_syn")


def demo(folder: Path, progress: Progress, say: Callable[[str], None]) -> Comparison:
    """Train CNN7 twice on a subset of Fashion-MNIST (digits where it cannot be had) and write the report.

    Each of the two has a core to itself where there are two. The same call again resumes, like any sweep.

    Args:
        folder: Where the runs and the report go.
        progress: Told how a download goes.
        say: Told what is being done.

    Returns:
        The two networks side by side.

    Raises:
        PicojouleError: If a run fails; the message has its reason.
    """
    name = _data_set(progress, say)
    images, epochs, strength = (_SETTINGS[name][key] for key in ("limit", "epochs", "strength"))
    say(f"Training CNN7 twice on {images:,} images, {epochs} epochs each, side by side; this takes minutes.")
    recipes = [_recipe(name, charged) for charged in (0, strength)]
    for failure in sweep.run(recipes, folder / "runs").failures:
        raise PicojouleError(f"the demonstration could not be finished: {failure.reason}")
    results = [Run.of(recipe, folder / "runs").result.test for recipe in recipes]
    title = f"CNN7 on {name}, {images:,} images, {epochs} epochs, λ' = {strength}"
    comparison = Comparison(title, _LABELS, (results[0], results[1]))
    comparison.write(folder)
    return comparison


def _recipe(name: str, strength: float) -> Recipe:
    """Make the recipe of one of the two networks."""
    settings = _SETTINGS[name]
    return Recipe(
        model={"name": "cnn7"},
        data={"name": name, "limit": settings["limit"]}
        | ({"limit_validation": _VALIDATED} if name == "fashion-mnist" else {}),
        optimizer={"lr": settings["lr"]},
        penalty={"strength": strength},
        training={"epochs": settings["epochs"], "batch_size": settings["batch_size"], "threads": 1},
    )


def _data_set(progress: Progress, say: Callable[[str], None]) -> str:
    try:
        say(str(datasets.fetch("fashion-mnist", progress=progress)))
    except PicojouleError as fault:
        say(f"{fault}; taking scikit-learn's digits instead")
        return "digits"
    return "fashion-mnist"
