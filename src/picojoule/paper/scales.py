"""Scales of an experiment: the paper's own, three for a small machine, and one that only shows that it works."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from picojoule import data as datasets
from picojoule.errors import PicojouleError, unknown
from picojoule.recipe import Recipe

Size = Literal["full", "small", "mini", "quick", "smoke"]
SIZES: tuple[Size, ...] = get_args(Size)
"""The scales, the largest first."""
STAND_IN = "digits"
"""The data set that is always there."""

_Values = dict[str, dict[str, Any]]
"""Values of a recipe by section."""
_ONE_CORE: _Values = {"training": {"threads": 1, "kernels": "auto"}}
"""How a run trains of which several stand side by side: layers skip silent inputs wherever that is faster."""
_CIFAR_10: dict[Size, _Values] = {
    "small": {
        "data": {"limit": 20_000, "limit_validation": 1000, "augment": False},
        "training": {"epochs": 6, "batch_size": 50, **_ONE_CORE["training"]},
    },
    "mini": {
        "data": {"limit": 5000, "limit_validation": 500, "limit_test": 2000, "augment": False},
        "training": {"epochs": 6, "batch_size": 25, **_ONE_CORE["training"]},
    },
    "quick": {
        "data": {"limit": 1000, "limit_validation": 100, "limit_test": 500, "augment": False},
        "training": {"epochs": 4, "batch_size": 25, **_ONE_CORE["training"]},
    },
}
_VALUES: dict[str, dict[Size, _Values]] = {
    "cnn7": {
        "small": {
            "data": {"limit": 54_000, "limit_validation": 1000, "augment": False},
            "training": {"epochs": 3, "batch_size": 50, **_ONE_CORE["training"]},
        },
        "mini": {
            "data": {"limit": 10_000, "limit_validation": 1000, "augment": False},
            "training": {"epochs": 6, "batch_size": 25, **_ONE_CORE["training"]},
        },
        "quick": {
            "data": {"limit": 4000, "limit_validation": 500, "limit_test": 2000, "augment": False},
            "training": {"epochs": 5, "batch_size": 20, **_ONE_CORE["training"]},
        },
    },
    "vgg11": _CIFAR_10,
    "resnet18": _CIFAR_10,
}
"""The values of the scales between by model: some thousands of steps."""
_LEAST_RATE = 2e-3
"""The least learning rate of CNN7 below the full scale: some thousands of steps get further with it than at 1e-3."""
_GREATEST_ADAM_RATE = 3e-4
"""The greatest learning rate of VGG11 with Adam below the full scale: at 1e-3 it is at chance for hundreds of steps."""
MOST_SEEDS = 1000
"""The largest number of seeds; more are a slip of the finger."""


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run.

    Attributes:
        name: "full" (the paper's), "small" (baselines near the paper's), "mini" (for side experiments), "quick" (a
            trade-off of CNN7 in minutes) or "smoke".
        seeds: The seeds of each setting.
        replaced: Data sets that are missing, in whose place the stand-in is taken.
    """

    name: Size
    seeds: tuple[int, ...]
    replaced: frozenset[str] = frozenset()

    def adapt(self, recipe: Recipe) -> Recipe:
        """Return a recipe of the paper as this scale trains it.

        Args:
            recipe: The recipe at full scale.

        Returns:
            The recipe, with fewer images and epochs where the scale is smaller.

        >>> from picojoule.paper.settings import setting
        >>> mini = SCALES["mini"].adapt(setting("cnn7-fashion-mnist-adam-s3nn"))
        >>> mini.data.limit, mini.training.epochs, mini.energy.psi
        (10000, 6, 'paper')
        """
        if self.name == "full":
            return recipe
        if self.name != "smoke":
            return _with_few_steps(recipe.with_values(**_VALUES[recipe.model.name][self.name]))
        if recipe.data.name in self.replaced:
            recipe = recipe.with_values(data={"name": STAND_IN, "pad": datasets.DATASETS[STAND_IN].pad})
        few = recipe.classes  # the least that a recipe takes
        return recipe.with_values(
            data={"limit": few, "limit_validation": few, "limit_test": few, "augment": False},
            training={"batch_size": few // 2, "epochs": 1, "threads": 1},
        )

    def with_seeds(self, count: int | None) -> Scale:
        """Return the same scale with so many seeds.

        Args:
            count: How many; None leaves the seeds as they are.

        Returns:
            The scale with the seeds 0, 1, … count − 1.

        Raises:
            PicojouleError: If there cannot be so many.

        >>> SCALES["small"].with_seeds(3).seeds
        (0, 1, 2)
        """
        if count is None:
            return self
        if type(count) is not int or not 1 <= count <= MOST_SEEDS:
            raise PicojouleError(f"{count!r} seeds are not possible: take a whole number from 1 to {MOST_SEEDS}")
        return replace(self, seeds=tuple(range(count)))

    def without(self, missing: frozenset[str]) -> Scale:
        """Return the same scale where some data sets are missing.

        Args:
            missing: Their names; the stand-in takes their place.
        """
        return replace(self, replaced=missing)


def _with_few_steps(recipe: Recipe) -> Recipe:
    """Choose a learning rate with which some thousands of steps are enough."""
    rate = recipe.optimizer.lr
    if recipe.model.name == "cnn7":
        rate = max(rate, _LEAST_RATE)
    if recipe.model.name == "vgg11" and recipe.optimizer.name == "adam":
        rate = min(rate, _GREATEST_ADAM_RATE)
    return recipe.with_values(optimizer={"lr": rate})


SCALES: dict[Size, Scale] = {
    "full": Scale("full", seeds=(0, 1, 2)),
    **{size: Scale(size, seeds=(0,)) for size in SIZES[1:]},
}


def find_scale(name: str) -> Scale:
    """Find a scale by its name.

    Args:
        name: One of `SIZES`.

    Returns:
        The scale.

    Raises:
        PicojouleError: If there is none of this name.
    """
    for size, scale in SCALES.items():
        if size == name:
            return scale
    raise unknown("--scale", name, SIZES)
