"""Changes to the nested tables of a recipe: override strings of the command line, and typed values in Python.

Both end in `put`, so that ``penalty.strength=64`` and ``penalty={"strength": 64}`` give the same recipe. Whether a
value is allowed is for `Recipe` to say, which is built from the changed tables.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.fields import FieldInfo

from picojoule.errors import PicojouleError
from picojoule.recipe.keys import KEYS, SECTIONS, keys_of, takes_text
from picojoule.recipe.messages import no_such_key, not_a_section
from picojoule.recipe.phrases import either

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_ARGUMENTS = "model.args."
"""Before the name of an argument of a model's factory, which is a key like any other."""


def apply_overrides(content: dict[str, Any], overrides: Iterable[str]) -> dict[str, Any]:
    """Put each ``section.key=value`` into the tables of a recipe.

    Args:
        content: The tables, which are changed in place.
        overrides: Strings; the value is written as in TOML, or as a bare word where the key takes text.

    Returns:
        The same tables.

    Raises:
        PicojouleError: If an override is not of this form, or its key does not exist.

    >>> apply_overrides({"seed": 1}, ["penalty.strength=64", "model.name=cnn7"])
    {'seed': 1, 'penalty': {'strength': 64}, 'model': {'name': 'cnn7'}}
    """
    for override in overrides:
        if not isinstance(override, str):
            raise PicojouleError(f"{override!r} is not an override: write it as a string, as in 'penalty.strength=64'")
        key, equals, text = override.partition("=")
        key = key.strip()
        if not equals:
            raise PicojouleError(f"{override!r} is not an override: write section.key=value, as in penalty.strength=64")
        field = _field(key)
        put(content, key, _parse_value(text.strip(), wants_text=takes_text(field)))
    return content


def apply_values(content: dict[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Put typed values into the tables of a recipe.

    Args:
        content: The tables, which are changed in place.
        values: A mapping of keys to values for each section, and ``seed``, which stands alone.

    Returns:
        The same tables.

    Raises:
        PicojouleError: If a key does not exist, or a section is given something other than a mapping.

    >>> apply_values({"seed": 1, "penalty": {"p": 2}}, {"penalty": {"strength": 64}, "seed": 3})
    {'seed': 3, 'penalty': {'p': 2, 'strength': 64}}
    """
    for name, given in values.items():
        section, _, leaf = name.partition(".")
        if leaf and name in KEYS:
            raise PicojouleError(f"{name} is a key of the section {section}: write {section}={{{leaf!r}: …}}")
        if name not in SECTIONS:
            put(content, name, given)
        elif isinstance(given, Mapping):
            for key, value in given.items():
                put(content, f"{name}.{key}", value)
        else:
            raise PicojouleError(not_a_section(name, given))
    return content


def put(content: dict[str, Any], key: str, value: Any) -> None:
    """Set one dotted key in the tables of a recipe.

    Args:
        content: The tables, which are changed in place.
        key: ``section.key``, or ``seed``.
        value: Its new value, not yet checked.

    Raises:
        PicojouleError: If there is no such key, or the tables hold something other than a section in its place.
    """
    _field(key)
    *sections, leaf = key.split(".")
    values = content
    for section in sections:
        below = values.setdefault(section, {})
        if not isinstance(below, dict):
            raise PicojouleError(not_a_section(section, below))
        values[section] = values = dict(below)
    values[leaf] = value


def _field(key: str) -> FieldInfo:
    """Find the declaration of a dotted key."""
    if key in SECTIONS:
        raise PicojouleError(f"{key} is a section: set one of its keys, {either(keys_of(key))}")
    if key.startswith(_ARGUMENTS):
        return KEYS[_ARGUMENTS.removesuffix(".")]
    if key not in KEYS:
        raise PicojouleError(no_such_key(key))
    return KEYS[key]


def _parse_value(text: str, wants_text: bool) -> Any:
    """Read a value as TOML, or as a bare word where it is not TOML or where the key takes text."""
    try:
        parsed = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    # A line break in the text could have started another key.
    if parsed.keys() != {"value"} or (wants_text and not isinstance(parsed["value"], str)):
        return text
    return parsed["value"]
