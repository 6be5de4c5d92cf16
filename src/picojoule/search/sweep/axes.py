"""A sweep file: a recipe, and the axes along which it varies.

The keys of one ``[[axes]]`` block are multiplied, the first of them varying slowest; several blocks are joined; a
recipe that comes up again is dropped. Without a block the file is an ordinary recipe and gives that one run.
"""

from __future__ import annotations

import copy
import itertools
import math
import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from picojoule.recipe.changes import apply_overrides, put
from picojoule.recipe.toml import named, parse, read

Block = dict[str, list[Any]]
"""Dotted recipe keys and their values."""


def load(path: str | os.PathLike[str], *overrides: str) -> tuple[Recipe, ...]:
    r"""Read the recipes of a sweep file.

    Args:
        path: A TOML file: a recipe, and the ``[[axes]]`` along which it varies.
        *overrides: Changes of the recipe that is varied, each ``section.key=value``.

    Returns:
        The recipes, each once.

    Raises:
        PicojouleError: If the file cannot be read, one of its recipes is not valid, or an override has no effect.

    >>> import tempfile, pathlib
    >>> file = pathlib.Path(tempfile.mkdtemp(), "sweep.toml")
    >>> _ = file.write_text('model.name = "cnn7"\ndata.name = "digits"\n[[axes]]\nseed = [0, 1, 2]')
    >>> [recipe.seed for recipe in load(file)]
    [0, 1, 2]
    """
    text = read(path)
    with named(path, overrides):
        return loads(text, *overrides)


def loads(text: str, *overrides: str) -> tuple[Recipe, ...]:
    """Read the recipes of a sweep from TOML text.

    Args:
        text: A recipe, and the ``[[axes]]`` along which it varies.
        *overrides: Changes of the recipe that is varied, each ``section.key=value``.

    Returns:
        The recipes, each once.

    Raises:
        PicojouleError: If one of the recipes is not valid, or an override has no effect.

    >>> recipes = loads('''
    ... model.name = "cnn7"
    ... data.name = "digits"
    ... [[axes]]
    ... penalty.strength = [0, 16]
    ... seed = [0, 1]
    ... [[axes]]
    ... penalty.kind = ["syn", "total"]
    ... ''')
    >>> [(recipe.penalty.kind, recipe.penalty.strength, recipe.seed) for recipe in recipes]
    [('syn', 0.0, 0), ('syn', 0.0, 1), ('syn', 16.0, 0), ('syn', 16.0, 1), ('total', 0.0, 0)]
    """
    content = parse(text)
    blocks = _blocks(content.pop("axes", []))
    _check_effect(blocks, overrides)
    _check_size(blocks)
    apply_overrides(content, overrides)
    return tuple(dict.fromkeys(recipe for block in blocks for recipe in _multiplied(content, block)))


def _multiplied(content: dict[str, Any], block: Block) -> Iterator[Recipe]:
    """Vary a recipe over all combinations of a block's values."""
    for values in itertools.product(*block.values()):
        varied = copy.deepcopy(content)
        for key, value in zip(block, values, strict=True):
            put(varied, key, value)
        yield Recipe(**varied)


def _blocks(axes: object) -> list[Block]:
    """Check that axes are blocks of lists; a file without any is one block without keys."""
    if not isinstance(axes, list) or not all(isinstance(block, dict) for block in axes):
        raise PicojouleError("axes is not allowed as it stands: write each block of axes under a line [[axes]]")
    return [_block(block) for block in axes] or [{}]


def _block(content: dict[str, Any]) -> Block:
    """Turn one block of axes into dotted keys with lists of values."""
    block: Block = {}
    for key, values in _flat(content):
        if key in block:
            raise PicojouleError(f"one block of axes has {key} twice: join the two lists")
        if not isinstance(values, list):
            raise PicojouleError(f"the axis {key} is not a list: put its value into brackets, also if it is only one")
        if not values:
            raise PicojouleError(f"the axis {key} is empty: give it a value, or leave it out")
        block[key] = values
    return block


def _flat(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """List nested tables by dotted keys."""
    for key, value in content.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


_MOST = 100_000
"""The largest number of runs. More are a mistake in the axes, and would fill the memory before it is reported."""


def _check_size(blocks: Sequence[Block]) -> None:
    """Refuse axes that multiply to too many runs."""
    runs = sum(math.prod(map(len, block.values())) for block in blocks)
    if runs > _MOST:
        raise PicojouleError(
            f"the axes multiply to {runs:,} runs, and a sweep has up to {_MOST:,}: put axes that need not be "
            "multiplied into [[axes]] of their own"
        )


def _check_effect(blocks: Sequence[Block], overrides: Iterable[str]) -> None:
    """Refuse overrides of keys that every block varies."""
    for override in overrides:
        key = override.partition("=")[0].strip()
        if all(key in block for block in blocks):
            raise PicojouleError(
                f"{override} has no effect, because {key} is an axis of the sweep: change its list in the "
                "file, or take it out"
            )
