"""What changes from epoch to epoch by a fixed plan: the learning rate and the strength of the penalty."""

from __future__ import annotations

import math

from picojoule.recipe import Recipe


def cosine_share(epoch: int, epochs: int) -> float:
    """The learning rate of an epoch as a share of the first one's."""
    return 0.5 * (1 + math.cos(math.pi * epoch / epochs))


def scheduled_strength(recipe: Recipe, epoch: int, batch: int, batches: int) -> float:
    """λ for a batch, one of `batches` in each epoch, where there is no budget."""
    settings, epochs = recipe.penalty, recipe.training.epochs
    if settings.rise_from is not None:
        risen = (epoch * batches + batch + 1) / (epochs * batches)
        return settings.rise_from + (settings.strength - settings.rise_from) * risen
    return settings.strength * ((epoch + 1) / epochs if settings.schedule == "linear" else 1.0)
