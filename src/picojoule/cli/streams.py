"""Standard output and error, whatever they are: terminals without Greek, pipes that nobody reads, or nothing."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table

from picojoule.data import Progress as Transfer
from picojoule.io.tables import Shown, visible
from picojoule.training.display import Throttle

_SPELT = {
    "ψ": "psi",
    "Ω": "Omega",
    "λ": "lambda",
    "µ": "u",
    "μ": "u",
    "±": "+-",
    "×": "x",
    "·": "*",
    "−": "-",
    "–": "-",
    "′": "'",
    "…": "...",
    "→": "->",
    "≥": ">=",
    "≤": "<=",
    "•": "*",
}
_SANE = range(20, 1001)
_AS_WIDE_AS_IT_LIKES = 10_000


def show(table: Table) -> None:
    """A table as wide as the terminal allows; in a pipe or a file, as wide as it likes."""
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_AS_WIDE_AS_IT_LIKES)
    console.print(Shown(table))


def show_json(content: Any) -> None:
    print(json.dumps(content, indent=2))


def note(text: str) -> None:
    """A line on standard error; names in it may be anybody's, so no control character of theirs is sent."""
    print(visible(text), file=sys.stderr)


def tell(text: str) -> None:
    """A line for people on standard output."""
    print(visible(text))


def show_path(path: Path) -> None:
    """A path on standard output: as it is for a program that reads it, and so that it can do no harm on a terminal."""
    print(visible(str(path)) if sys.stdout.isatty() else path)


def standard_output_kept() -> contextlib.AbstractContextManager[object]:
    """For a block in which a user's model, or Ray, may print: standard output is the command's."""
    return contextlib.redirect_stdout(sys.stderr)


@contextlib.contextmanager
def transfer_bar() -> Iterator[Transfer]:
    """A bar for downloads on standard error, where somebody watches it."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    console, unseen = Console(stderr=True), not sys.stderr.isatty()
    with Progress(*columns, console=console, transient=True, disable=unseen, auto_refresh=False) as bar:
        tasks: dict[str, TaskID] = {}
        redrawing = Throttle()

        def progress(what: str, done: int, total: int | None) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total, refresh=redrawing.due())

        yield progress


def prepare() -> None:
    """Before anything is printed: what a stream cannot encode is spelt out, and one that is closed swallows all."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us; a file opened later must not come to stand in its place
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 # as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_SPELLING)
    for name in ("COLUMNS", "LINES"):
        given = os.environ.get(name, "")
        if not (given.isdecimal() and int(given) in _SANE):
            os.environ.pop(name, None)  # Rich would believe it


def flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def give_up() -> None:
    """Nobody reads any more: what is still to be written goes nowhere, without a word."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
            continue
        with contextlib.suppress(OSError, ValueError, AttributeError):
            os.dup2(nowhere, stream.fileno())


def _spell(fault: UnicodeError) -> tuple[str, int]:
    if not isinstance(fault, UnicodeEncodeError):
        raise fault
    return "".join(_SPELT.get(letter, "?") for letter in fault.object[fault.start : fault.end]), fault.end


_SPELLING = "picojoule.spelling"
codecs.register_error(_SPELLING, _spell)
