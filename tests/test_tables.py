"""Tables: the same cells in text, CSV and LaTeX."""

from __future__ import annotations

import csv
import io

import pytest

from picojoule.tables import Column, Estimate, Sheet, as_latex, as_text

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
