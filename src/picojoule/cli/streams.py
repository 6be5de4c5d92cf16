"""Standard output and standard error, whatever they are: terminals without Greek, pipes that nobody reads, closed."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
from rich.table import Table

from picojoule.data import Progress as Transfer
from picojoule.io.narrow import pieces
from picojoule.io.tables import Shown, visible
from picojoule.training.display import Throttle

_SPELLINGS = {
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
_PLAUSIBLE_WIDTHS = range(20, 1001)
_AS_WIDE_AS_IT_LIKES = 10_000


def show(table: Table) -> None:
    """Print a table, as wide as the terminal allows; in a pipe or a file, as wide as it likes.

    Args:
        table: The table.
    """
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console = Console(width=_AS_WIDE_AS_IT_LIKES)
    console.print(Shown(table))


def show_json(content: Any) -> None:
    """Print one JSON document on standard output.

    Args:
        content: Plain values.
    """
    print(json.dumps(content, indent=2))


def note(text: str) -> None:
    """Print a line on standard error; names in it may be anybody's, so no control character of theirs is sent.

    A terminal gets it in as many lines as it takes, broken between words.

    Args:
        text: The line.
    """
    _print(text, sys.stderr)


def tell(text: str) -> None:
    """Print a line for people on standard output, without control characters; on a terminal, broken between words.

    Args:
        text: The line.
    """
    _print(text, sys.stdout)


def _print(text: str, stream: TextIO) -> None:
    console, line = Console(file=stream), visible(text)
    print("\n".join(pieces(line, console.width)) if console.is_terminal else line, file=stream)


def tell_all(text: str) -> None:
    """Print a text of several lines on standard output, each without control characters.

    Args:
        text: The text.
    """
    for line in text.split("\n"):
        print(visible(line))


def show_path(path: Path) -> None:
    """Print a path on standard output: as it is for a program that reads it, without control characters on a terminal.

    Args:
        path: The path.
    """
    print(visible(str(path)) if sys.stdout.isatty() else path)


def shortened(place: str) -> str:
    """Write the home folder at the beginning of a path as ~, as shells do.

    Args:
        place: A path, or any other text.

    Returns:
        The same place.

    >>> shortened(str(Path.home() / ".cache" / "picojoule")), shortened("scikit-learn")
    ('~/.cache/picojoule', 'scikit-learn')
    """
    with contextlib.suppress(RuntimeError, ValueError):  # there is no home, or the path is not below it
        return str(Path("~", Path(place).relative_to(Path.home())))
    return place


def standard_output_kept() -> contextlib.AbstractContextManager[object]:
    """Keep standard output to the command while a user's model, or Ray, may print.

    Returns:
        A context in which what is printed goes to standard error.
    """
    return contextlib.redirect_stdout(sys.stderr)


@contextlib.contextmanager
def transfer_bar() -> Iterator[Transfer]:
    """Show a bar for downloads on standard error, where that is a terminal.

    Yields:
        What is to be told of the progress.
    """
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
    """Prepare the streams before anything is printed: what one cannot encode is spelt out, a closed one takes all."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by whoever started us; a file opened later must not come to stand in its place
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 # as long as the process
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_SPELLING)
    for name in ("COLUMNS", "LINES"):
        given = os.environ.get(name, "")
        if not (given.isdecimal() and int(given) in _PLAUSIBLE_WIDTHS):
            os.environ.pop(name, None)  # Rich would believe it


def flush() -> None:
    """Write out what the streams still hold."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and not stream.closed:
            stream.flush()


def give_up() -> None:
    """Let what is still to be written go nowhere, because nobody reads it any more."""
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
    return "".join(_SPELLINGS.get(letter, "?") for letter in fault.object[fault.start : fault.end]), fault.end


_SPELLING = "picojoule.spelling"
codecs.register_error(_SPELLING, _spell)
