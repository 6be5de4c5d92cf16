"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from picojoule.errors import unknown
from picojoule.runs.model import Trust

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
FinishedRun = Annotated[Path, typer.Argument(help="A finished run's folder.")]
FolderOfRuns = Annotated[Path, typer.Argument(help="A folder of run folders, at any depth.")]
RunsInto = Annotated[Path, typer.Option(help="The folder of run folders.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]…", help="Changes to it.")]
Workers = Annotated[int | None, typer.Option(help="Runs at once; by default, as many as there are cores for.")]
On = Annotated[str, typer.Option(help="local (processes of this machine) or ray (a cluster).")]
Trusted = Annotated[bool, typer.Option("--trust", help="Run the code of a model that is not picojoule's own.")]
TrustedModel = Annotated[
    str | None,
    typer.Option("--model", metavar="PACKAGE.MODULE:FACTORY", help="The same, if the recipe names this very model."),
]
Address = Annotated[str | None, typer.Option(help="Of the Ray cluster; by default, the one that Ray finds.")]

Name = TypeVar("Name", bound=str)


def consent(trusted: bool, model: str | None) -> Trust:
    """What a user says of code that a run folder names: a model that is named again has to be that one."""
    return trusted if model is None else model


def one_of(option: str, given: str, valid: Sequence[Name]) -> Name:
    """The valid value that was given for an option, or the error that lists them all."""
    for name in valid:
        if name == given:
            return name
    raise unknown(option, given, valid)
