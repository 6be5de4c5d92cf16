"""How AUC(P) is computed: the curve that the paper's algorithm 1 draws through the points, and the area above P."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from picojoule import report
from picojoule.io.tables import Column, Sheet
from picojoule.paper.context import Context, Experiment, Results
from picojoule.paper.curves import Tradeoff, finished_curves
from picojoule.paper.scales import Scale
from picojoule.recipe import Recipe
from picojoule.search import tradeoff

if TYPE_CHECKING:
    import altair as alt

CUTOFFS = (70, 50)
_EXAMPLE = ((0.1, 0.6), (0.2, 0.8), (0.5, 0.7), (1.0, 0.9))
Place = tuple[float, float]
"""Energy relative to the baseline, and accuracy."""


@dataclass(frozen=True)
class Area(Experiment):
    """The curve of Ω_syn with p = 1 and its areas.

    Attributes:
        full: The paper's setting.
        small: A quicker setting, for the scales small, mini and quick.
    """

    full: Tradeoff
    small: Tradeoff

    def recipes(self, scale: Scale) -> tuple[Recipe, ...]:
        """Return the runs that it needs (see `Experiment`)."""
        source = self.small if scale.name in ("small", "mini", "quick") else self.full
        return (*source.baseline(scale), *source.curve(scale, "syn", 1))

    def results(self, context: Context) -> Results:
        """Make the table of areas and the figure of the curve (see `Experiment`)."""
        points = [
            (point.energy, point.accuracy)
            for curve in finished_curves(context, self.recipes(context.scale))
            for point in curve.points
        ]
        rows = []
        for name, places in (("worked example", _EXAMPLE), ("Ω_syn (p = 1)", points)):
            energy, accuracy = zip(*places, strict=True) if places else ((), ())
            areas = (tradeoff.auc(energy, accuracy, cutoff) for cutoff in CUTOFFS)
            rows.append((name, len(places), len(curve_corners(places)), *areas))
        columns = [Column("curve"), Column("points"), Column("corners of c")]
        columns += [Column(f"AUC({cutoff}) [%]", 2, 100) for cutoff in CUTOFFS]
        figures = {"auc-example": picture(_EXAMPLE)} | ({"auc": picture(points)} if points else {})
        return Results({"auc": Sheet(tuple(columns), tuple(rows))}, figures)


def curve_corners(points: Iterable[Place]) -> list[Place]:
    """Return the corners of the curve c: it rises at the first point, then passes those that no earlier point beats.

    Args:
        points: Energy relative to the baseline, and accuracy.

    Returns:
        The corners, from the lowest energy up to 1.

    >>> curve_corners([(0.1, 0.6), (0.2, 0.8), (0.5, 0.7), (1.2, 0.9)])
    [(0.1, 0.0), (0.1, 0.6), (0.2, 0.8), (1.0, 0.8)]
    """
    corners: list[Place] = []
    for energy, accuracy in sorted(point for point in points if point[0] <= 1):
        if not corners:
            corners.append((energy, 0.0))
        if accuracy >= corners[-1][1]:
            corners.append((energy, accuracy))
    return [*corners, (1.0, corners[-1][1])] if corners else []


def picture(points: Sequence[Place], cutoff: float = CUTOFFS[0]) -> alt.LayerChart:
    """Draw the points, the curve c through some of them, and the area A(P).

    Args:
        points: Energy relative to the baseline, and accuracy.
        cutoff: P in percent.

    Returns:
        The figure.
    """
    import altair as alt

    corners = curve_corners(points)
    on_curve = set(corners)
    floor = cutoff / 100
    curve = [{"energy": x, "accuracy": y, "order": number} for number, (x, y) in enumerate(corners)]
    dots = [{"energy": x, "accuracy": y, "point": _KEPT if (x, y) in on_curve else _LEFT_OUT} for x, y in points]
    x = alt.X("energy:Q", title="energy relative to the baseline", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("accuracy:Q", title="accuracy", scale=alt.Scale(domain=[0, 1]), axis=alt.Axis(format="%"))
    colour = alt.Color(
        "point:N",
        title=None,
        scale=alt.Scale(domain=[_KEPT, _LEFT_OUT], range=[report.figures.BLUE, report.figures.GREY]),
    )
    area = alt.Chart({"values": _clipped(corners, floor)}).mark_area(opacity=0.25, color=report.figures.BLUE)
    line = alt.Chart({"values": curve}).mark_line(color=report.figures.BLUE)
    rule = alt.Chart({"values": [{"accuracy": floor}]}).mark_rule(strokeDash=[4, 4], color=report.figures.GREY)
    layers = [
        area.encode(x=x, y=y, y2=alt.Y2("floor:Q")),
        rule.encode(y=y),
        line.encode(x=x, y=y, order="order:Q"),
        alt.Chart({"values": dots}).mark_point(filled=True, size=60, clip=True).encode(x=x, y=y, color=colour),
    ]
    return alt.LayerChart(
        layer=layers, width=420, height=320, title=f"A({cutoff:g}): the area between c and accuracy {floor:g}"
    )


_KEPT, _LEFT_OUT = "on the curve c", "beaten by a point of less energy"


def _clipped(corners: Sequence[Place], floor: float) -> list[dict[str, float]]:
    """Return the part of the curve above the cutoff, beginning where it crosses it."""
    above: list[dict[str, float]] = []
    for (x0, y0), (x1, y1) in itertools.pairwise(corners):
        if y0 < floor <= y1:
            crossing = x0 + (x1 - x0) * (floor - y0) / (y1 - y0)
            above.append({"energy": crossing, "accuracy": floor, "floor": floor})
        if y1 >= floor:
            above.append({"energy": x1, "accuracy": y1, "floor": floor})
    return above
