"""What the charts by layer and by epoch have in common."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import altair as alt

from picojoule.report.rows import Row

Width = int | Literal["container"]
"""Pixels, or as wide as the chart's place on a page."""


def empty_chart(rows: Sequence[Row], width: Width, height: int) -> alt.Chart:
    """Begin a chart.

    Args:
        rows: What it draws.
        width: Its width.
        height: Its height in pixels.

    Returns:
        A chart without marks.
    """
    return alt.Chart({"values": list(rows)}, width=width, height=height)


def layer_axis() -> alt.X:
    """Make the axis of layers, in the order of the rows.

    Returns:
        The encoding of the horizontal axis.
    """
    return alt.X("layer:N", sort=None, title=None, axis=alt.Axis(labelAngle=-40, labelLimit=110))
