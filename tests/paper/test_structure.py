"""What needs no training: our networks and recipes against the paper's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from picojoule.paper import SCALES
from picojoule.paper.context import Context, Results
from picojoule.paper.experiments import find
from picojoule.paper.notation import block_notation, notation


def results(name: str, folder: Path) -> Results:
    return find(name).experiment.results(Context(SCALES["full"], folder, print))


@pytest.mark.slow
def test_the_totals_are_the_papers(tmp_path: Path) -> None:
    rows = results("totals", tmp_path).tables["totals"].rows
    compared = [row for row in rows if row[4] != ""]
    assert len(compared) == 9
    assert all(row[5] == 0 for row in compared)
    assert ("VGG11", "E_SNN/E_AC = Ω_syn", "uniform", 827_367_424, "", "") in rows


@pytest.mark.parametrize("model", ["cnn7", "vgg11", "resnet18"])
def test_the_synaptic_penalty_has_the_shares_of_the_energy_and_the_others_have_not(model: str, tmp_path: Path) -> None:
    rows = results(f"layers-{model}", tmp_path).tables["shares"].rows
    columns = [[row[index] for row in rows] for index in range(1, 5)]
    for column in columns:
        assert sum(column) == pytest.approx(1)  # type: ignore[arg-type] # all of them are numbers
    energy, syn, total, balance = columns
    assert syn == pytest.approx(energy)
    assert max(abs(a - b) for a, b in zip(total, energy, strict=True)) > 0.05  # type: ignore[operator]
    assert balance == pytest.approx([1 / len(rows)] * len(rows))


def test_the_architectures_differ_from_the_printed_ones_in_the_misprints_only(tmp_path: Path) -> None:
    assert results("architectures", tmp_path).tables["differences"].rows == (
        ("CNN7", 5, "C(128)k3s1p0", "C(128)k6s1p0"),
        ("CNN7", 9, "C(256)k6s1p0", "C(256)k3s1p0"),
        ("CNN7", 13, "C(128)k3s1p0", "C(128)k1s1p0"),
        ("VGG11", 4, "Avg", "DO(0.2)"),
        ("VGG11", 8, "DO(0.2)", "Avg"),
        ("ResB(x)", 8, "C(x)k1s2p0", "C(x)k3s1p1"),
    )


def test_the_notation_of_a_network() -> None:
    assert notation("cnn7").startswith("C(64)k3s2p0–BN–S–DO(0.1)–C(128)k3s1p0–BN")
    assert notation("cnn7").endswith("C(10)k1s1p0–GAP")
    assert notation("vgg11").endswith("FC(4096)–BN–S–DO(0.2)–FC(10)")
    assert block_notation()["ResA(x)"] == "BN–S–C(x)k3s1p1–BN–S–C(x)k3s1p1 + identity"


def test_the_recipes_are_the_papers_hyper_parameters(tmp_path: Path) -> None:
    rows = results("hyperparameters", tmp_path).tables["hyperparameters"].rows
    assert [row[-1] for row in rows] == ["the same"] * 8
    assert rows[1][3:8] == ("0.001", "1e-06", "0", "-", "-")
