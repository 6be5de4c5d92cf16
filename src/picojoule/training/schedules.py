"""Schedules: how the learning rate and the strength of the penalty change from epoch to epoch by a fixed plan."""

from __future__ import annotations

import math

from picojoule.recipe import Recipe
from picojoule.training.strength_schedule import linear, ramp


def cosine_share(epoch: int, epochs: int) -> float:
    """Return the learning rate of an epoch as a share of the first one's: ½·(1 + cos(πe/E)).

    Args:
        epoch: The epoch e, counted from 0.
        epochs: All epochs E of the run.

    Returns:
        The share, from 1 in the first epoch down to nearly 0 in the last.

    >>> [round(cosine_share(epoch, 4), 3) for epoch in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    """
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


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
