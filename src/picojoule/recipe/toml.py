"""Recipes as TOML text: reading a file, parsing it, and naming it in a mistake that was found in it."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from picojoule.errors import PicojouleError, as_path
from picojoule.io import files
from picojoule.recipe.phrases import either, plain
from picojoule.recipe.shipped import shipped_names, shipped_text

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib


_BYTE_ORDER_MARK = "\ufeff"
_DEEPEST = 16
"""Levels of tables and lists; the axes of a sweep have four."""


@contextlib.contextmanager
def named(path: str | os.PathLike[str], overrides: Iterable[str]) -> Iterator[None]:
    """Put the name of the file and its overrides before the message of a mistake that is found in the block.

    Args:
        path: The file.
        overrides: What was to change in it.

    Yields:
        Nothing.

    Raises:
        PicojouleError: The mistake, with the name of the file.
    """
    try:
        yield
    except PicojouleError as fault:
        given = " ".join(map(plain, overrides))
        raise PicojouleError(f"{plain(os.fspath(path))}{given and f' with {given}'}: {fault}") from None


def read(path: str | os.PathLike[str]) -> str:
    """Read the text of a recipe file, or of a recipe that ships with picojoule.

    Args:
        path: The file; where there is none, the name of a shipped recipe, such as "smoke/digits".

    Returns:
        Its text.

    Raises:
        PicojouleError: If it is not a readable file of UTF-8 text; the message names files of a similar name.
    """
    path = as_path("a recipe", path)
    shown = plain(str(path))
    try:
        return files.read_text(path)
    except (FileNotFoundError, IsADirectoryError):
        shipped = shipped_text(path.as_posix())
        if shipped is not None:
            return shipped
        raise PicojouleError(_not_a_file(path)) from None
    except OSError as fault:
        raise PicojouleError(f"{shown} cannot be read ({files.reason(fault)}): {files.reading_remedy(fault)}") from None
    except UnicodeDecodeError as fault:
        line = fault.object.count(b"\n", 0, fault.start) + 1
        raise PicojouleError(f"{shown} is not UTF-8 text (line {line}): name a TOML file") from None


def _not_a_file(path: Path) -> str:
    """Say what is there in place of a recipe file, and which file may be meant."""
    if path.is_symlink() and not path.exists():
        return f"{plain(str(path))} is a symbolic link to {plain(os.readlink(path))}, which is not there: mend the link"
    folder = path if path.is_dir() else path.parent
    names = sorted(found.name for found in folder.glob("*.toml") if found.is_file())
    near = [] if folder == path else get_close_matches(path.name, names, n=3, cutoff=0.4)
    near = near or get_close_matches(path.as_posix(), shipped_names(), n=3)
    what = f"{plain(str(path))} is a folder" if folder == path else f"there is no recipe {plain(str(path))}"
    if near:
        return f"{what}: did you mean {either(near)}?"
    if names:
        return f"{what}: in {plain(str(folder))} there are {', '.join(map(plain, names[:8]))}"
    if not folder.is_dir():
        return f"{what}, nor a folder {plain(str(folder))}: check the path"
    return f"{what}: {plain(str(folder))} holds no TOML file, so name another folder"


def parse(text: str) -> dict[str, Any]:
    """Parse TOML into nested tables, not yet checked to be a recipe.

    Args:
        text: The TOML.

    Returns:
        The tables.

    Raises:
        PicojouleError: If it is not valid TOML, or nested too deeply for a recipe.
    """
    if not isinstance(text, str):
        raise PicojouleError(f"a recipe is TOML text, not {type(text).__name__}: give a string")
    try:
        content = tomllib.loads(text.removeprefix(_BYTE_ORDER_MARK))
        _check_depth(content)
        return content
    except tomllib.TOMLDecodeError as fault:
        end = f"(at line {text.count(chr(10)) + 1}, the last one)"
        problem = str(fault).replace("(at end of document)", end)
        raise PicojouleError(f"this is not valid TOML: {problem}") from None
    except (RecursionError, ValueError):  # Python limits the depth of calls and the digits of a whole number
        raise PicojouleError(
            "this is not a recipe: it is nested too deeply or has a number of thousands of digits, but a recipe holds "
            "only sections of plain values"
        ) from None


def _check_depth(content: Any) -> None:
    """Refuse tables that are nested too deeply: dotted keys nest as deeply as they are long."""
    level = [content]
    for _ in range(_DEEPEST):
        tables = [value.values() if isinstance(value, dict) else value for value in level]
        level = [inner for values in tables for inner in values if isinstance(inner, dict | list)]
        if not level:
            return
    raise RecursionError
