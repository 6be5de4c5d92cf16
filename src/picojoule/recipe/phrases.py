"""Phrases for messages: values, names and choices as they stand in a sentence about a mistake."""

from __future__ import annotations

from collections.abc import Iterable


def choices(names: Iterable[str]) -> str:
    """Join names in quotes by commas and "or".

    Args:
        names: At least one.

    Returns:
        The phrase.

    >>> choices(["adam", "sgd"])
    "'adam' or 'sgd'"
    """
    return either([repr(name) for name in names])


def either(words: list[str]) -> str:
    """Join words by commas and "or".

    Args:
        words: At least one.

    Returns:
        The phrase.

    >>> either(["a", "b", "c"])
    'a, b or c'
    """
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def shown(value: object) -> str:
    """Write a value as in TOML, on one line and not too long.

    Args:
        value: Anything that TOML or Python gave.

    Returns:
        Up to 120 characters.

    >>> shown(True), shown("syn"), shown({"a": 1})
    ('true', "'syn'", 'a table')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a table"
    value = list(value) if isinstance(value, tuple) else value
    try:
        return _short(repr(value) if isinstance(value, str | int | float | list) else str(value))
    except ValueError:  # Python refuses to write out whole numbers of thousands of digits
        return "a huge number"


def plain(name: str) -> str:
    """Write a name as it is if it prints on one line, else quoted with escapes.

    Args:
        name: A key or a path.

    Returns:
        Up to 120 characters.
    """
    return _short(name if name.isprintable() and name else repr(name))


def _short(text: str) -> str:
    """Cut a text at 120 characters."""
    return text if len(text) <= 120 else f"{text[:117]}..."
