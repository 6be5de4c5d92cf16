"""Scales of an experiment: the paper's own, one for a small machine, and one that only shows that it works."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

from picojoule import data as datasets
from picojoule.errors import PicojouleError, unknown
from picojoule.recipe import Recipe

Size = Literal["full", "small", "smoke"]
SIZES: tuple[Size, ...] = get_args(Size)
STAND_IN = "digits"
"""The data set that is always there."""

_FEW_IMAGES = {"limit": 2000, "limit_validation": 500, "limit_test": 1000, "augment": False}
_FEW_EPOCHS = {"epochs": 8, "batch_size": 50, "threads": 1}
_SMALL: dict[str, dict[str, dict[str, int]]] = {
    "cnn7": {
        "data": {"limit": 1500, "limit_validation": 500, "limit_test": 5000, "augment": False},
        "training": {"epochs": 7, "batch_size": 15, "threads": 1},
    },
    "vgg11": {"data": _FEW_IMAGES, "training": _FEW_EPOCHS},
    "resnet18": {"data": _FEW_IMAGES, "training": _FEW_EPOCHS},
}
"""The values of the small scale by model: some hundreds of steps."""
_LEAST_RATE = 3e-3
"""The least learning rate of CNN7.

At the paper's 1e-3, seven hundred steps leave some seeds with classes they never name.
"""
_GREATEST_ADAM_RATE = 3e-4
"""The greatest learning rate of VGG11 with Adam.

At the paper's 1e-3 and in batches of 20, it was still at chance after three hundred steps.
"""
MOST_SEEDS = 1000
"""The largest number of seeds; more are a slip of the finger."""


@dataclass(frozen=True)
class Scale:
    """How much of an experiment is run.

    Attributes:
        name: "full", "small" or "smoke".
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
        >>> small = SCALES["small"].adapt(setting("cnn7-fashion-mnist-adam-s3nn"))
        >>> small.data.limit, small.training.epochs, small.energy.psi
        (1500, 7, 'paper')
        """
        if self.name == "full":
            return recipe
        if self.name == "small":
            return _with_few_steps(recipe.with_values(**_SMALL[recipe.model.name]))
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
    """Choose a learning rate with which some hundreds of steps are enough."""
    rate = recipe.optimizer.lr
    if recipe.model.name == "cnn7":
        rate = max(rate, _LEAST_RATE)
    if recipe.model.name == "vgg11" and recipe.optimizer.name == "adam":
        rate = min(rate, _GREATEST_ADAM_RATE)
    return recipe.with_values(optimizer={"lr": rate})


SCALES: dict[Size, Scale] = {
    "full": Scale("full", seeds=(0, 1, 2)),
    "small": Scale("small", seeds=(0,)),
    "smoke": Scale("smoke", seeds=(0,)),
}


def find_scale(name: str) -> Scale:
    """Find a scale by its name.

    Args:
        name: "full", "small" or "smoke".

    Returns:
        The scale.

    Raises:
        PicojouleError: If there is none of this name.
    """
    for size, scale in SCALES.items():
        if size == name:
            return scale
    raise unknown("--scale", name, SIZES)
