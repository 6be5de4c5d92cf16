"""Other runs in the same folder, beside which a run is measured: the reference that it names, and its own baseline."""

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
    """What the run that `penalty.reference` names spends on the validation images: joules for a budget, synaptic
    operations for a target. None where no run is named; one that cannot be compared is refused."""
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
    """What the same recipe without a penalty spends on the validation images, if that run is in the same folder."""
    baseline = Run(run.path.parent / recipe.unpenalised.name)
    try:
        return baseline.result.validation.joules if baseline.finished else None
    except PicojouleError as fault:  # it only stands beside: no reason to refuse what was trained
        say(f"the fully trained baseline is left out of the result: {fault}")
        return None
