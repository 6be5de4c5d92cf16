"""Tables as plain text, the same whether a terminal is there or not."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

WIDTH = 110


def as_text(table: Table) -> str:
    """The table as it stands in a log or a notebook.

    >>> print(as_text(Table("layer", "ψ")))
    ┏━━━━━━━┳━━━┓
    ┃ layer ┃ ψ ┃
    ┡━━━━━━━╇━━━┩
    └───────┴───┘
    """
    console = Console(width=WIDTH, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return capture.get().rstrip()
