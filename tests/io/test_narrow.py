"""Tables on narrow terminals: whatever the width, every number stands in one piece and no word is lost."""

from __future__ import annotations

import random

import pytest
from rich.table import Table

from picojoule.io.narrow import pieces
from picojoule.io.tables import as_text

WORDS = ("trade-off", "curves", "and", "scores", "of", "Fashion-MNIST", "Ω_syn", "[bold]", "λ'", "x")
NUMBERS = ("1,228,032 ± 24,177", "47.50%", "11.4 µJ", "50.0 [40.0, 60.0]", "–", "", "8")
FRAME = str.maketrans("", "", "┃│┏┓┗┛┡┩└┘━─╇┳┴┼├┤╋┷┯┿")


def random_table(seed: int) -> tuple[Table, list[list[str]], list[bool]]:
    """A table of some columns, its cells, and which of its columns hold numbers."""
    draw = random.Random(seed)
    numbers = [draw.random() < 0.6 for _ in range(draw.randint(1, 8))]
    rows = [
        [draw.choice(NUMBERS) if n else " ".join(draw.choices(WORDS, k=draw.randint(1, 12))) for n in numbers]
        for _ in range(draw.randint(1, 5))
    ]
    table = Table(title=draw.choice([None, "a title of some words"]), caption=draw.choice([None, "as a caption"]))
    for index, right in enumerate(numbers):
        table.add_column(f"heading number {index}", justify="right" if right else "left")
    for row in rows:
        table.add_row(*(cell.replace("[", r"\[") for cell in row))
    return table, rows, numbers


@pytest.mark.parametrize("width", [36, 60, 80, 110, 200])
def test_every_number_is_in_one_piece_and_every_word_is_there(width: int) -> None:
    for seed in range(60):
        table, rows, numbers = random_table(seed)
        text = as_text(table, width)
        lines = [line.translate(FRAME) for line in text.splitlines()]
        assert max(map(len, text.splitlines())) <= width, text
        for row in rows:
            for cell, right in zip(row, numbers, strict=True):
                if right and width >= 60:  # else two numbers of a cell may stand below another
                    assert any(cell in line for line in lines), (cell, text)
        shown = " ".join(lines).split()
        for word in (word for row in rows for cell in row for word in cell.split()):
            assert word in shown, (word, text)


def test_the_longest_word_alone_is_broken() -> None:
    path = "/" + "/".join(["somewhere"] * 12)
    table = Table("data set", "here")
    table.add_row("fashion-mnist", path)
    text = as_text(table, 40)
    assert max(map(len, text.splitlines())) <= 40
    assert path in "".join(line.strip() for line in text.splitlines())


def test_what_fits_is_left_as_it_is() -> None:
    table = Table("a", "b", title="t")
    table.add_row("1", "2")
    assert as_text(table, 200).count("│") == 3


@pytest.mark.parametrize("rows", [0, 1])
def test_a_table_without_columns_or_rows(rows: int) -> None:
    table = Table("a heading", title="t") if rows == 0 else Table()
    assert max(map(len, as_text(table, 5).splitlines()), default=0) <= 5


def test_a_line_is_broken_between_words() -> None:
    text = "  no network satisfies the limits: 1,228,032 operations, /a/very/long/path/that/stays/whole"
    lines = pieces(text, 24)
    assert " ".join(lines).split() == text.split()
    assert lines[0].startswith("  no")
    assert max(map(len, lines[:-1])) <= 24
    assert pieces("", 10) == [""]
