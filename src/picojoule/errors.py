"""The error that a user's mistake raises, and the sentences that several modules need for it."""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class PicojouleError(ValueError):
    """A mistake that the caller can put right, in one sentence that says what is wrong and what to do.

    The command line prints the sentence and exits with status 2; any other exception is a defect of picojoule.

    >>> print(PicojouleError("steps=0 is not a valid number of time steps: give a whole number from 1 up"))
    steps=0 is not a valid number of time steps: give a whole number from 1 up
    """


_NO_MEMORY = ("not enough memory", "can't allocate memory", "cannot allocate memory", "out of memory")
"""What PyTorch's allocators say; those of accelerators raise a class of its own, which is a RuntimeError too."""


class Clause(PicojouleError):
    """The second half of a refusal: whoever catches it names the place in front of it and the remedy behind it."""


def memory_ran_out(fault: BaseException) -> str | None:
    """Say in one sentence that memory ran out, if that is what an exception of Python, NumPy or PyTorch means.

    Args:
        fault: Any exception.

    Returns:
        The sentence, or None if the exception means something else.

    >>> memory_ran_out(MemoryError("Unable to allocate 8.00 GiB for an array"))
    'memory ran out (8.00 GiB were wanted): take a smaller training.batch_size, fewer images at once or fewer --workers'
    >>> memory_ran_out(ValueError("too large")) is None
    True
    """
    text = str(fault)
    by_pytorch = isinstance(fault, RuntimeError) and any(words in text.lower() for words in _NO_MEMORY)
    by_system = isinstance(fault, OSError) and (fault.errno == errno.ENOMEM or _left_no_room(fault))
    if not (by_pytorch or by_system or isinstance(fault, MemoryError)):
        return None
    amount = re.search(r"allocate ([\d.]+ \w+)", text)
    wanted = f" ({amount[1]} were wanted)" if amount else ""
    return f"memory ran out{wanted}: take a smaller training.batch_size, fewer images at once or fewer --workers"


def _left_no_room(fault: BaseException | None) -> bool:
    """Whether a library could not be loaded for want of memory; where programs are forbidden, the loader adds so."""
    if fault is None:
        return False
    return str(fault).endswith("failed to map segment from shared object") or _left_no_room(fault.__context__)


def unknown(what: str, given: object, valid: Iterable[str], otherwise: str = "") -> PicojouleError:
    """Make the error for a name that is not in a list; it names the nearest valid one and all of them.

    Args:
        what: What the name stands for, such as "model".
        given: The name that was given.
        valid: The valid names.
        otherwise: What can be given instead of a name, as the end of the sentence.

    Returns:
        The error, to be raised.

    >>> str(unknown("model", "cnn8", ["cnn7", "vgg11"]))
    "unknown model 'cnn8': did you mean 'cnn7'? choose one of cnn7, vgg11"
    """
    valid = list(valid)
    near = get_close_matches(given.lower(), valid, n=1) if isinstance(given, str) else []
    hint = f"did you mean {near[0]!r}? " if near else ""
    odd = foreign_letters(str(given)) if near else ""
    return PicojouleError(f"unknown {what} {given!r}{odd}: {hint}choose one of {', '.join(valid)}{otherwise}")


def foreign_letters(given: str) -> str:
    r"""Name the letters of a nearly right word that are not ASCII, since they may look like others.

    Args:
        given: What the user wrote.

    Returns:
        A remark in brackets, or nothing.

    >>> foreign_letters("d\u0430ta.name"), foreign_letters("data.nme")
    (' (with CYRILLIC SMALL LETTER A)', '')
    """
    names = dict.fromkeys(unicodedata.name(letter, f"U+{ord(letter):04X}") for letter in given if not letter.isascii())
    return f" (with {', '.join(list(names)[:3])})" if names else ""


def reason_of(error: Exception) -> str:
    r"""Put what somebody else's code raised on one line, to stand in brackets in a sentence.

    Args:
        error: The exception.

    Returns:
        Its class and the first of its words.

    >>> reason_of(ValueError("not\nso"))
    'ValueError: not so'
    """
    plain = re.sub(r"\x1b\[[0-9;]*m", "", str(error))  # PyTorch's exporter colours its words
    return " ".join(f"{type(error).__name__}: {plain}".split())[:300].removesuffix(":")


def as_path(what: str, given: object) -> Path:
    """Return what was given as a path.

    Args:
        what: What the path leads to, as the subject of the sentence.
        given: What the caller gave.

    Returns:
        The path.

    Raises:
        PicojouleError: If it is neither a string nor a path.

    >>> as_path("a run", "runs/first").name
    'first'
    """
    if not isinstance(given, str | os.PathLike):
        raise PicojouleError(f"{what} is named by its path, not by {type(given).__name__}: give a string or a Path")
    return Path(given)
