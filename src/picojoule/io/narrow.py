"""How a table fits a narrow terminal: no number is broken, no name cropped, whatever the width.

A table that is too wide is tried in these shapes, and the first that fits is taken: its longest texts wrapped; without
its frame; with its columns of words below each row, and those of numbers in blocks one below the other; with all
columns below each row. A column that is set to the right holds numbers, whose cells stay on one line; all other cells
are wrapped between words. Only a single word that is longer than the terminal is wide (a long path) is broken.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.cells import cell_len
from rich.console import Console, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text, TextType

_READABLE = 24
"""The least columns that a text is wrapped to, if it needs them: in less it is a tower of single words."""
_GAP = 2
"""Blanks between two columns without a frame, and before what stands below a row."""
_BLANK = f"{4 * ' '}\n"
_RULED = box.Box(f"{2 * _BLANK}────\n{5 * _BLANK}")
"""No frame, a rule below the headings."""


def fitted(table: Table, console: Console, wide: int) -> RenderableType:
    """Return a table in a shape that fits, or the table itself where it does.

    Args:
        table: The table.
        console: Reads its markup.
        wide: How many columns there are.

    Returns:
        What is drawn without a broken number.

    >>> from picojoule.io.tables import as_text
    >>> table = Table("name", "what")
    >>> table.add_column("time", justify="right")
    >>> table.add_row("totals", "all of the penalty terms at once", "1.2 min")
    >>> print(as_text(table, 30))
    name                      time
    ──────────────────────────────
    totals                 1.2 min
      what: all of the penalty
      terms at once
    """
    grid = _Grid.of(table, console)
    return grid.whole(wide) or grid.framed(wide) or grid.bare(wide) or grid.blocks(wide) or grid.all_below(wide)


def pieces(text: str, wide: int) -> list[str]:
    """Break a line between words, so that a terminal does not break it within one.

    Args:
        text: One line.
        wide: Columns of the terminal.

    Returns:
        The lines; a word that is longer than the terminal is wide stays whole.

    >>> pieces("accuracy 90.7 % on 10,000 test images", 20)
    ['accuracy 90.7 % on', '10,000 test images']
    """
    return textwrap.wrap(text, wide, break_long_words=False, break_on_hyphens=False) or [text]


@dataclass(frozen=True)
class _Column:
    """A column with its cells read: as wide as it likes, and as narrow as it may become."""

    heading: Text
    cells: tuple[Text, ...]
    numbers: bool

    @property
    def most(self) -> int:
        return max(text.cell_len for text in (self.heading, *self.cells))

    @property
    def least(self) -> int:
        words = max((cell_len(word) for text in self._wrapped() for word in text.plain.split()), default=0)
        if self.numbers:
            return max([words, *(cell.cell_len for cell in self.cells)])
        return max(words, min(self.most, _READABLE))

    def _wrapped(self) -> Sequence[Text]:
        return [self.heading] if self.numbers else [self.heading, *self.cells]

    def named(self, row: int) -> Text:
        """Return a cell behind the heading."""
        return Text.assemble(f"{self.heading.plain}: " if self.heading.plain else "", self.cells[row])


@dataclass(frozen=True)
class _Grid:
    """What a table holds, and every shape that it can take."""

    table: Table
    columns: tuple[_Column, ...]

    @classmethod
    def of(cls, table: Table, console: Console) -> _Grid:
        def read(cell: object) -> Text:
            return cell.copy() if isinstance(cell, Text) else console.render_str(str(cell), highlight=False)

        columns = (_Column(read(c.header), tuple(map(read, c.cells)), c.justify == "right") for c in table.columns)
        return cls(table, tuple(columns))

    def whole(self, wide: int) -> Table | None:
        """Leave it as it is; None if it does not fit."""
        return self.table if sum(column.most for column in self.columns) <= self._within_frame(wide) else None

    def framed(self, wide: int) -> Table | None:
        """Draw it with its frame; None if it does not fit."""
        widths = _shared_out(self.columns, self._within_frame(wide))
        return None if widths is None else self._drawn(Table(), widths)

    def bare(self, wide: int) -> Table | None:
        """Draw it without a frame, a rule below the headings; None if it does not fit."""
        widths = _shared_out(self.columns, _without_gaps(wide, self.columns))
        if widths is None:
            return None
        return self._drawn(Table(box=_RULED, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0)), widths)

    def blocks(self, wide: int) -> Group | None:
        """Draw numbers in columns, in as many blocks as it takes, words below each row; None if that does not fit."""
        first, *rest = self.columns
        name = replace(first, numbers=False)
        numbers, words = [c for c in rest if c.numbers], [c for c in rest if not c.numbers]
        lines: list[RenderableType] = []
        while numbers:
            most = max((n for n in range(len(numbers) + 1) if _fit([name, *numbers[:n]], wide)), default=0)
            if most < min(2, len(numbers)):
                return None
            columns, numbers = [name, *numbers[:most]], numbers[most:]
            lines += [Text(), *self._block(columns, wide, words)]
            words = []
        return self._titled(lines[1:]) if lines else None

    def _block(self, columns: Sequence[_Column], wide: int, words: Sequence[_Column]) -> list[RenderableType]:
        widths = _shared_out(columns, _without_gaps(wide, columns)) or []
        widths[0] += _without_gaps(wide, columns) - sum(widths)
        head = _line(columns, widths, [column.heading for column in columns])
        return [head, Text("─" * wide), *self._entries(columns, widths, words)]

    def all_below(self, wide: int) -> Group:
        """Draw everything below the first column; the last resort, which always fits."""
        first, *rest = self.columns or (_Column(Text(), (), False),)
        return self._titled(self._entries([replace(first, numbers=False)], [wide], rest))

    def _within_frame(self, wide: int) -> int:
        return wide - 3 * len(self.columns) - 1

    def _drawn(self, shape: Table, widths: Sequence[int]) -> Table:
        source = self.table
        shape.title, shape.title_justify = source.title, source.title_justify
        shape.caption, shape.caption_justify = source.caption, source.caption_justify
        for column, width in zip(self.columns, widths, strict=True):
            shape.add_column(column.heading, justify=_side(column), width=width, overflow="fold")
        for number, row in enumerate(source.rows):
            shape.add_row(*(column.cells[number] for column in self.columns), end_section=row.end_section)
        return shape

    def _entries(
        self, columns: Sequence[_Column], widths: Sequence[int], below: Sequence[_Column]
    ) -> Iterator[RenderableType]:
        for row in range(len(self.table.rows)):
            yield _line(columns, widths, [column.cells[row] for column in columns])
            for column in below:
                if column.cells[row].plain:
                    yield Padding(column.named(row), (0, 0, 0, _GAP))

    def _titled(self, lines: Iterable[RenderableType]) -> Group:
        """Put the title above and the caption below, in the middle as a table has them."""
        source = self.table
        above = _heading(source.title, "table.title", source.title_justify)
        return Group(*above, *lines, *_heading(source.caption, "table.caption", source.caption_justify))


def _heading(text: TextType | None, style: str, justify: JustifyMethod) -> list[Text]:
    if not text:
        return []
    return [Text.from_markup(text, style=style, justify=justify) if isinstance(text, str) else text]


def _line(columns: Sequence[_Column], widths: Sequence[int], cells: Sequence[Text]) -> Table:
    """Draw one row without a frame."""
    line = Table.grid(padding=(0, _GAP, 0, 0))
    for column, width in zip(columns, widths, strict=True):
        line.add_column(justify=_side(column), width=width, overflow="fold", vertical="bottom")
    line.add_row(*cells)
    return line


def _side(column: _Column) -> JustifyMethod:
    return "right" if column.numbers else "left"


def _fit(columns: Sequence[_Column], wide: int) -> bool:
    return sum(column.least for column in columns) <= _without_gaps(wide, columns)


def _without_gaps(wide: int, columns: Sequence[_Column]) -> int:
    return wide - _GAP * (len(columns) - 1)


def _shared_out(columns: Sequence[_Column], room: int) -> list[int] | None:
    """Share out the room: all columns have what they need, then words what they like; None if it is too little.

    >>> words, names = (_Column(Text("x"), (Text(cell),), False) for cell in ("a text of many words", "name"))
    >>> _shared_out([words, names], 20), _shared_out([words, names], 30)
    (None, [20, 4])
    """
    if sum(column.least for column in columns) > room:
        return None
    widths = [column.least for column in columns]
    for _ in range(room - sum(widths)):
        growing = [index for index, column in enumerate(columns) if widths[index] < column.most]
        if not growing:
            break
        widths[min(growing, key=lambda index: (columns[index].numbers, widths[index]))] += 1
    return widths
