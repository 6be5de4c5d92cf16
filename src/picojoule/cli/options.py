"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from picojoule.errors import unknown
from picojoule.runs.model import Trust

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output and nothing else.")]
FinishedRun = Annotated[Path, typer.Argument(help="A finished run's folder, or the name of a shipped network.")]
FolderOfRuns = Annotated[Path, typer.Argument(help="A folder of run folders, at any depth, or a pack of them.")]
RunsInto = Annotated[Path, typer.Option(help="The folder of run folders.")]
Overrides = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Changes to it.")]
Workers = Annotated[int | None, typer.Option(help="Runs at once; by default, as many as there are cores for.")]
On = Annotated[str, typer.Option(help="local (processes of this machine) or ray (a cluster).")]
Trusted = Annotated[
    bool, typer.Option("--trust", help="Run the code of a model, or of data, that is not picojoule's own.")
]
TrustedModel = Annotated[
    str | None,
    typer.Option("--model", metavar="PACKAGE.MODULE:FACTORY", help="The same, if the recipe names this very model."),
]
Address = Annotated[str | None, typer.Option(help="Of the Ray cluster; by default, the one that Ray finds.")]

Name = TypeVar("Name", bound=str)


def consent(trusted: bool, model: str | None) -> Trust:
    """Combine the two options by which a user trusts code that a run folder names.

    Args:
        trusted: Whether `--trust` was given.
        model: The model that was named with `--model`; the recipe has to name that one.

    Returns:
        What `load_model` takes.
    """
    return trusted if model is None else model


def one_of(option: str, given: str, valid: Sequence[Name]) -> Name:
    """Check the value of an option.

    Args:
        option: The option, for the error.
        given: What the user gave.
        valid: All valid values.

    Returns:
        The value.

    Raises:
        PicojouleError: If it is not valid; lists those that are.
    """
    for name in valid:
        if name == given:
            return name
    raise unknown(option, given, valid)
