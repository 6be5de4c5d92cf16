"""Tables: the same cells in text, CSV and LaTeX."""

from __future__ import annotations

import csv
import io
import re
import sys

import pytest
import torch

import picojoule as pj
from picojoule.io.tables import Column, Estimate, Interval, Sheet, as_latex, as_text, visible

SHEET = Sheet(
    (Column("curve"), Column("n"), Column("AUC [%]", 1, 100), Column("accuracy [%]", 2, 100)),
    (
        ("Ω_syn, p = 1", 3, 0.6802, Estimate(0.9, 0.001)),
        ('with "quotes" & [brackets]', 1, None, Estimate(0.8, None)),
        ("blank", 2, "", ""),
    ),
    "Scores [1]",
)


def test_csv_reads_back() -> None:
    head, *rows = csv.reader(io.StringIO(SHEET.csv()))
    assert head == ["curve", "n", "AUC [%]", "accuracy [%]", "accuracy [%] ±"]
    assert rows == [
        ["Ω_syn, p = 1", "3", "68.02", "90", "0.1"],
        ['with "quotes" & [brackets]', "1", "not defined", "80", "not defined"],
        ["blank", "2", "", "", "not defined"],
    ]


def test_text_shows_every_cell() -> None:
    text = SHEET.text()
    assert "Scores [1]" in text
    for cell in (cell for row in SHEET.shown() for cell in row):
        assert cell in text
    assert SHEET.shown()[0] == ["Ω_syn, p = 1", "3", "68.0", "90.00 ± 0.10"]
    assert SHEET.shown()[1][2:] == ["not defined", "80.00"]


def test_latex_has_a_row_a_line_and_words_to_the_left() -> None:
    lines = SHEET.latex().splitlines()
    assert lines[0] == r"\begin{tabular}{lrrr}"
    assert lines[1::2][:2] == [r"\toprule", r"\midrule"]
    assert lines[-2:] == [r"\bottomrule", r"\end{tabular}"]
    body = [line for line in lines if line.endswith(r"\\")]
    assert len(body) == 1 + len(SHEET.rows)
    assert all(line.count(" & ") == 3 for line in body)
    assert body[1] == r"$\Omega_{\mathrm{syn}}$, p = 1 & 3 & 68.0 & 90.00 $\pm$ 0.10 \\"


@pytest.mark.parametrize(
    ("text", "latex"),
    [
        ("a_b & 5 % of {x}", r"a\_b \& 5 \% of \{x\}"),
        ("\\ ~ ^ $ #", r"\textbackslash{} \textasciitilde{} \textasciicircum{} \$ \#"),
        ("a<b|c>`d`", r"a\textless{}b\textbar{}c\textgreater{}\textasciigrave{}d\textasciigrave{}"),
        ("Γ(α) → ∞", r"$\Gamma$($\alpha$) $\to$ $\infty$"),
        ("e\N{COMBINING ACUTE ACCENT}t\N{ZERO WIDTH SPACE}e", r"ét\textbackslash{}u200be"),
        ("a---b", "a-{}-{}-b"),
        ("Ω and Ω_total, λ' × ψ", r"$\Omega$ and $\Omega_{\mathrm{total}}$, $\lambda$' $\times$ $\psi$"),
    ],
)
def test_latex_prints_text_as_it_is(text: str, latex: str) -> None:
    assert as_latex(text) == latex


def test_sheets_joined_keep_their_cells() -> None:
    one = Sheet((Column("a"), Column("b")), ((1, 2),))
    two = Sheet((Column("b"), Column("c")), ((3, 4),))
    joined = Sheet.joined("from", {"one": one, "two": two})
    assert joined.titles == ["from", "a", "b", "c"]
    assert joined.rows == (("one", 1, 2, ""), ("two", "", 3, 4))


def test_one_value_has_no_deviation() -> None:
    assert Estimate.of([0.5]) == Estimate(0.5, None)
    mean, deviation = Estimate.of([1.0, 2.0, 4.0])
    assert mean == pytest.approx(7 / 3)
    assert deviation == pytest.approx((sum((x - 7 / 3) ** 2 for x in (1, 2, 4)) / 2) ** 0.5)


def test_the_name_of_a_row_is_whole_where_words_are_broken() -> None:
    """A user copies it into the next command."""
    name = "tradeoff-resnet18-cifar100-adam"
    sheet = Sheet((Column("name"), Column("what")), ((name, "trade-off curves and scores " * 3),))
    text = as_text(sheet.table(), 60)
    assert name in text
    assert max(map(len, text.splitlines())) <= 60


# --- Names that mean something to whoever reads the table -----------------------------------------------------------

FORMULAS = ["=cmd|' /C calc'!A0", "+1+1", "-2+3", "@SUM(A1)", "\t=1+1", "\r=1+1", " =1+1", "\n=1", "＝1+1", "-", "-x"]
NUMBERS = ["-2", "-2.5", "+1e-3", "-.5", "-1.25e+09"]


