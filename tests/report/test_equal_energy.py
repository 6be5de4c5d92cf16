"""Accuracy at equal energy and its differences, on curves whose answer is known by hand."""

from __future__ import annotations

import itertools
import math
import statistics

import numpy as np
import pytest

from picojoule.io.tables import Interval
from picojoule.report.curve import Curve, Point
from picojoule.report.equal_energy import (
    SHARES,
    accuracies,
    accuracy_table,
    difference_table,
    differences,
    interval,
    nearest_level,
)

SEEDS = (0, 1, 2)
ENERGIES = {1: 0.8, 4: 0.4, 16: 0.1, 64: 0.025}
"""By strength; the baseline spends 1."""


def curve(kind: str, *lifts: float, variant: str = "p = 1", slope: float = 0.05) -> Curve:
    """Accuracy 0.9 + slope · log2(energy) + the seed's lift: a straight line over the logarithm of the energy."""

    def point(energy: float, seed: int, strength: float) -> Point:
        lift = lifts[seed] if strength else 0.0
        return Point(energy, 0.9 + slope * math.log2(energy) + lift, strength, seed=seed, run=f"{kind}{strength}{seed}")

    seeds = range(len(lifts))
    points = tuple(point(energy, seed, strength) for strength, energy in ENERGIES.items() for seed in seeds)
    return Curve(kind, variant, points, tuple(point(1.0, seed, 0) for seed in seeds))


def test_the_accuracy_of_each_seed_lies_on_its_own_line() -> None:
    lifts = (0.0, 0.01, -0.02)
    for share in (0.3, 0.2, 0.1, 0.05):
        found = accuracies(curve("Ω_syn", *lifts), share)
        assert found == pytest.approx({seed: 0.9 + 0.05 * math.log2(share) + lifts[seed] for seed in SEEDS})
    # Between the baseline (1) and the first strength (0.8), the lift comes in by the logarithm.
    share = math.sqrt(0.8)
    assert accuracies(curve("Ω_syn", 0.02), share) == pytest.approx({0: 0.9 + 0.05 * math.log2(share) + 0.01})
    assert accuracies(curve("Ω_syn", 0.0), 0.02) == {}  # nobody went there


def test_the_order_of_points_plays_no_part() -> None:
    there = curve("Ω_syn", 0.0, 0.01)
    back = Curve(there.kind, there.variant, there.points[::-1], there.baseline[::-1])
    assert accuracies(there, 0.17) == accuracies(back, 0.17)


def test_an_interval_of_three_runs_from_least_to_greatest() -> None:
    """Of 27 samples of three seeds, one in 27 (3.7 %) is the least alone, more than the 2.5 % that are cut off."""
    assert interval([0.1, 0.4, 0.2]) == pytest.approx(Interval(0.7 / 3, 0.1, 0.4))


def test_an_interval_of_five_is_that_of_all_samples() -> None:
    values = [0.1, 0.5, 0.3, 0.2, 0.9]
    every = [statistics.fmean(sample) for sample in itertools.product(values, repeat=5)]
    low, high = np.quantile(every, [0.025, 0.975])
    assert interval(values) == pytest.approx(Interval(0.4, low, high), abs=0.011)


def test_claims_with_a_known_answer() -> None:
    curves = [
        curve("Ω_syn", 0.03, 0.04, 0.05),
        curve("Ω_total", 0.0, 0.02, 0.04),  # below with every seed, by 3, 2 and 1 points
        curve("Ω_balance", 0.04, 0.02, 0.05),  # −1, 2 and 0 points: it cannot be told
        curve("Ω_syn", 0.05, 0.05, 0.06, variant="p = 2"),  # above with every seed
    ]
    by_label = {found.label: found for found in differences(curves)}
    assert list(by_label) == ["Ω_syn − Ω_total, p = 1", "Ω_syn − Ω_balance, p = 1", "Ω_syn: p = 1 − p = 2"]
    total, balance, exponent = by_label.values()
    assert [found.verdict for found in by_label.values()] == ["holds", "cannot be told", "the other way round"]
    for share in (0.3, 0.2, 0.1, 0.05):
        assert total.at[share] == pytest.approx(Interval(0.02, 0.01, 0.03))
        assert balance.at[share] == pytest.approx(Interval(0.01 / 3, -0.01, 0.02))
    assert exponent.overall is not None
    assert exponent.overall == pytest.approx(Interval(-0.04 / 3, -0.02, -0.01))
    assert {found.seeds for found in by_label.values()} == {3}


def test_one_seed_tells_nothing_and_says_so() -> None:
    (found,) = differences([curve("Ω_syn", 0.05), curve("Ω_total", 0.0)])
    assert found.verdict == "cannot be told"
    assert found.overall == pytest.approx((0.05, None, None))
    (row,) = difference_table([curve("Ω_syn", 0.05), curve("Ω_total", 0.0)]).shown()
    assert row[:4] == ["Ω_syn − Ω_total, p = 1", "cannot be told", "1", "5.00"]


def test_only_seeds_that_both_have_are_compared() -> None:
    (found,) = differences([curve("Ω_syn", 0.03, 0.04), curve("Ω_total", 0.0, 0.0, -0.5)])
    assert found.seeds == 2
    assert found.overall == pytest.approx(Interval(0.035, 0.03, 0.04))


def test_where_a_curve_does_not_reach_nothing_is_said() -> None:
    short = curve("Ω_total", 0.0, 0.0)
    short = Curve(short.kind, short.variant, tuple(p for p in short.points if p.strength <= 4), short.baseline)
    (found,) = differences([curve("Ω_syn", 0.01, 0.01), short])
    assert set(found.at) == {0.5}  # the next share, 30 %, lies below its last point
    assert accuracy_table([short]).rows[0][3:] == (None,) * (len(SHARES) - 1)


def test_the_table_has_intervals() -> None:
    (row,) = accuracy_table([curve("Ω_syn", 0.0, 0.01, 0.02)]).shown()
    at_ten = 100 * (0.9 + 0.05 * math.log2(0.1))
    assert row[:2] == ["Ω_syn (p = 1)", "3"]
    assert row[2 + SHARES.index(0.1)] == f"{at_ten + 1:.2f} [{at_ten:.2f}, {at_ten + 2:.2f}]"


def test_the_level_nearest_to_a_share() -> None:
    assert {point.strength for point in nearest_level(curve("Ω_syn", 0.0, 0.0), 0.12)} == {16}
    assert nearest_level(Curve("Ω_syn", "p = 1", ()), 0.1) == ()
