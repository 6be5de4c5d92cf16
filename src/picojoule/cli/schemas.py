"""The command that prints JSON schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, get_args

import typer

from picojoule.cli.options import one_of
from picojoule.cli.streams import show_json, show_path
from picojoule.io.files import write_atomically
from picojoule.runs.schema import SchemaName, schema


def print_schema(
    name: Annotated[str | None, typer.Argument(help="recipe, result or metrics; all three unless given.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write it into this file, and print the file's path.")] = None,
) -> None:
    """Print the JSON schema of a recipe, of a run's result.json, or of a line of its metrics.jsonl.

    Example: `picojoule schema result --out result.schema.json`
    """
    if name is None:
        content = {each: schema(each) for each in get_args(SchemaName)}
    else:
        content = schema(one_of("schema", name, get_args(SchemaName)))
    if out is None:
        show_json(content)
        return
    write_atomically(out, f"{json.dumps(content, indent=2, ensure_ascii=False)}\n".encode())
    show_path(out)
