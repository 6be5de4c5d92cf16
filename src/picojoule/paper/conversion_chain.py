"""The chain of runs behind the comparison with conversion: one network whose budget is lowered stage by stage."""

from __future__ import annotations

import math

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe


def stages(recipe: Recipe, ratio: float, count: int) -> tuple[Recipe, ...]:
    """Return the conversion baseline's stages, to be trained in this order into one folder.

    Stage 0 is the recipe without a penalty. Stage k = 1 … count − 1 begins with the weights of stage k − 1 and is
    pulled towards ratio^k of stage 0's synaptic operations on the validation images, with the recipe's
    `penalty.strength` as the coefficient of ((S − S0)/S0)². This is our reading of "increasing the intensity".

    Args:
        recipe: The recipe of a network with quantised ReLUs.
        ratio: By what each stage lowers the target, between 0 and 1.
        count: How many stages.

    Returns:
        The recipes of the stages.

    Raises:
        PicojouleError: If an argument is not valid, or the recipe has no penalty.

    >>> base = Recipe.loads('model.name = "cnn7"', "data.name=digits", "neuron.kind=qrelu", "penalty.strength=10")
    >>> first, second, third = stages(base, ratio=0.8, count=3)
    >>> first.penalty.strength, second.penalty.target, round(third.penalty.target, 3)
    (0.0, 0.8, 0.64)
    >>> third.training.start_from == second.name, third.penalty.reference == first.name
    (True, True)
    """
    if not isinstance(recipe, Recipe):
        raise PicojouleError(f"a chain needs a Recipe, not {type(recipe).__name__}: Recipe.load reads one from a file")
    if not isinstance(ratio, int | float) or not (math.isfinite(ratio) and 0 < ratio < 1):
        raise PicojouleError(f"ratio={ratio!r} does not lower a budget: give a number between 0 and 1")
    if type(count) is not int or count < 1:
        raise PicojouleError(f"count={count!r} is not a valid number of stages: give a whole number from 1 up")
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
