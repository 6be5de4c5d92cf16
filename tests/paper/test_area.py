"""The picture of the area shows what `tradeoff.auc` measures."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from picojoule.paper.area import _clipped, curve_corners
from picojoule.search import tradeoff

FRACTIONS = st.floats(0, 1).map(lambda value: round(value, 3))
POINTS = st.lists(st.tuples(st.floats(0, 1.5).map(lambda value: round(value, 3)), FRACTIONS), min_size=1, max_size=12)


@given(POINTS, st.sampled_from([0, 50, 70]))
def test_the_shaded_area_is_the_score(points: list[tuple[float, float]], cutoff: int) -> None:
    floor = cutoff / 100
    shaded = [(row["energy"], row["accuracy"]) for row in _clipped(curve_corners(points), floor)]
    area = sum((x1 - x0) * ((y0 + y1) / 2 - floor) for (x0, y0), (x1, y1) in itertools.pairwise(shaded))
    score = tradeoff.auc(*zip(*points, strict=True), cutoff)  # type: ignore[arg-type] # two columns of them
    assert (score or 0) == pytest.approx(area / (1 - floor), abs=1e-9)


def test_no_point_of_less_energy_than_the_baseline_gives_no_curve() -> None:
    assert curve_corners([(1.2, 0.9)]) == []
