"""Comparison with the paper: our number, the paper's, and the difference, as columns and cells of a table."""

from __future__ import annotations

from picojoule.io.tables import Cell, Column, Estimate

MISPRINT = "†"
"""Marks a printed number with which nothing is compared."""


def columns(title: str, unit: str = "", digits: int = 2, scale: float = 1.0) -> tuple[Column, Column, Column]:
    """Make the three columns of a compared number.

    Args:
        title: What it is.
        unit: Its unit, as it stands after the title.
        digits: Digits after the point.
        scale: By what numbers are multiplied when they are shown.

    Returns:
        The columns: ours, the paper's, the difference.
    """
    titles = (f"{title}{unit}", f"{title} paper", f"{title} difference")
    return Column(titles[0], digits, scale), Column(titles[1], digits, scale), Column(titles[2], digits, scale)


def cells(
    ours: float | Estimate | None, paper: float | Estimate | None, column: Column, misprinted: bool = False
) -> tuple[Cell, Cell, Cell]:
    """Make the three cells of a compared number.

    Args:
        ours: Our number; None leaves its cell blank.
        paper: The paper's number; None leaves its cell blank.
        column: How numbers are shown.
        misprinted: Whether the paper's number is a misprint, which is marked and not compared.

    Returns:
        The cells: ours, the paper's, the difference.

    >>> cells(0.5, 0.25, Column("AUC"))
    (0.5, 0.25, 0.25)
    >>> cells(0.5, 0.25, Column("AUC"), misprinted=True), cells(None, None, Column("AUC"))
    ((0.5, '0.25 †', ''), ('', '', ''))
    """
    mine: Cell = "" if ours is None else ours
    if paper is None:
        return mine, "", ""
    if misprinted:
        return mine, f"{column.show(paper)} {MISPRINT}", ""
    return mine, paper, "" if ours is None else _mean(ours) - _mean(paper)


def _mean(value: float | Estimate) -> float:
    """Take the mean of an estimate; a plain number is its own."""
    return value.mean if isinstance(value, Estimate) else value
