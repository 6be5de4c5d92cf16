"""Runs in the same folder with which a run is compared: the reference that it names, and its own baseline."""

from __future__ import annotations

from collections.abc import Callable

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run

_COMPARED = (
    *(("model", "name"), ("data", "name")),
    *(("neuron", "kind"), ("neuron", "steps")),
    ("energy", "psi"),
)
"""The keys that a run and its reference must have in common."""


def reference_figure(run: Run, recipe: Recipe) -> float | None:
    """Return what the run that `penalty.reference` names spends per validation image.

    Args:
        run: The run that is to be trained, in whose folder of runs the reference is.
        recipe: Its recipe.

    Returns:
        Joules for a budget, synaptic operations for a target; None where no run is named.

    Raises:
        PicojouleError: If there is no such finished run, it cannot be compared, or it spends nothing.
    """
    name, budget = recipe.penalty.reference, recipe.penalty.budget is not None
    if name is None:
        return None
    reference, said = run.beside(name, "penalty.reference"), f"penalty.reference = {name!r}"
    for section, key in (*_COMPARED, *([("energy", "hardware")] if budget else [])):
        theirs, ours = (getattr(getattr(each, section), key) for each in (reference.recipe, recipe))
        if theirs != ours:
            raise PicojouleError(
                f"{said} is a run with {section}.{key} = {theirs!r}, and this one has {ours!r}, so what they spend "
                "cannot be compared: name a run with the same, or leave it out"
            )
    validation = reference.result.validation
    figure = validation.joules if budget else validation.synops
    if not figure:
        raise PicojouleError(f"{said} is a run that spends nothing: name one that fires, or leave it out")
    return figure


def baseline_joules(run: Run, recipe: Recipe, say: Callable[[str], None]) -> float | None:
    """Return what the same recipe without a penalty spends per validation image, if it was trained beside this run.

    Args:
        run: The run with a penalty.
        recipe: Its recipe.
        say: Told if the baseline is there and cannot be read.

    Returns:
        Joules per image; None where there is no finished baseline, or it cannot be read.
    """
    baseline = Run.named(recipe.unpenalised.name, run.path.parent)
    try:
        return baseline.result.validation.joules if baseline.finished else None
    except PicojouleError as fault:  # it only stands beside: no reason to refuse what was trained
        say(f"the fully trained baseline is left out of the result: {fault}")
        return None
