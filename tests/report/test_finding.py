"""The main finding: like compared with like, and by nothing that luck decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from picojoule.report import Curve, Point, RunGroup
from picojoule.report.finding import Finding, finding


def level(energy: float, accuracies: dict[int, float], strength: float) -> tuple[Point, ...]:
    return tuple(
        Point(energy, accuracy, strength, rank=strength, seed=seed, run=f"{strength:g}-s{seed}", joules=energy * 1e-5)
        for seed, accuracy in accuracies.items()
    )


BASELINE = level(1.0, {0: 0.80, 1: 0.90}, 0)


def found(*curves: tuple[Point, ...], continued: tuple[Point, ...] = ()) -> Finding | None:
    made = [Curve("Ω_syn", "p = 1", points, BASELINE) for points in curves if points]
    made += [Curve("Ω_syn frontier", "p = 1", continued, BASELINE, continued=True)] if continued else []
    return finding(RunGroup("cnn7", {}, (), 1e-5, tuple(made)))


def test_the_least_energy_within_each_loss() -> None:
    levels = [
        level(0.8, {0: 0.82, 1: 0.91}, 2),
        level(0.5, {0: 0.80, 1: 0.886}, 8),  # 0.7 points less
        level(0.3, {0: 0.77, 1: 0.86}, 32),  # 3.5 points less
        level(0.1, {0: 0.50, 1: 0.60}, 128),
    ]
    main = found(tuple(point for points in levels for point in points))
    assert main is not None
    assert main.baseline.points == BASELINE
    assert [each.points if each else None for each in main.within] == [levels[1], levels[2]]
    assert main.best.points == levels[0]
    assert (main.left_out, main.frontiers) == (0, "none")
    frugal = main.within[0]
    assert frugal is not None
    assert frugal.lost == pytest.approx(0.007)
    assert frugal.headline == "50 % of the energy, 0.7 points of accuracy less"
    assert frugal.joules == pytest.approx(5e-6)
    assert frugal.accuracy.deviation == pytest.approx(0.086 / 2**0.5)
    assert (frugal.label, frugal.amount) == ("Ω_syn (p = 1)", "λ' = 8")


def test_a_level_is_compared_with_the_baseline_of_its_own_seeds() -> None:
    """The better seed alone would look like a gain of five points beside the mean of both."""
    main = found(level(0.5, {1: 0.90}, 8))
    assert main is not None
    assert main.best.lost == pytest.approx(0)


def test_a_level_with_fewer_seeds_is_left_out() -> None:
    lucky, tried = level(0.1, {0: 0.95, 7: 0.99}, 64), level(0.5, {0: 0.79, 1: 0.90}, 8)
    main = found(lucky + tried)
    assert main is not None
    assert main.best.points == tried  # the baseline has no seed 7
    assert main.left_out == 1


def test_networks_that_are_trained_for_longer_are_compared_only_among_themselves() -> None:
    longer, alike = level(0.1, {0: 0.85, 1: 0.95}, 64), level(0.5, {0: 0.79, 1: 0.90}, 8)
    both, alone = found(alike, continued=longer), found(continued=longer)
    assert both is not None
    assert alone is not None
    assert (both.best.points, both.frontiers) == (alike, "left out")
    assert (alone.best.points, alone.frontiers) == (longer, "alone")


def test_where_nothing_is_saved_or_nothing_can_be_compared() -> None:
    main = found(level(1.2, {0: 0.85, 1: 0.95}, 2) + level(0.5, {0: 0.3, 1: 0.3}, 8))
    assert main is not None
    assert main.within == (None, None)
    assert found() is None
    assert found(level(0.5, {5: 0.9}, 8)) is None


def test_a_budget_stands_in_the_place_of_a_strength() -> None:
    points = tuple(replace(point, budget="30 %") for point in level(0.3, {0: 0.8, 1: 0.9}, 0))
    main = found(points)
    assert main is not None
    assert main.best.amount == "30 %"  # of the curve "Ω_syn budget"
    assert main.best.typical in points
