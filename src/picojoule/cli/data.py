"""Commands on data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from picojoule import data as datasets
from picojoule.cli.options import AsJson
from picojoule.cli.streams import shortened, show, show_json, tell, transfer_bar

data_app = typer.Typer(
    help="Data sets: what is where, and getting one.\n\nExample: `picojoule data fetch fashion-mnist`"
)


@data_app.callback(invoke_without_command=True)
def data_list(context: typer.Context, as_json: AsJson = False) -> None:
    """List the data sets, where each was found, and where it can be had.

    Example: `picojoule data`
    """
    if context.invoked_subcommand is not None:
        return
    listings = datasets.listing()
    if as_json:
        show_json([entry.to_dict() for entry in listings])
        return
    table = Table("data set", "what")
    table.add_column("train / validation / test", justify="right")
    for column in ("here", "can be had from"):
        table.add_column(column)
    for entry in listings:
        sources = ", ".join(title if at_hand else f"{title} (tool not installed)" for title, at_hand in entry.sources)
        splits = " / ".join(f"{n:,}" for n in entry.splits)
        where = shortened(entry.here) if entry.here else f"no: picojoule data fetch {entry.name}"
        table.add_row(entry.name, entry.title, splits, escape(where), escape(sources))
    show(table)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="fashion-mnist, cifar-10, cifar-100, digits, n-mnist or braille.")],
    folder: Annotated[Path | None, typer.Option("--from", help="A folder that may already hold the files.")] = None,
) -> None:
    """Get a data set, check it, and keep it in the cache.

    Example: `picojoule data fetch cifar-10 --from ~/Downloads`
    """
    with transfer_bar() as progress:
        fetched = datasets.fetch(name, folder, progress=progress)
    tell(str(fetched))
