"""Our number, the paper's beside it, and the difference."""

from __future__ import annotations

from picojoule.io.tables import Cell, Column, Estimate

MISPRINT = "†"
"""Marks a printed number that is no reference."""


def columns(title: str, unit: str = "", digits: int = 2, scale: float = 1.0) -> tuple[Column, Column, Column]:
    titles = (f"{title}{unit}", f"{title} paper", f"{title} difference")
    return Column(titles[0], digits, scale), Column(titles[1], digits, scale), Column(titles[2], digits, scale)


def cells(
    ours: float | Estimate | None, paper: float | Estimate | None, column: Column, misprinted: bool = False
) -> tuple[Cell, Cell, Cell]:
    """What is not there stays blank; a misprint is marked and nothing is compared with it.

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
    return value.mean if isinstance(value, Estimate) else value
