"""The paper's settings: the recipes in `recipes/paper`, one for each row of its hyper-parameter table."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from picojoule.recipe import Recipe
from picojoule.recipe.shipped import shipped_folder

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

MODELS = {"cnn7": "CNN7", "vgg11": "VGG11", "resnet18": "ResNet18"}
DATA = {"fashion-mnist": "Fashion-MNIST", "cifar-10": "CIFAR-10", "cifar-100": "CIFAR-100", "digits": "digits"}
OPTIMIZERS = {"adam": "Adam", "sgd": "mSGD"}


def setting(name: str, /, **values: Any) -> Recipe:
    """Return one of the paper's settings, with some values changed.

    Args:
        name: The name of its file in `recipes/paper`, without the ending.
        **values: What is changed, as `Recipe.with_values` takes it.

    Returns:
        The recipe.

    >>> setting("resnet18-cifar-10-adam-s3nn", data={"name": "cifar-100"}).classes
    100
    """
    recipe = _read(name)
    return recipe.with_values(**values) if values else recipe


@cache  # experiments ask for the same few hundreds of times
def _read(name: str) -> Recipe:
    """Read a setting from its file."""
    return Recipe.loads((_home() / f"{name}.toml").read_text(encoding="utf-8"))


def settings() -> dict[str, Recipe]:
    """Return all settings of the paper.

    Returns:
        The recipes by name.
    """
    names = sorted(entry.name.removesuffix(".toml") for entry in _home().iterdir() if entry.name.endswith(".toml"))
    return {name: setting(name) for name in names}


def setting_title(recipe: Recipe) -> str:
    """Write model, data set and optimizer of a recipe as the paper does.

    Args:
        recipe: A recipe of the paper.

    Returns:
        The title.

    >>> setting_title(setting("vgg11-cifar-10-sgd-s3nn"))
    'VGG11 / CIFAR-10 / mSGD'
    """
    return " / ".join((MODELS[recipe.model.name], DATA[recipe.data.name], OPTIMIZERS[recipe.optimizer.name]))


def _home() -> Traversable:
    """Return the folder of the paper's recipes."""
    return shipped_folder() / "paper"
