"""The one error that a user's mistake raises."""

from __future__ import annotations

import errno
import os
import re
import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path


class PicojouleError(ValueError):
    """Something the caller can put right: one sentence that says what is wrong and what to do.

    The command line prints the sentence and exits with status 2; any other exception is a defect of picojoule.
    """


_NO_MEMORY = ("not enough memory", "can't allocate memory", "cannot allocate memory", "out of memory")
"""What PyTorch's allocators say; those of accelerators have a class for it, which is a RuntimeError too."""


def memory_ran_out(fault: BaseException) -> str | None:
    """One sentence for an exception by which Python, NumPy or PyTorch says that there is no memory, None for others.

    >>> memory_ran_out(MemoryError("Unable to allocate 8.00 GiB for an array"))
    'memory ran out (8.00 GiB were wanted): take a smaller training.batch_size, fewer images at once or fewer --workers'
    >>> memory_ran_out(ValueError("too large")) is None
    True
    """
    text = str(fault)
    by_pytorch = isinstance(fault, RuntimeError) and any(words in text.lower() for words in _NO_MEMORY)
    by_system = isinstance(fault, OSError) and fault.errno == errno.ENOMEM
    if not (by_pytorch or by_system or isinstance(fault, MemoryError)):
        return None
    amount = re.search(r"allocate ([\d.]+ \w+)", text)
    wanted = f" ({amount[1]} were wanted)" if amount else ""
    return f"memory ran out{wanted}: take a smaller training.batch_size, fewer images at once or fewer --workers"


def unknown(what: str, given: object, valid: Iterable[str], otherwise: str = "") -> PicojouleError:
    """The error for a name that is in no list: it names the nearest valid one and all of them.

    >>> str(unknown("model", "cnn8", ["cnn7", "vgg11"]))
    "unknown model 'cnn8': did you mean 'cnn7'? choose one of cnn7, vgg11"
    """
    valid = list(valid)
    near = get_close_matches(given.lower(), valid, n=1) if isinstance(given, str) else []
    hint = f"did you mean {near[0]!r}? " if near else ""
    odd = foreign_letters(str(given)) if near else ""
    return PicojouleError(f"unknown {what} {given!r}{odd}: {hint}choose one of {', '.join(valid)}{otherwise}")


def foreign_letters(given: str) -> str:
    """A remark on letters that look like others, for a word that is nearly right: no name of picojoule's has them.

    >>> foreign_letters("d\\u0430ta.name"), foreign_letters("data.nme")
    (' (with CYRILLIC SMALL LETTER A)', '')
    """
    names = dict.fromkeys(unicodedata.name(letter, f"U+{ord(letter):04X}") for letter in given if not letter.isascii())
    return f" (with {', '.join(list(names)[:3])})" if names else ""


def a_path(what: str, given: object) -> Path:
    """The path that was given; an error if it is none, with `what` to say of which it was asked."""
    if not isinstance(given, str | os.PathLike):
        raise PicojouleError(f"{what} is named by its path, not by {type(given).__name__}: give a string or a Path")
    return Path(given)
