"""The demonstration: the same network trained without and with the penalty in minutes, and their two bills."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from picojoule import data as datasets
from picojoule.data import Progress
from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from picojoule.report import Comparison
from picojoule.training.display import Display
from picojoule.training.fit import fit

_SETTINGS = {
    "fashion-mnist": {"limit": 5000, "epochs": 3, "lr": 1e-3, "strength": 20},
    "digits": {"limit": 1200, "epochs": 12, "lr": 1e-3, "strength": 16},
}


def demo(folder: Path, progress: Progress, say: Callable[[str], None]) -> Comparison:
    """Train CNN7 twice on a subset of Fashion-MNIST (digits where it cannot be had) and write the report.

    The same call again resumes, like any run.

    Args:
        folder: Where the runs and the report go.
        progress: Told how a download goes.
        say: Told what is being done.

    Returns:
        The two networks side by side.
    """
    name = _data_set(progress, say)
    settings = _SETTINGS[name]
    say(f"Training CNN7 twice on {settings['limit']:,} images, {settings['epochs']} epochs each; this takes minutes.")
    results = []
    for title, strength in (("no penalty", 0), ("Ω_syn", settings["strength"])):
        recipe = Recipe(
            model={"name": "cnn7"},
            data={"name": name, "limit": settings["limit"]},
            optimizer={"lr": settings["lr"]},
            penalty={"strength": strength},
            training={"epochs": settings["epochs"], "batch_size": 50},
        )
        results.append(fit(recipe, folder / "runs", reporters=[Display(title)]).result.test)
    title = f"CNN7 on {name}, {settings['limit']:,} images, {settings['epochs']} epochs, λ' = {settings['strength']}"
    comparison = Comparison(title, ("no penalty", "Ω_syn"), (results[0], results[1]))
    comparison.write(folder)
    return comparison


def _data_set(progress: Progress, say: Callable[[str], None]) -> str:
    try:
        say(str(datasets.fetch("fashion-mnist", progress=progress)))
    except PicojouleError as fault:
        say(f"{fault}; taking scikit-learn's digits instead")
        return "digits"
    return "fashion-mnist"
