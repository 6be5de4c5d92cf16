"""Tables as text, CSV and LaTeX, with the same numbers whether a terminal is there or not.

Names in them may come from a stranger's files. Whatever they are, they are only shown: a terminal gets no control
characters of theirs, a spreadsheet no formulas, LaTeX no commands.
"""

from __future__ import annotations

import csv
import io
import re
import shutil
import statistics
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich.console import Console, ConsoleOptions
from rich.markup import escape
from rich.segment import Segment
from rich.table import Table

from picojoule.io.narrow import fitted

WIDTH = 110
"""Columns of a table in a log or a notebook."""
WIDEST = 200
"""Columns of a table of many numbers, which are never broken; others take less."""

NOT_DEFINED = "not defined"
"""How a value that does not exist is written."""

_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
"""Control characters, line ends and blanks without a width among them, those that turn the direction of writing, and
what is no character."""


def visible(text: str) -> str:
    r"""Spell out the characters of a text that a terminal would obey, line ends among them.

    Args:
        text: Any text.

    Returns:
        One line that is shown as it is.

    >>> print(visible("a\x1b[31m\nb"))
    a\x1b[31m\nb
    """
    return _UNSEEN.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


@dataclass(frozen=True)
class Shown:
    """A table for Rich that breaks no number at any width, and shows no control characters but Rich's own."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for segment in console.render(fitted(self.table, console, options.max_width), options):
            if segment.control or segment.text == "\n":
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


def as_text(table: Table, width: int | None = None) -> str:
    """Write a table as it is shown in a log, in a notebook or by `print` on a terminal.

    Args:
        table: The table.
        width: How wide it may be; None is `WIDTH`, or what a narrower terminal has.

    Returns:
        Its text, without colours.

    >>> print(as_text(Table("layer", "ψ")))
    ┏━━━━━━━┳━━━┓
    ┃ layer ┃ ψ ┃
    ┡━━━━━━━╇━━━┩
    └───────┴───┘
    """
    console = Console(width=_room() if width is None else width, color_system=None)
    with console.capture() as capture:
        console.print(Shown(table))
    return "\n".join(line.rstrip() for line in capture.get().rstrip().split("\n"))


def _room() -> int:
    """Return the columns that a table takes which is printed."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return min(WIDTH, shutil.get_terminal_size((WIDTH, 24)).columns) if terminal else WIDTH


class Estimate(NamedTuple):
    """A mean and the sample standard deviation beside it, which is None for a single value."""

    mean: float
    deviation: float | None

    @classmethod
    def of(cls, values: Iterable[float]) -> Estimate:
        """Take the mean and the sample standard deviation of some values.

        Args:
            values: At least one.

        Returns:
            The two.

        >>> Estimate.of([1.0, 3.0])
        Estimate(mean=2.0, deviation=1.414...)
        """
        values = list(values)
        return cls(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else None)


class Interval(NamedTuple):
    """A mean and the interval around it, whose ends are None where there is none."""

    mean: float
    low: float | None
    high: float | None


Cell = str | int | float | Estimate | Interval | None
"""What a table holds; None is not defined."""


@dataclass(frozen=True)
class Column:
    """How the numbers of a column are written.

    Args:
        title: Its heading, with the unit.
        digits: Digits after the point.
        scale: The factor from the values to the unit of the heading.
    """

    title: str
    digits: int = 2
    scale: float = 1.0

    def show(self, cell: Cell) -> str:
        """Write a cell as people read it.

        Args:
            cell: What the table holds.

        Returns:
            Its text.

        >>> percent = Column("accuracy [%]", scale=100)
        >>> percent.show(0.5), percent.show(Estimate(0.5, 0.01)), percent.show(3), percent.show(None)
        ('50.00', '50.00 ± 1.00', '3', 'not defined')
        """
        if cell is None:
            return NOT_DEFINED
        if isinstance(cell, str | int):
            return str(cell)
        if isinstance(cell, Estimate):
            deviation = "" if cell.deviation is None else f" ± {self._number(cell.deviation)}"
            return f"{self._number(cell.mean)}{deviation}"
        if isinstance(cell, Interval):
            if cell.low is None or cell.high is None:
                return self._number(cell.mean)
            return f"{self._number(cell.mean)} [{self._number(cell.low)}, {self._number(cell.high)}]"
        return self._number(cell)

    def _number(self, value: float) -> str:
        return f"{value * self.scale:.{self.digits}f}"

    def value(self, cell: Cell) -> Any:
        """Return a cell for a machine: numbers in the unit of the column, an estimate or interval as a dictionary.

        Args:
            cell: What the table holds.

        Returns:
            What JSON can hold.
        """
        if isinstance(cell, Estimate):
            return {"mean": self.value(cell.mean), "deviation": self.value(cell.deviation)}
        if isinstance(cell, Interval):
            return {name: self.value(part) for name, part in cell._asdict().items()}
        return cell * self.scale if isinstance(cell, float) else cell

    def plain(self, value: float | None) -> str:
        """Write a number for a machine, with all its digits.

        Args:
            value: The number, or None.

        Returns:
            Its text.
        """
        return NOT_DEFINED if value is None else f"{value * self.scale:.10g}"


