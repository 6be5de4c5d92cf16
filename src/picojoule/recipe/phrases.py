"""Values, names and choices as they stand in a sentence about a mistake."""

from __future__ import annotations

from collections.abc import Iterable


def choices(names: Iterable[str]) -> str:
    return either([repr(name) for name in names])


def either(words: list[str]) -> str:
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def shown(value: object) -> str:
    """A value as it stands in TOML, on one line and not too long."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    try:
        return _short(repr(value) if isinstance(value, str | int | float | list) else str(value))
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return "a huge number"


def plain(name: str) -> str:
    """A name as it is if it prints on one line, else quoted with escapes."""
    return _short(name if name.isprintable() and name else repr(name))


def _short(text: str) -> str:
    return text if len(text) <= 120 else f"{text[:117]}..."