@pytest.mark.parametrize("name", FORMULAS)
def test_no_cell_of_a_csv_is_a_formula(name: str) -> None:
    sheet = Sheet((Column(name), Column("x"), Column(name)), ((name, 1.0, Estimate(0.5, None)), ("b", name, 0.5)))
    for row in csv.reader(io.StringIO(sheet.csv())):
        assert len(row) == 4
        for cell in row:
            assert cell.lstrip()[0] not in "=+-@\t\r＝＋－＠"
    assert name.strip() in list(csv.reader(io.StringIO(sheet.csv())))[1][0]


@pytest.mark.parametrize("number", NUMBERS)
def test_negative_numbers_stay_numbers(number: str) -> None:
    value = float(number)
    sheet = Sheet((Column("a"), Column("b"), Column("c"), Column("d")), ((value, number, -3, Estimate(-0.5, 0.1)),))
    [_, row] = csv.reader(io.StringIO(sheet.csv()))
    assert row[1] == number
    assert [float(cell) for cell in row] == [value, value, -3, -0.5, 0.1]


ODD = [
    "[x]",
    "*",
    " [x]",
    "a\x1b[31mb",
    "a\nb",
    "a\\",
    "\x00",
    "50%",
    "a&b",
    "$x$",
    "#1",
    "_",
    "{",
    "}}",
    "~",
    "^",
    "Ω_",
    "Ω_[x]",
]


@pytest.mark.parametrize("name", ODD)
def test_latex_of_odd_names_obeys_its_rules(name: str) -> None:
    """What a compiler would stumble over: stray specials, unbalanced braces, rows that begin as an option does."""
    lines = Sheet((Column(name), Column("n")), ((name, 1), ("b", 2), (name, 3))).latex().splitlines()
    assert len(lines) == 9  # no name breaks a line
    for line, cells in zip((lines[2], *lines[4:7]), (2, 2, 2, 2), strict=True):
        assert line.endswith(r" \\")
        assert not line.startswith(("[", "*", " [", " *"))
        row = line.removesuffix(r" \\")
        commands = re.sub(r"\\(?:[&%$#_{}]|[A-Za-z]+(?:\{\})?)", "", row)  # escaped characters and known commands
        assert "\\" not in commands
        assert not re.search(r"[%#~\x00-\x1f\x7f]", commands)
        assert commands.count("&") == cells - 1
        assert commands.count("{") == commands.count("}")
        text, *maths = re.split(r"\$", commands)
        assert len(maths) % 2 == 0
        assert not re.search(r"[_^]", "".join([text, *maths[1::2]]))


def test_control_characters_are_shown() -> None:
    name = "a\x1b]0;title\x07\x9b31m\u202eb\r\n"
    shown = r"a\x1b]0;title\x07\x9b31m\u202eb\r\n"
    assert visible(name) == shown
    assert visible("Ω_syn, p = 1 – é 中 🙂") == "Ω_syn, p = 1 – é 中 🙂"
    sheet = Sheet((Column(name), Column("n")), ((name, 1),), name)
    for text in (sheet.text(), sheet.csv()):
        assert re.findall(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text) == []
    assert r"\x1b]0;title" in sheet.text()


def test_an_interval_takes_three_columns_of_csv() -> None:
    sheet = Sheet((Column("at 10 % [%]", 1, 100),), ((Interval(0.5, 0.4, 0.6),), (Interval(0.5, None, None),), (None,)))
    assert sheet.shown() == [["50.0 [40.0, 60.0]"], ["50.0"], ["not defined"]]
    assert sheet.csv().splitlines() == [
        "at 10 % [%],at 10 % [%] low,at 10 % [%] high",
        "50,40,60",
        "50,not defined,not defined",
        "not defined,not defined,not defined",
    ]
    assert sheet.values()[0] == [{"mean": 50.0, "low": 40.0, "high": 60.0}]


@pytest.mark.parametrize(("columns", "terminal", "room"), [(80, True, 80), (80, False, 110), (200, True, 110)])
def test_what_is_printed_is_no_wider_than_the_terminal(
    columns: int, terminal: bool, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stream(io.StringIO):
        def isatty(self) -> bool:
            return terminal

    monkeypatch.setattr(sys, "stdout", Stream())
    monkeypatch.setenv("COLUMNS", str(columns))
    net = torch.nn.Sequential(pj.Spike(), torch.nn.Linear(4, 3))
    synapses = pj.trace(net, torch.zeros(1, 4))
    meter = pj.EnergyMeter(synapses)
    with pj.watch(net) as activity:
        net(torch.ones(1, 4))
    meter.update(activity)
    for printed in (synapses, meter.compute(), meter.compute(["loihi", "horowitz-45nm-fp32"])):
        lines = str(printed).splitlines()
        assert max(map(len, lines)) <= room
        assert room < 110 or lines == as_text(printed.table(), 110).splitlines()
