"""Packing runs: one small file in the place of a folder of run folders.

A pack keeps of each run its recipe, metrics and result, or why it failed, and of an experiment what it measured beside
its runs. It has no weights and no checkpoints. Reports, `pick` and experiments read it as they read a folder, and a
sweep into a folder with packs in it takes the runs that these have finished as done.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from picojoule.errors import PicojouleError, as_path
from picojoule.io import files, packs
from picojoule.runs.folder import FAILURE, METRICS, RECIPE, RESULT, Run, find_runs

MEASURED = "measured"
"""The folder, beside run folders, of what an experiment measures on them."""


@dataclass(frozen=True)
class Packed:
    """What was packed."""

    path: Path
    """The pack."""
    runs: int
    """How many runs it holds."""
    finished: int
    """How many of them are finished."""
    size: int
    """Its bytes."""


def pack(folder: str | os.PathLike[str], into: str | os.PathLike[str]) -> Packed:
    """Pack every run in or below a folder, also those of packs that lie there.

    Args:
        folder: The folder of run folders, or a pack.
        into: The pack, whose name ends in ".runs.zip"; it is replaced as a whole.

    Returns:
        What was packed.

    Raises:
        PicojouleError: If there is no run, something cannot be read, or the pack cannot be written.
    """
    root, target = as_path("a folder of runs", folder), as_path("a pack", into)
    packs.check_name(target)
    files.check_destination(target)
    chosen: dict[str, Run] = {}
    for run in find_runs(root):  # of copies, the finished one
        name = _name(run.path, root)
        if name not in chosen or (run.finished and not chosen[name].finished):
            chosen[name] = run
    if not chosen:
        raise PicojouleError(
            f"{root} holds no run folders: name one that `picojoule train` or `picojoule sweep` filled"
        )
    contents = {
        f"{name}/{part}": files.read_bytes(run.path / part)
        for name, run in chosen.items()
        for part in (RECIPE, METRICS, RESULT, FAILURE)
        if files.is_file(run.path / part)
    }
    contents |= _measured(root)
    content = packs.packed(contents)
    files.write_atomically(target, content)
    return Packed(target, len(chosen), sum(run.finished for run in chosen.values()), len(content))


def _name(path: Path, root: Path) -> str:
    """Name a file below the folder by its path, without the pack that it lies in."""
    place = packs.split(path)
    if place is None:
        return path.relative_to(root).as_posix() if path != root else path.name
    inside, name = place
    return name if inside == root else (inside.parent.relative_to(root) / name).as_posix()


def _measured(root: Path) -> dict[str, bytes]:
    """Collect what experiments measured, first of packs and then of folders, which are newer."""
    places = [root] if packs.is_pack(root) else sorted(root.rglob(f"*{packs.SUFFIX}"))
    packed = [
        place / name
        for place in places
        if packs.is_pack(place)
        for name in packs.members(place)
        if Path(name).parent.name == MEASURED
    ]
    found = [*packed, *sorted(root.rglob(f"{MEASURED}/*.json"))]
    return {_name(path, root): files.read_bytes(path) for path in found}
