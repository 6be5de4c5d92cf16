"""A chain of runs in which each begins with the weights of the one before: one network whose budget is lowered."""

from __future__ import annotations

import math

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe


def stages(recipe: Recipe, ratio: float, count: int) -> tuple[Recipe, ...]:
    """The conversion baseline's stages, to be trained in this order into one folder.

    Stage 0 is the recipe without a penalty. Stage k = 1 … count − 1 begins with the weights of stage k − 1 and is
    pulled towards ratio^k of stage 0's synaptic operations on the validation images, with the recipe's
    `penalty.strength` as the coefficient of ((S − S0)/S0)². This is our reading of "increasing the intensity".

    >>> base = Recipe.loads('model.name = "cnn7"\\ndata.name = "digits"', "neuron.kind=qrelu", "penalty.strength=10")
    >>> first, second, third = stages(base, ratio=0.8, count=3)
    >>> first.penalty.strength, second.penalty.target, round(third.penalty.target, 3)
    (0.0, 0.8, 0.64)
    >>> third.training.start_from == second.name, third.penalty.reference == first.name
    (True, True)
    """
    if not isinstance(recipe, Recipe):
        raise PicojouleError(f"a chain needs a Recipe, not {type(recipe).__name__}: Recipe.load reads one from a file")
    if not isinstance(ratio, int | float) or not (math.isfinite(ratio) and 0 < ratio < 1):
        raise PicojouleError(f"ratio={ratio!r} lowers no budget: give a number between 0 and 1")
    if type(count) is not int or count < 1:
        raise PicojouleError(f"count={count!r} is no number of stages: give a whole number from 1 up")
    if count > 1 and recipe.penalty.strength == 0:
        raise PicojouleError(
            "penalty.strength is the coefficient of the pull towards the budget and must be above 0: set it in the "
            "recipe"
        )
    first = recipe.with_values(penalty={"strength": 0})
    chain = [first]
    for k in range(1, count):
        chain.append(
            recipe.with_values(
                penalty={"kind": "target", "target": ratio**k, "reference": first.name},
                training={"start_from": chain[-1].name},
            )
        )
    return tuple(chain)
