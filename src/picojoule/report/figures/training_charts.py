"""Charts of how a training went."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import altair as alt

from picojoule.report.figures.axes import Width, empty_chart
from picojoule.report.figures.palette import GREY, PURPLE, SKY, VERMILION
from picojoule.report.rows import Row

_BOTH = {"training": VERMILION, "validation": SKY}  # no penalty's colours
TRAINING = {
    "loss": ("cross-entropy", "", _BOTH),
    "accuracy": ("accuracy", "%", _BOTH),
    "energy": ("energy per image (µJ)", "", {"validation": SKY, "wanted by the budget": GREY}),
    "strength": ("strength λ'", "", {"strength": PURPLE}),
}
"""What is drawn of a training: the title of the axis, its format, and the lines with their colours."""

_EPOCHS = alt.Axis(format="d", labelExpr="datum.value % 1 ? '' : datum.label", grid=False, ticks=False)
"""Whole numbers only: with few epochs, ticks come in halves, whatever `tickMinStep` says."""


def training(rows: Sequence[Row], key: str, width: Width = 300, height: int = 200) -> alt.Chart:
    """Draw one figure of a training over the epochs.

    Args:
        rows: Rows with `epoch`, `series` and `value`.
        key: Which figure: a key of TRAINING.
        width: The chart's width.
        height: Its height in pixels.

    Returns:
        A line for each series.

    >>> chart = training([{"epoch": 1, "series": "training", "value": 2.3}], "loss")
    >>> chart.to_dict()["encoding"]["x"]["title"]
    'epoch'
    """
    what, unit, lines = TRAINING[key]
    there = {row["series"] for row in rows} or lines.keys()
    lines = {name: colour for name, colour in lines.items() if name in there}
    chart: alt.Chart = (
        empty_chart(rows, width, height)
        .mark_line(point=alt.OverlayMarkDef(size=20))
        .encode(
            x=alt.X("epoch:Q", title="epoch", axis=_EPOCHS, scale=alt.Scale(zero=False, nice=False)),
            y=alt.Y("value:Q", title=what, axis=alt.Axis(format=unit) if unit else alt.Axis()),
            color=alt.Color(
                "series:N",
                title=None,
                scale=alt.Scale(domain=list(lines), range=list(lines.values())),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                *(alt.Tooltip("series:N"), alt.Tooltip("epoch:Q")),
                alt.Tooltip("value:Q", title=what, format=unit or ".4"),
            ],
        )
    )
    return chart


def training_curves(rows: Mapping[str, Sequence[Row]]) -> alt.ConcatChart:
    """Draw loss, accuracy, energy and strength of a training, two charts in a row.

    Args:
        rows: What `training_rows` gives.

    Returns:
        A chart for each figure that is known.

    >>> from picojoule.report import rows
    >>> len(training_curves(rows.training_rows(finished_run.metrics)).concat)  # of a run that `fit` returned
    4
    """
    charts = (training(rows[key], key) for key in TRAINING if rows[key])
    together: alt.ConcatChart = alt.concat(*charts, columns=2).resolve_scale(color="independent")  # each its own lines
    return together