@dataclass(frozen=True)
class Sheet:
    r"""A table of columns and rows, and every way to write it; None is "not defined" in all of them.

    Args:
        columns: How the cells of each column are written.
        rows: The cells, as many in each row as there are columns.
        title: What is written above the table.

    >>> columns = Column("curve"), Column("AUC(70) [%]", scale=100)
    >>> sheet = Sheet(columns, (("Ω_syn, p = 1", 0.6802), ("Ω_total", None)))
    >>> print(sheet.csv(), end="")
    curve,AUC(70) [%]
    "Ω_syn, p = 1",68.02
    Ω_total,not defined
    >>> print(sheet.latex(), end="")
    \begin{tabular}{lr}
    \toprule
    curve & AUC(70) [\%] \\
    \midrule
    $\Omega_{\mathrm{syn}}$, p = 1 & 68.02 \\
    $\Omega_{\mathrm{total}}$ & not defined \\
    \bottomrule
    \end{tabular}
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    title: str = ""

    @property
    def titles(self) -> list[str]:
        """The headings of the columns."""
        return [column.title for column in self.columns]

    def shown(self) -> list[list[str]]:
        """Return the rows as people read them."""
        return [[column.show(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def values(self) -> list[list[Any]]:
        """Return the rows for a machine: numbers as numbers, in the unit of their column; "not defined" is None.

        Returns:
            What JSON can hold.

        >>> Sheet((Column("curve"), Column("AUC [%]", scale=100)), (("a", 0.5), ("b", Estimate(0.25, None)))).values()
        [['a', 50.0], ['b', {'mean': 25.0, 'deviation': None}]]
        """
        return [[column.value(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows]

    def is_text(self, index: int) -> bool:
        """Return whether a column holds words, which are aligned to the left, or numbers and blanks.

        Args:
            index: Which column.

        Returns:
            Whether it holds words.
        """
        cells = [row[index] for row in self.rows if row[index] != ""]
        return not cells or any(isinstance(cell, str) for cell in cells)

    def table(self) -> Table:
        """Return the table for Rich."""
        table = Table(title=escape(self.title) or None)
        for index, title in enumerate(self.titles):
            table.add_column(escape(title), justify="left" if self.is_text(index) else "right")
        for row in self.shown():
            table.add_row(*map(escape, row))
        return table

    def text(self) -> str:
        """Write the table as it is shown in a log or a notebook."""
        return as_text(self.table(), WIDEST)

    def csv(self) -> str:
        """Write the table as CSV with one header line.

        Returns:
            Its text; an `Estimate` takes two columns, the second titled with ±, an `Interval` three.
        """
        width = [max((_WIDTHS.get(type(row[i]), 1) for row in self.rows), default=1) for i in range(len(self.columns))]
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(
            title for column, fields in zip(self.columns, width, strict=True) for title in _titles(column, fields)
        )
        for row in self.rows:
            cells = zip(self.columns, row, width, strict=True)
            writer.writerow(field for column, cell, fields in cells for field in _fields(column, cell, fields))
        return file.getvalue()

    def latex(self) -> str:
        """Write the table as a LaTeX `tabular` of the package booktabs.

        Returns:
            Its text, to be put into a `table` of the author's own. Names in other scripts than Latin and Greek stay as
            they are: they need XeLaTeX or LuaLaTeX and a font that has them.
        """
        layout = "".join("l" if self.is_text(i) else "r" for i in range(len(self.columns)))
        rows = [_latex_row(row) for row in (self.titles, *self.shown())]
        lines = [rf"\begin{{tabular}}{{{layout}}}", r"\toprule", rows[0], r"\midrule", *rows[1:], r"\bottomrule"]
        return "\n".join([*lines, r"\end{tabular}", ""])

    @classmethod
    def joined(cls, column: str, sheets: Mapping[str, Sheet]) -> Sheet:
        """Put several sheets below one another; what a sheet lacks stays blank.

        Args:
            column: The heading of the first column, which names the sheet.
            sheets: The sheets by their names.

        Returns:
            One sheet with all rows.
        """
        columns = {each.title: each for sheet in sheets.values() for each in sheet.columns}
        rows = []
        for name, sheet in sheets.items():
            for row in sheet.rows:
                cells = dict(zip(sheet.titles, row, strict=True))
                rows.append((name, *(cells.get(title, "") for title in columns)))
        return cls((Column(column), *columns.values()), tuple(rows))


_WIDTHS = {Estimate: 2, Interval: 3}
"""How many columns of CSV a cell takes, where it is more than one."""


def _titles(column: Column, fields: int) -> list[str]:
    title = _csv_text(column.title)
    return [title, *{1: [], 2: [f"{title} ±"], 3: [f"{title} low", f"{title} high"]}[fields]]


def _fields(column: Column, cell: Cell, fields: int) -> list[str]:
    if isinstance(cell, Estimate | Interval):
        parts = [column.plain(part) for part in cell]
    else:
        parts = [_csv_text(str(cell)) if isinstance(cell, str | int) else column.plain(cell)]
    return [*parts, *[NOT_DEFINED] * (fields - len(parts))]


_FORMULA = re.compile(r"\s*[=+@＝＋－＠-]")  # the wide forms begin formulas too
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _csv_text(text: str) -> str:
    """Return words for a spreadsheet, behind an apostrophe if it would take them for a formula.

    >>> [_csv_text(text) for text in ("=1+1", "@SUM(A1)", "-2+3", "-2.5", "a=b")]
    ["'=1+1", "'@SUM(A1)", "'-2+3", '-2.5', 'a=b']
    """
    text = visible(text)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def _latex_row(cells: Iterable[str]) -> str:
    row = " & ".join(map(as_latex, cells))
    guard = "{}" if row.lstrip().startswith(("[", "*")) else ""  # or the end of the row before takes it as its option
    return rf"{guard}{row} \\"


_LATEX = {character: rf"\{character}" for character in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "`": r"\textasciigrave{}",
    "µ": r"$\mu$",
    "±": r"$\pm$",
    "×": r"$\times$",
    "·": r"$\cdot$",
    "−": "$-$",
    "′": "$'$",
    "–": r"\textendash{}",
    "…": r"\ldots{}",
    "→": r"$\to$",
    "≤": r"$\leq$",
    "≥": r"$\geq$",
    "≈": r"$\approx$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
}
_GREEK = """α alpha β beta γ gamma δ delta ε varepsilon ϵ epsilon ζ zeta η eta θ theta ϑ vartheta ι iota κ kappa
λ lambda μ mu ν nu ξ xi π pi ρ rho σ sigma ς varsigma τ tau υ upsilon φ varphi ϕ phi χ chi ψ psi ω omega
Γ Gamma Δ Delta Θ Theta Λ Lambda Ξ Xi Π Pi Σ Sigma Υ Upsilon Φ Phi Ψ Psi Ω Omega""".split()
_LATEX |= {letter: rf"$\{name}$" for letter, name in zip(_GREEK[::2], _GREEK[1::2], strict=True)}
_LATEX |= dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧο", "ABEZHIKMNOPTXo", strict=True))  # those for which TeX takes the Latin ones


def as_latex(text: str) -> str:
    r"""Write a text so that LaTeX prints it as it is; a subscript of Ω becomes one.

    Args:
        text: Any text.

    Returns:
        LaTeX.

    >>> print(as_latex("100 % of Ω_syn"))
    100 \% of $\Omega_{\mathrm{syn}}$
    """
    pieces = re.split(r"(Ω_[a-zA-Z]+)", unicodedata.normalize("NFC", visible(text)))  # macOS takes accents apart
    return "".join(
        rf"$\Omega_{{\mathrm{{{piece[2:]}}}}}$"
        if piece.startswith("Ω_")
        else re.sub("-(?=-)", "-{}", "".join(_LATEX.get(character, character) for character in piece))
        for piece in pieces
    )
