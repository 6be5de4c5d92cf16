"""The recipes that ship with picojoule: small, smoke and paper, found by name also where there is no checkout."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def shipped_folder() -> Traversable:
    """Return the folder of shipped recipes: the copy in the wheel, or the files of a checkout.

    Returns:
        The folder, which has one for each kind of recipe.

    >>> (shipped_folder() / "smoke" / "digits.toml").is_file()
    True
    """
    installed = files("picojoule.recipe") / "shipped_recipes"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "recipes"


@cache
def shipped_names() -> tuple[str, ...]:
    """List the names of the shipped recipes, as `train` and the other commands take them.

    Returns:
        Names such as "smoke/digits".

    >>> "small/cnn7-fashion-mnist" in shipped_names()
    True
    """
    folders = [folder for folder in shipped_folder().iterdir() if folder.is_dir()]
    found = [(folder.name, file.name) for folder in folders for file in folder.iterdir()]
    return tuple(sorted(f"{kind}/{name.removesuffix('.toml')}" for kind, name in found if name.endswith(".toml")))


def shipped_text(name: str) -> str | None:
    """Return the text of a shipped recipe.

    Args:
        name: Such as "smoke/digits"; "recipes/smoke/digits.toml", as in a checkout, is the same.

    Returns:
        The TOML; None where there is no such recipe.

    >>> shipped_text("recipes/smoke/digits.toml") == shipped_text("smoke/digits")
    True
    """
    plain = name.replace("\\", "/").removeprefix("recipes/").removesuffix(".toml")
    if plain not in shipped_names():
        return None
    folder, _, file = plain.partition("/")
    return (shipped_folder() / folder / f"{file}.toml").read_text(encoding="utf-8")
