"""Messages of a recipe: a mistake as one sentence that names the key, the value, and what is allowed in its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from pydantic import ValidationError

from picojoule.errors import foreign_letters
from picojoule.recipe.keys import ALONE, KEYS, SECTIONS, allowed, keys_of, names
from picojoule.recipe.phrases import either, plain, shown
from picojoule.recipe.values import wrong_argument


def explain(fault: ValidationError) -> str:
    """Put the first mistake that pydantic found into one sentence.

    Args:
        fault: What pydantic found. A key that does not exist comes first, because it may explain a missing one.

    Returns:
        The sentence.
    """
    mistakes = fault.errors(include_url=False)
    mistake = min(mistakes, key=lambda each: each["type"] != "extra_forbidden")
    parts = [str(part) for part in mistake["loc"]]
    key = ".".join(parts)
    if mistake["type"] == "extra_forbidden":
        return no_such_key(key, parts)
    if mistake["type"] == "missing":
        key = f"{key}.name" if key in SECTIONS else key
        return f"{key} is missing: take {allowed(KEYS[key])}"
    if key in SECTIONS:
        return not_a_section(key, mistake["input"])
    given = mistake["input"]
    wrong = wrong_argument(given) if key == "model.args" and isinstance(given, Mapping) else None
    if wrong is not None and isinstance(wrong[0], str) and wrong[0].isidentifier():  # else the name is the mistake
        return (
            f"model.args.{plain(wrong[0])} = {shown(wrong[1])} is not allowed: take text, a finite number, true "
            "or false, or a list of them"
        )
    return _not_allowed(key, given)


def no_such_key(key: str, parts: Sequence[str] | None = None) -> str:
    """Say that there is no such key, and which one may be meant.

    Args:
        key: The dotted key.
        parts: Its names as TOML took them, which may have dots inside.

    Returns:
        The sentence.
    """
    if key == "axes":
        return "axes make it a sweep of many runs: run it with `picojoule sweep`"
    spelt = ".".join(map(_spelt, parts or key.split(".")))
    if key in KEYS:
        return f"there is no key {spelt}: write {key} without quotes, in which a dot is a letter like any other"
    near = _near_keys(key.lower())
    if near:
        return f"there is no key {plain(spelt)}{foreign_letters(key)}: did you mean {either(near)}?"
    section = key.partition(".")[0]
    return f"there is no key {plain(spelt)}: take {either(keys_of(section) or [*ALONE, *SECTIONS])}"


def _spelt(name: str) -> str:
    """Quote a name unless it could stand without quotes (letters of any alphabet pass).

    >>> print(_spelt("name"), _spelt("name "), _spelt("data.name"))
    name 'name ' 'data.name'
    """
    return name if name.replace("-", "_").isidentifier() or name.isdecimal() else repr(name)


def _near_keys(key: str) -> list[str]:
    """Find keys whose last part is nearly the same, in that section, then anywhere; else a section of such a name."""
    section, _, leaf = key.rpartition(".")
    for scope in (keys_of(section), [*KEYS]):
        near = get_close_matches(leaf, [known.rpartition(".")[2] for known in scope], n=1)
        found = [known for known in scope if known.rpartition(".")[2] in near]
        if found:
            return get_close_matches(key, found, n=1, cutoff=0.75) or found
    return [] if section in SECTIONS else get_close_matches(key, SECTIONS, n=1)


def not_a_section(section: str, value: object) -> str:
    """Say that a section is not a plain value.

    Args:
        section: Its name.
        value: What was given in its place.

    Returns:
        The sentence.
    """
    keys = ", ".join(keys_of(section))
    return f"{section} = {shown(value)} is not allowed: {section} is a section with the keys {keys}"


def _not_allowed(key: str, value: object) -> str:
    """Say what a key takes in place of a value."""
    field = KEYS[key]
    word = value.lower() if isinstance(value, str) else shown(value)
    near = get_close_matches(word, names(field), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    odd = foreign_letters(value) if near and isinstance(value, str) else ""
    return f"{key} = {shown(value)}{odd} is not allowed: {hint}take {allowed(field)}"
