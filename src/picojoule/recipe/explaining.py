"""A mistake as one sentence: which key, which value, and what is allowed in its place."""

from __future__ import annotations

from difflib import get_close_matches

from pydantic import ValidationError

from picojoule.recipe.keys import ALONE, KEYS, SECTIONS, allowed, keys_of, names
from picojoule.recipe.wording import either, plain, shown


def explain(fault: ValidationError) -> str:
    """One sentence about the first mistake; a key that does not exist comes first, for it may explain a missing one."""
    mistakes = fault.errors(include_url=False)
    mistake = min(mistakes, key=lambda each: each["type"] != "extra_forbidden")
    key = ".".join(map(str, mistake["loc"]))
    if mistake["type"] == "extra_forbidden":
        return no_such_key(key)
    if mistake["type"] == "missing":
        key = f"{key}.name" if key in SECTIONS else key
        return f"{key} is missing: take {allowed(KEYS[key])}"
    if key in SECTIONS:
        return not_a_section(key, mistake["input"])
    return _not_allowed(key, mistake["input"])


def no_such_key(key: str) -> str:
    if key == "axes":
        return "axes make it a sweep of many runs: run it with `picojoule sweep`"
    near = _near_keys(key.lower())
    if near:
        return f"there is no key {plain(key)}: did you mean {either(near)}?"
    section = key.partition(".")[0]
    return f"there is no key {plain(key)}: take {either(keys_of(section) or [*ALONE, *SECTIONS])}"


def _near_keys(key: str) -> list[str]:
    """Keys whose last part is nearly the same, first in that section, then anywhere; else a section of such a name."""
    section, _, leaf = key.rpartition(".")
    for scope in (keys_of(section), [*KEYS]):
        near = get_close_matches(leaf, [known.rpartition(".")[2] for known in scope], n=1)
        found = [known for known in scope if known.rpartition(".")[2] in near]
        if found:
            return get_close_matches(key, found, n=1, cutoff=0.75) or found
    return [] if section in SECTIONS else get_close_matches(key, SECTIONS, n=1)


def not_a_section(section: str, value: object) -> str:
    keys = ", ".join(keys_of(section))
    return f"{section} = {shown(value)} is not allowed: {section} is a section with the keys {keys}"


def _not_allowed(key: str, value: object) -> str:
    field = KEYS[key]
    word = value.lower() if isinstance(value, str) else shown(value)
    near = get_close_matches(word, names(field), n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{key} = {shown(value)} is not allowed: {hint}take {allowed(field)}"
