"""Scores of trade-off curves, against other ways of computing them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import groupby, pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given
from hypothesis import strategies as st
from scipy.special import digamma

import picojoule as pj
from picojoule.search import tradeoff

SCORES: dict[str, Callable[..., float | None]] = {
    "auc": tradeoff.auc,
    "spearman": tradeoff.spearman,
    "mutual_information": tradeoff.mutual_information,
    "mutual_information_knn": tradeoff.mutual_information_knn,
}

# Multiples of 1/64 meet often: ties in energy, in accuracy, in both, and points on the cutoff; some x are above 1.
points = st.lists(st.tuples(st.integers(0, 90), st.integers(0, 64)), max_size=12)
cutoffs = st.sampled_from([0, 25, 50, 70, 75, 99])


def exact_auc(curve: list[tuple[Fraction, Fraction]], cutoff: int) -> Fraction | None:
    """Algorithm 1 line by line in exact arithmetic; the area from the heights at every corner and every crossing."""
    floor = Fraction(cutoff, 100)
    kept = sorted(point for point in curve if point[0] <= 1)
    if not kept:
        return None
    kept = [(kept[0][0], Fraction(0)), *kept]
    kept.append((Fraction(1), max(y for _, y in kept)))
    kept = [(x, y) for i, (x, y) in enumerate(kept) if all(kept[j][1] <= y for j in range(i))]

    def height(x: Fraction, left: tuple[Fraction, Fraction], right: tuple[Fraction, Fraction]) -> Fraction:
        return left[1] + (right[1] - left[1]) * (x - left[0]) / (right[0] - left[0])

    area = Fraction(0)
    for left, right in pairwise(kept):
        if left[0] == right[0]:
            continue
        corners = {left[0], right[0]}
        if left[1] != right[1]:
            crossing = left[0] + (floor - left[1]) * (right[0] - left[0]) / (right[1] - left[1])
            corners |= {crossing} if left[0] < crossing < right[0] else set()
        ordered = sorted(corners)
        for a, b in pairwise(ordered):
            area += (b - a) * max(height((a + b) / 2, left, right) - floor, Fraction(0))
    return area / (1 - floor)


@given(points, cutoffs)
@example([], 70)
@example([(1, 64)], 70)
@example([(64, 64)], 0)
@example([(65, 64)], 0)
@example([(32, 60), (32, 40), (16, 50), (48, 30), (90, 64)], 50)
def test_auc_is_algorithm_1(curve: list[tuple[int, int]], cutoff: int) -> None:
    expected = exact_auc([(Fraction(x, 64), Fraction(y, 64)) for x, y in curve], cutoff)
    found = tradeoff.auc([x / 64 for x, _ in curve], [y / 64 for _, y in curve], cutoff)
    assert found == (None if expected is None else pytest.approx(float(expected), rel=1e-12, abs=1e-12))


@given(st.lists(st.tuples(st.floats(0, 1.5), st.floats(0, 1)), min_size=1, max_size=40), st.floats(0, 99), st.randoms())
def test_auc_of_any_curve(curve: list[tuple[float, float]], cutoff: float, random: object) -> None:
    x, y = zip(*curve, strict=True)
    area = tradeoff.auc(x, y, cutoff)
    if min(x) > 1:
        assert area is None
        return
    assert area is not None
    assert 0 <= area <= 1
    shuffled = list(curve)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert tradeoff.auc(*zip(*shuffled, strict=True), cutoff=cutoff) == pytest.approx(area, rel=1e-9, abs=1e-12)


def test_auc_by_hand() -> None:
    assert tradeoff.auc([0.1, 0.2, 0.5, 1], [0.6, 0.8, 0.7, 0.9]) == pytest.approx(0.408333, abs=1e-6)
    assert tradeoff.auc([0.25], [0.85], 70) == pytest.approx(0.75 * 0.15 / 0.3)
    assert tradeoff.auc([0.25], [0.7], 70) == 0
    assert tradeoff.auc([1.1, 1.2], [0.9, 0.9]) is None
    assert tradeoff.auc([1.0], [0.9]) == 0
    assert tradeoff.auc([0.0], [1.0]) == 1


def test_a_point_below_the_cutoff_still_bends_the_curve() -> None:
    assert tradeoff.auc([0.1, 0.5], [0.6, 0.8], 70) != tradeoff.auc([0.5], [0.8], 70)


def ranks(values: list[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    shared: dict[float, float] = {}
    first = 1
    for value, group in groupby(sorted(values)):
        size = len(list(group))
        shared[value] = first + (size - 1) / 2
        first += size
    return [shared[value] for value in values]


def above(curve: list[tuple[int, int]], cutoff: int) -> tuple[list[float], list[float]]:
    kept = [(x / 64, y / 64) for x, y in curve if 100 * y > 64 * cutoff]
    return [x for x, _ in kept], [y for _, y in kept]


@given(points, cutoffs)
def test_spearman_is_the_correlation_of_the_ranks(curve: list[tuple[int, int]], cutoff: int) -> None:
    x, y = above(curve, cutoff)
    found = tradeoff.spearman([x / 64 for x, _ in curve], [y / 64 for _, y in curve], cutoff)
    if len(x) < 3 or len(set(x)) == 1 or len(set(y)) == 1:
        assert found is None
        return
    a, b = ranks(x), ranks(y)
    mean = (len(x) + 1) / 2
    covariance = sum((i - mean) * (j - mean) for i, j in zip(a, b, strict=True))
    expected = covariance / math.sqrt(sum((i - mean) ** 2 for i in a) * sum((j - mean) ** 2 for j in b))
    assert found == pytest.approx(expected, abs=1e-12)


def entropy(symbols: list[object]) -> float:
    return -sum(n / len(symbols) * math.log(n / len(symbols)) for n in Counter(symbols).values())


@given(points, cutoffs)
def test_plug_in_information_is_what_the_entropies_say(curve: list[tuple[int, int]], cutoff: int) -> None:
    x, y = above(curve, cutoff)
    found = tradeoff.mutual_information([x / 64 for x, _ in curve], [y / 64 for _, y in curve], cutoff)
    if not x:
        assert found is None
        return
    expected = entropy([*x]) + entropy([*y]) - entropy([*zip(x, y, strict=True)])
    assert found == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("number", [1, 2, 15, 32, 42])
def test_plug_in_information_counts_points(number: int) -> None:
    x = [0.1 + i / 100 for i in range(number)]
    y = [0.9 - i / 1000 for i in range(number)]
    assert tradeoff.mutual_information(x, y) == pytest.approx(math.log(number))
    if number > 1:
        tied = [*y[:-1], y[0]]
        assert tradeoff.mutual_information(x, tied) == pytest.approx(math.log(number) - 2 / number * math.log(2))


def kraskov(x: list[float], y: list[float], k: int) -> float:
    """ψ(N) + ψ(k) − ⟨ψ(n_x) + ψ(n_y)⟩ with each point itself among its neighbours, by comparing every pair."""
    total = 0.0
    for i in range(len(x)):
        distances = sorted(max(abs(x[i] - x[j]), abs(y[i] - y[j])) for j in range(len(x)) if j != i)
        reach = np.nextafter(distances[k - 1], 0)
        total += digamma(sum(abs(x[i] - v) <= reach for v in x)) + digamma(sum(abs(y[i] - v) <= reach for v in y))
    return max(0.0, float(digamma(len(x)) + digamma(k) - total / len(x)))


@given(st.integers(0, 1000), st.integers(4, 60), st.integers(1, 3))
def test_neighbour_information_is_kraskovs_estimate(seed: int, number: int, k: int) -> None:
    generator = np.random.default_rng(seed)
    x = generator.random(number)
    y = 0.75 + 0.2 * x + 0.01 * generator.random(number)
    assume(number > k)
    expected = kraskov(list(x / x.std()), list(y / y.std()), k)
    assert tradeoff.mutual_information_knn(x, y, neighbours=k) == pytest.approx(expected, abs=1e-4)


def test_neighbour_information_measures_dependence_where_the_plug_in_form_cannot() -> None:
    generator = np.random.default_rng(0)
    x = generator.random(42)
    linked, unlinked = 0.75 + 0.2 * x, 0.75 + 0.2 * generator.random(42)
    for y in (linked, unlinked):
        assert tradeoff.mutual_information(x, y) == pytest.approx(math.log(42))
    strong, weak = tradeoff.mutual_information_knn(x, linked), tradeoff.mutual_information_knn(x, unlinked)
    assert strong is not None
    assert weak is not None
    assert strong > weak + 1
    assert tradeoff.mutual_information_knn(x, linked) == strong


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_no_points_define_no_score(score: Callable[..., float | None]) -> None:
    assert score([], []) is None


@pytest.mark.parametrize("name", [name for name in SCORES if name != "auc"])
def test_points_at_or_below_the_cutoff_are_left_out(name: str) -> None:
    x, y = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.5, 0.75, 0.76, 0.78, 0.77, 0.9]
    assert SCORES[name](x, y, 75) == SCORES[name](x[2:], y[2:], 0)
    assert SCORES[name](x, y, 90) is None


@pytest.mark.parametrize(
    ("energy", "accuracy", "cutoff", "words"),
    [
        ([0.5], [0.9, 0.8], 70, "1 energies and 2 accuracies"),
        ([0.5], [90.0], 70, "90 is not between 0 and 1"),
        ([0.5], [math.nan], 70, "nan is not between 0 and 1"),
        ([-0.5], [0.9], 70, "negative or not finite"),
        ([math.inf], [0.9], 70, "negative or not finite"),
        ([0.5], [0.9], 100, "cutoff=100"),
        ([0.5], [0.9], -1, "cutoff=-1"),
        ([0.5], [0.9], math.nan, "cutoff=nan"),
        ([0.5], [0.9], "70", "cutoff='70'"),
        ([0.5], [0.9], None, "cutoff=None"),
        ([0.5], [0.9], 10**400, "cutoff=1000"),
        ([0.5, None], [0.9, 0.9], 70, "energies of a curve are not a row of numbers"),
        ([0.5], ["0.9"], 70, "accuracies of a curve are not a row of numbers"),
        (0.5, [0.9], 70, "energies of a curve are not a row of numbers"),
        ([10**400], [0.9], 70, "energies of a curve are not a row of numbers"),
        ([1j], [0.9], 70, "energies of a curve are not a row of numbers"),
        ([[0.1, 0.2], [0.3]], [[0.9], [0.8]], 70, "energies of a curve are not a row of numbers"),
        (np.full((2, 1), 0.5), np.full((2, 1), 0.9), 70, "energies of a curve are not a row of numbers"),
        (torch.tensor(0.5), torch.tensor(0.9), 70, "energies of a curve are not a row of numbers"),
    ],
)
def test_mistakes(energy: Any, accuracy: Any, cutoff: Any, words: str) -> None:
    for score in SCORES.values():
        with pytest.raises(pj.PicojouleError, match=words):
            score(energy, accuracy, cutoff)


@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_a_curve_comes_in_any_form(score: Callable[..., float | None]) -> None:
    x, y = [0.125, 0.25, 0.5, 0.625, 0.75], [0.75, 0.8125, 0.875, 0.84375, 0.9375]  # exact in bfloat16
    expected = score(x, y, 70)
    assert expected is not None
    for form in (tuple, iter, np.array, np.float32, torch.tensor):
        assert score(form(x), form(y), 70) == expected
    assert score(torch.tensor(x, requires_grad=True), torch.tensor(y, dtype=torch.bfloat16), 70) == expected
    assert score(x, y, np.float32(70)) == expected


@pytest.mark.parametrize("neighbours", [0, -1, 2.0, True])
def test_neighbours_are_counted_in_whole_numbers(neighbours: int) -> None:
    with pytest.raises(pj.PicojouleError, match="neighbours"):
        tradeoff.mutual_information_knn([0.5], [0.9], neighbours=neighbours)
