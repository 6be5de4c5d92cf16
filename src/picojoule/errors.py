"""The one error that a user's mistake raises."""

from __future__ import annotations

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class PicojouleError(ValueError):
    """Something the caller can put right: one sentence that says what is wrong and what to do.

    The command line prints the sentence and exits with status 2; any other exception is a defect of picojoule.
    """


def unknown(what: str, given: object, valid: Iterable[str], otherwise: str = "") -> PicojouleError:
    """The error for a name that is in no list: it names the nearest valid one and all of them.

    >>> str(unknown("model", "cnn8", ["cnn7", "vgg11"]))
    "unknown model 'cnn8': did you mean 'cnn7'? choose one of cnn7, vgg11"
    """
    valid = list(valid)
    near = get_close_matches(given.lower(), valid, n=1) if isinstance(given, str) else []
    hint = f"did you mean {near[0]!r}? " if near else ""
    return PicojouleError(f"unknown {what} {given!r}: {hint}choose one of {', '.join(valid)}{otherwise}")


def a_path(what: str, given: object) -> Path:
    """The path that was given; an error if it is none, with `what` to say of which it was asked."""
    if not isinstance(given, str | os.PathLike):
        raise PicojouleError(f"{what} is named by its path, not by {type(given).__name__}: give a string or a Path")
    return Path(given)
