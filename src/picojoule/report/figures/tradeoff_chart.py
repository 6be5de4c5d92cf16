"""The trade-off figure: accuracy over energy relative to the baseline."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import altair as alt

from picojoule.report.figures.axes import Width
from picojoule.report.figures.palette import GREY, SHAPES, colours, looks
from picojoule.report.rows import BASELINE, Row

_GROWN: Any = {"stroke": "transparent", "strokeWidth": 6}
"""Makes a small mark one that a finger can hit."""
_SHOWN = "indexof(kinds, datum.kind) >= 0 && indexof(variants, datum.variant) >= 0"
_LEVEL: list[str | alt.FieldName] = ["kind", "variant", "strength", "rank"]
_RUN = [
    *(alt.Tooltip("run:N"), alt.Tooltip("kind:N", title="penalty"), alt.Tooltip("variant:N", title="power")),
    *(alt.Tooltip("strength:N", title="λ' or budget"), alt.Tooltip("seed:N")),
    *(alt.Tooltip("accuracy:Q", format=".2%"), alt.Tooltip("energy:Q", format=".2%")),
]
"""What is told of a run under the pointer."""
_MEAN = [
    *(alt.Tooltip("several:N", title="mean of"), alt.Tooltip("kind:N", title="penalty")),
    *(alt.Tooltip("variant:N", title="power"), alt.Tooltip("strength:N", title="λ' or budget")),
    *(alt.Tooltip("accuracy:N"), alt.Tooltip("energy:N")),
]
"""What is told of a mean."""


def tradeoff(
    rows: Sequence[Row],
    kinds: Sequence[str],
    variants: Sequence[str],
    seeds: Sequence[str] = (),
    width: Width = 600,
    height: int = 400,
    legend: bool = True,
) -> alt.LayerChart:
    """Draw accuracy over energy: every run, and means over seeds ± sample standard deviation.

    Where a level has several seeds, the mark is their mean and its runs are small ones around it. The baseline is a
    line across, in a band of its deviation. The parameters `kinds`, `variants` and `seeds` hold what is shown, `lowest`
    and `highest` the accuracies between which the axis runs, `furthest` the energy at its end, and `chosen` the name of
    the run that has a ring.

    Args:
        rows: What `curve_rows` gives.
        kinds: Kinds of curves, in the order of the legend.
        variants: Their variants.
        seeds: Seeds that are shown; all unless given.
        width: The chart's width.
        height: Its height in pixels.
        legend: Whether it has a legend.

    Returns:
        The chart.

    >>> from picojoule.report import Curve, Point, rows
    >>> curve = Curve("Ω_syn", "p = 1", (Point(0.2, 0.8, 8.0),), (Point(1.0, 0.9),))
    >>> chart = tradeoff(rows.curve_rows([curve]), ["Ω_syn"], ["p = 1"])
    >>> len(chart.layer) > 1
    True
    """
    colour, shape, dash = _marks(rows, kinds, variants, legend)
    base = alt.Chart({"values": list(rows)}).transform_filter("indexof(seeds, datum.seed) >= 0")
    without = base.transform_filter(f"datum.kind == '{BASELINE}'")
    penalised = base.transform_filter(_SHOWN)
    chart: alt.LayerChart = alt.LayerChart(
        layer=[
            *_baseline_band(without),
            *_curves(penalised, colour, shape, dash),
            without.mark_point(clip=True, filled=True, size=70, shape="diamond", opacity=0.9, **_GROWN).encode(
                x=_x("energy"), y=_y("accuracy"), color=colour, tooltip=_RUN
            ),
            _runs(penalised, colour, shape),
            base.transform_filter("chosen != '' && datum.run == chosen")
            .transform_filter(f"datum.kind == '{BASELINE}' || ({_SHOWN})")
            .mark_point(clip=True, size=260, strokeWidth=2.5, shape="circle", aria=False)
            .encode(x=_x("energy"), y=_y("accuracy"), color=colour),
        ],
        width=width,
        height=height,
    ).add_params(*_parameters(rows, kinds, variants, seeds))
    return chart


def extent(rows: Sequence[Row]) -> tuple[float, float, float]:
    """Find how far the axes go, with room for whole marks.

    Args:
        rows: What is drawn.

    Returns:
        The lowest and the highest accuracy, and the furthest energy.

    >>> extent([{"energy": 1.0, "accuracy": 0.5}, {"energy": 0.25, "accuracy": 0.25}])
    (0.24, 0.51, 1.04)
    """
    accuracies = [row["accuracy"] for row in rows] or [0.0, 1.0]
    low, high = min(accuracies), max(accuracies)
    room = 0.04 * max(high - low, 0.05)
    return low - room, high + room, 1.04 * max([1.0, *(row["energy"] for row in rows)])


def _parameters(
    rows: Sequence[Row], kinds: Sequence[str], variants: Sequence[str], seeds: Sequence[str]
) -> list[alt.Parameter]:
    lowest, highest, furthest = extent(rows)
    return [
        alt.param(name="kinds", value=list(kinds)),
        alt.param(name="variants", value=list(variants)),
        alt.param(name="seeds", value=list(seeds) or sorted({str(row["seed"]) for row in rows})),
        alt.param(name="lowest", value=lowest),
        alt.param(name="highest", value=highest),
        alt.param(name="furthest", value=furthest),
        alt.param(name="chosen", value=""),
    ]


def _marks(
    rows: Sequence[Row], kinds: Sequence[str], variants: Sequence[str], legend: bool
) -> tuple[alt.Color, alt.ShapeValue, alt.StrokeDash]:
    """Choose colours by kind, and marks and dashes by variant."""
    named = {BASELINE: GREY, **colours(kinds)}
    told = [kind for kind in named if kind != BASELINE or any(row["kind"] == BASELINE for row in rows)]
    look = looks(variants)
    colour = alt.Color(
        "kind:N",
        title="penalty",
        legend=alt.Legend(symbolType="circle", symbolOpacity=1, values=told) if legend else None,
        scale=alt.Scale(domain=list(named), range=list(named.values())),
    )
    # Values and no scale: its legend would be merged with that of the dashes, which show only on lines.
    shape = alt.ShapeValue(
        SHAPES[0],
        condition=[{"test": f"datum.variant == {json.dumps(v)}", "value": form} for v, (form, _) in look.items()],
    )
    dash = alt.StrokeDash(
        "variant:N",
        title=None,
        legend=alt.Legend(symbolType="stroke", symbolSize=600, symbolStrokeWidth=2) if legend else None,
        scale=alt.Scale(domain=list(look), range=[dashes for _, dashes in look.values()]),
    )
    return colour, shape, dash


def _x(field: str) -> alt.X:
    axis = alt.Axis(format="%", tickCount=10, labelFlush=False)
    # A little room to the left, so that the mark of a network that is nearly silent is whole.
    scale = alt.Scale(domain=alt.ExprRef("[-0.015 * furthest, furthest]"), nice=False)
    return alt.X(f"{field}:Q", title="energy relative to the baseline", axis=axis, scale=scale)


def _y(field: str) -> alt.Y:
    scale = alt.Scale(domain=alt.ExprRef("[lowest, highest]"), zero=False, nice=False)
    return alt.Y(f"{field}:Q", title="accuracy", axis=alt.Axis(format="%"), scale=scale)


def _baseline_band(without: alt.Chart) -> list[alt.Chart]:
    """Draw the mean accuracy of the baseline across, and one deviation to each side of it."""
    plain = _means(without, ["kind"])
    band = plain.transform_filter("datum.n > 1").mark_rect(clip=True, opacity=0.16, color=GREY, aria=False)
    line = plain.mark_rule(clip=True, color=GREY, strokeDash=[3, 3], strokeWidth=1.5, aria=False)
    return [band.encode(y=_y("y1"), y2="y2:Q"), line.encode(y=_y("y"))]


def _curves(penalised: alt.Chart, colour: alt.Color, shape: alt.ShapeValue, dash: alt.StrokeDash) -> list[alt.Chart]:
    """Draw lines through the means, their deviations both ways, and their marks."""
    means = _means(penalised, _LEVEL)
    several = means.transform_filter("datum.n > 1")
    deviation = several.mark_rule(clip=True, opacity=0.7, strokeWidth=1.5)
    return [
        means.mark_line(clip=True, strokeWidth=2).encode(
            x=_x("x"), y=_y("y"), color=colour, strokeDash=dash, order="rank:Q"
        ),
        deviation.encode(x=_x("x"), y=_y("y1"), y2="y2:Q", color=colour),
        deviation.encode(x=_x("x1"), x2="x2:Q", y=_y("y"), color=colour),
        several.mark_point(clip=True, filled=True, size=75, opacity=1, **_GROWN).encode(
            x=_x("x"), y=_y("y"), color=colour, shape=shape, tooltip=_MEAN
        ),
    ]


def _runs(penalised: alt.Chart, colour: alt.Color, shape: alt.ShapeValue) -> alt.Chart:
    """Draw single runs, small ones where a mean stands among them."""
    chart: alt.Chart = (
        penalised.transform_joinaggregate(n="count()", groupby=_LEVEL)
        .mark_point(clip=True, filled=True, **_GROWN)
        .encode(
            x=_x("energy"),
            y=_y("accuracy"),
            color=colour,
            shape=shape,
            size=alt.condition("datum.n > 1", alt.value(16), alt.value(60)),
            opacity=alt.condition("datum.n > 1", alt.value(0.45), alt.value(0.9)),
            tooltip=_RUN,
        )
    )
    return chart


def _means(runs: alt.Chart, groups: list[str | alt.FieldName]) -> alt.Chart:
    """Aggregate to means `x` and `y` of energy and accuracy, one deviation to each side of them, and both in words."""

    def words(axis: str) -> str:
        spread = f"(datum.n > 1 ? ' ± ' + format(datum.d{axis}, '.2%') : '')"
        return f"format(datum.{axis}, '.2%') + {spread}"

    chart: alt.Chart = runs.transform_aggregate(
        n="count()",
        x="mean(energy)",
        y="mean(accuracy)",
        dx="stdev(energy)",
        dy="stdev(accuracy)",
        groupby=groups,
    ).transform_calculate(
        **{  # one seed has no deviation
            f"{axis}{end}": f"datum.{axis} {sign} (datum.n > 1 ? datum.d{axis} : 0)"
            for axis in "xy"
            for end, sign in ((1, "-"), (2, "+"))
        },
        several="datum.n + ' seeds'",
        energy=words("x"),
        accuracy=words("y"),
    )
    return chart
