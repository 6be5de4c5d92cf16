"""The command line: the type of the fixture that runs a command, and every command that there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
import typer.main

from picojoule.cli import app

Command = Callable[..., tuple[int, str, str]]
"""Arguments of `picojoule` → exit status, standard output, standard error."""


def _below(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if path:
        yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from _below(child, (*path, name))


COMMANDS = list(_below(typer.main.get_command(app)))
"""The words of every command."""
