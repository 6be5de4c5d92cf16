"""The strength of the penalty in a run without a budget, by the schedule of its recipe."""

from __future__ import annotations

from picojoule.recipe import Recipe
from picojoule.training.strength_schedule import linear, ramp


def scheduled_strength(recipe: Recipe, epoch: int, batch: int, batches: int) -> float:
    """Return the strength λ of the penalty for one batch of a run without a budget.

    The schedule "linear" gives strength·(e + 1)/E in epoch e, "constant" the strength itself; with
    `penalty.rise_from` the strength rises evenly from batch to batch.

    Args:
        recipe: The run's recipe.
        epoch: The epoch, counted from 0.
        batch: The batch in it, counted from 0.
        batches: Batches per epoch.

    Returns:
        The strength λ.

    >>> recipe = Recipe(
    ...     model={"name": "cnn7"}, data={"name": "digits"}, penalty={"strength": 8}, training={"epochs": 4}
    ... )
    >>> [scheduled_strength(recipe, epoch, 0, 10) for epoch in range(4)]
    [2.0, 4.0, 6.0, 8.0]
    """
    settings, epochs = recipe.penalty, recipe.training.epochs
    if settings.rise_from is not None:
        return ramp(settings.strength, epoch * batches + batch, epochs * batches, settings.rise_from)
    return linear(settings.strength, epoch, epochs) if settings.schedule == "linear" else settings.strength
