"""The verdict on a run with a budget: how it ended, in one sentence."""

from __future__ import annotations

from picojoule.energy.units import format_joules
from picojoule.runs.folder import Run
from picojoule.runs.result import BudgetResult, RunResult


def verdict(result: RunResult) -> str | None:
    """Say in one sentence how a run with a budget ended.

    Args:
        result: The run's result.

    Returns:
        Whether the budget is met, what the network spends, which layers fell silent or are held, and, where the budget
        is missed, what to do; None for a run without a budget.
    """
    outcome, reference, joules = result.budget, result.reference_joules, result.validation.joules
    if outcome is None or reference is None or joules is None:
        return None
    target, baseline = outcome.target_joules, outcome.baseline_joules
    said = f"the budget of {format_joules(target)} ({target / reference:.1%} of the unpenalised "
    said += f"{format_joules(reference)}) is {'met' if outcome.met else 'missed'}: the "
    said += f"{'' if outcome.met else 'nearest '}network, that of epoch {outcome.epoch + 1}, spends "
    said += f"{format_joules(joules)} ({joules / reference:.1%}"
    if baseline:
        said += f", and {joules / baseline:.1%} of the fully trained baseline's {format_joules(baseline)}"
    facts = [
        f"the layer {lost.layer} fell silent in epoch {lost.epoch + 1}, at {format_joules(lost.joules)}"
        for lost in outcome.silenced
    ]
    if outcome.held and not outcome.met:
        facts.append(f"the guard holds {', '.join(outcome.held)} at the least firing rate")
    said = "; ".join([f"{said})", *facts])
    return said if outcome.met else f"{said}; {_remedy(result, outcome)}"


def _remedy(result: RunResult, outcome: BudgetResult) -> str:
    if outcome.held:
        return "ask for more energy, or train with penalty.guard=false, which may silence what the guard holds"
    if outcome.silenced and result.guard is False:  # with a budget, None is on
        return "ask for more energy, or train with penalty.guard=true, which keeps layers from falling silent"
    return "train for more epochs, or ask for more energy"


def missed(run: Run) -> str | None:
    """Give the verdict on a run that missed its budget.

    Args:
        run: The run, finished or not.

    Returns:
        The sentence of `verdict`; None for a run that is not finished, met its budget or has none.

    Raises:
        PicojouleError: If its result cannot be read.
    """
    if not run.finished:
        return None
    result = run.result
    return verdict(result) if result.budget is not None and not result.budget.met else None
