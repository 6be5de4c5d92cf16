"""The paper's printed numbers: all of them there, and as they are printed."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from picojoule.io.tables import Estimate
from picojoule.paper import published

ABLATIONS = {  # rows of each table, and one number of its last row, read off the page
    "tbl:ablation-vgg11-adam": (22, 99.92),
    "tbl:ablation-vgg11-msgd": (23, 81.75),
    "tbl:ablation-cnn6-adam": (23, 81.75),
    "tbl:ablation-cnn6-msgd": (23, 81.37),
    "tbl:ablation-resnet18-adam": (26, 99.74),
    "tbl:ablation-resnet18-msgd": (25, 99.05),
}
CURVES = ["Ω_syn (p = 1)", "Ω_syn (p = 2)", "Ω_total (p = 1)", "Ω_total (p = 2)"]
SCORES = {  # curves, scores a curve, and AUC(50) of the last curve
    "tbl:quantitative-comparison-fmnist-cnn6-adam": (6, 6, 0.4294),
    "tbl:quantitative-comparison-fmnist-cnn6-msgd": (6, 6, 0.3809),
    "tbl:quantitative-comparison-cifar10-vgg11-adam": (6, 6, 0.5307),
    "tbl:quantitative-comparison-cifar10-vgg11-msgd": (6, 6, 0.4692),
    "tbl:quantitative-comparison-cifar10-resnet18-adam": (6, 6, 0.5870),
    "tbl:quantitative-comparison-cifar10-resnet18-msgd": (6, 6, 0.6844),
    "tbl:quantitative-cifar100-resnet18-adam": (6, 3, 0.3269),
    "tbl:quantitative-comparison-triangle": (6, 6, 0.4920),
    "tbl:quantitative-comparison-sigmoid": (6, 6, 0.4882),
    "tbl:quantitative-comparison-ann2snn": (5, 6, 0.5630),
}


def test_the_paper_has_twenty_tables_and_five_figures() -> None:
    kinds = Counter(place.split()[0] for place in published.places().values())
    assert kinds == {"Table": 20, "Figure": 5}
    assert published.places()["tbl:quantitative-comparison-ann2snn"] == "Table 20"


@pytest.mark.parametrize("label", ABLATIONS)
def test_an_ablation_table(label: str) -> None:
    rows = published.ablation(label)
    count, dead = ABLATIONS[label]
    assert len(rows) == len({row.setting for row in rows}) == count
    assert rows[0].setting == (0.0, 0.0, False)
    assert rows[0].energy.mean == 1.0
    assert rows[-1].dead_rate.mean == pytest.approx(dead / 100, abs=1e-9)
    assert [row.decay_batch_norm for row in rows] == [row.block == 3 for row in rows]
    assert all(row.weight_decay == 0 for row in rows if row.block == 1)


def test_single_numbers_of_the_ablations() -> None:
    row = next(row for row in published.ablation("tbl:ablation-vgg11-adam") if row.setting == (1e-6, 1e-3, False))
    assert row[4:] == (
        *(Estimate(0.76, 0.00962), Estimate(0.07829, 0.00076)),
        *(Estimate(0.6802, 0.00504), Estimate(0.01378, 0.00016)),
    )


def test_the_misprinted_ablation_repeats_another_number_for_number() -> None:
    assert published.ablation("tbl:ablation-cnn6-adam") == published.ablation("tbl:ablation-vgg11-msgd")
    assert [label for label in ABLATIONS if published.is_misprinted(label)] == ["tbl:ablation-cnn6-adam"]
    assert published.ablation("tbl:ablation-cnn6-msgd")[0].accuracy.mean == 0.9202


@pytest.mark.parametrize("label", SCORES)
def test_a_table_of_scores(label: str) -> None:
    curves, scores, last = SCORES[label]
    found = published.scores(label)
    assert len(found) == curves
    assert {len(each) for each in found.values()} == {scores}
    assert list(found.values())[-1]["AUC(50)"] == pytest.approx(last, abs=1e-9)


def test_single_scores() -> None:
    found = published.scores("tbl:quantitative-comparison-fmnist-cnn6-adam")
    assert list(found)[:4] == CURVES
    assert found["Ω_syn (p = 1)"] == {
        "AUC(70)": 0.6802,
        "AUC(50)": 0.7960,
        "Spearman(70)": 0.9861,
        "Spearman(50)": 0.9865,
        "MI(70)": 3.465,
        "MI(50)": 3.610,
    }
    assert list(published.scores("tbl:quantitative-comparison-ann2snn"))[2:] == [
        f"conversion (T = {steps})" for steps in (1, 5, 10)
    ]


def test_the_comparison_with_conversion_repeats_the_scores_of_the_penalties() -> None:
    here = published.scores("tbl:quantitative-comparison-ann2snn")
    there = published.scores("tbl:quantitative-comparison-fmnist-cnn6-adam")
    assert here["Ω_syn (p = 1)"] == there["Ω_syn (p = 1)"]
    assert here["Ω_syn (p = 2)"] == there["Ω_syn (p = 2)"]


def test_most_printed_mutual_information_counts_points() -> None:
    """ln N, or less (2/N)·ln 2 for each tie, truncated to three digits: a slip of the pen would stand out."""
    values = [
        value
        for label in SCORES
        for scores in published.scores(label).values()
        for name, value in scores.items()
        if name.startswith("MI")
    ]
    possible = {
        math.floor(1000 * (math.log(n) - ties * 2 / n * math.log(2))) for n in range(10, 90) for ties in range(8)
    }
    explained = sum(round(1000 * value) in possible for value in values)
    assert len(values) == 112
    assert explained > 0.9 * len(values)  # the others have three accuracies alike


def test_the_small_tables() -> None:
    assert published.totals()["vgg11"] == {
        "energy": 2_526_060_544,
        "syn": 2_526_060_544,
        "total": 249_856,
        "balance": 10,
    }
    assert published.training_time() == {"none": 1.0, "syn": 0.998, "total": 0.968, "balance": 0.999}
    rows = published.hyperparameters()
    assert len(rows) == 8
    assert rows[2] == ("cnn7", "adam", "sigmoid", 1e-2, 1e-7, False, 0.45, None)
    assert set(published.architectures()) == {"cnn7", "vgg11", "resnet18", "ResA(x)", "ResB(x)"}


def test_every_misprint_belongs_to_a_table_or_figure() -> None:
    for label in published.places():
        for text in published.misprints([label]):
            assert text.endswith(".")
    marked = {label for label in published.places() if published.misprints([label])}
    assert {"tbl:ablation-cnn6-adam", "tbl:comparison-scaling-factor-metrics", "tbl:network-architecture"} <= marked
    assert not published.misprints(["tbl:hyperparameter"])
