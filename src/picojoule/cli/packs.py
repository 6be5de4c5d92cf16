"""The command that packs runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from picojoule.cli.options import FolderOfRuns
from picojoule.cli.streams import note, show_path
from picojoule.runs.pack import pack


def pack_runs(
    folder: FolderOfRuns,
    into: Annotated[Path, typer.Argument(metavar="FILE", help="The pack; its name ends in .runs.zip.")],
) -> None:
    """Pack all runs in a folder into one small file: recipes, metrics, results and failures, without weights.

    `report`, `pick` and `paper` read the file as they read a folder, and a sweep into a folder that has it takes its
    finished runs as done. Packs that lie in the folder are packed too, so that one can be brought up to date.

    Example: `picojoule pack runs/paper results/paper.runs.zip`
    """
    packed = pack(folder, into)
    others = packed.runs - packed.finished
    note(f"{packed.finished} finished runs{f' and {others} others' if others else ''}, {packed.size / 1e3:,.0f} kB")
    show_path(packed.path)
