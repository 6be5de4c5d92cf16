"""The raster: a point for each spike."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt
import torch

from picojoule.errors import PicojouleError
from picojoule.report.figures.palette import BLUE
from picojoule.report.plot.layers import checked_sample, chosen_layers, spikes_of
from picojoule.spikes.activity import Activity

MOST_POINTS = 50_000
"""Spikes in one raster; a page with more is slow to open and shows a grey area."""


def raster(
    activity: Activity,
    layers: Iterable[str] | None = None,
    *,
    sample: int = 0,
    neurons: int = 100,
    width: int = 420,
) -> alt.VConcatChart:
    """Draw a point for each spike: over time steps for one sample, or over samples where there is one step.

    A layer with more neurons than are shown is thinned out evenly, always in the same way, so that two rasters of a
    network show the same neurons.

    Args:
        activity: What `picojoule.watch` recorded.
        layers: The layers from top to bottom; None is all that have neurons.
        sample: Which sample is shown, where there are several steps.
        neurons: How many neurons of each layer are shown at most.
        width: The width in pixels.

    Returns:
        One chart for each layer, below each other.

    Raises:
        PicojouleError: If there is no such layer or sample, or there are too many spikes for one picture.

    >>> import picojoule as pj
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), pj.Spike())
    >>> with pj.watch(net) as activity:
    ...     _ = net(torch.randn(5, 4))
    >>> chart = raster(activity)
    >>> len(chart.vconcat)
    1
    """
    names = chosen_layers("a raster", activity, layers)
    if type(neurons) is not int or neurons < 1:
        raise PicojouleError(f"neurons={neurons!r} is not a number of neurons to show: give 1 or more")
    over_time = activity.steps > 1
    charts = []
    points = samples = 0
    for name in names:
        spikes = spikes_of(activity, name).flatten(2)  # [T, B, N]
        samples = spikes.shape[1]
        fired = spikes[:, checked_sample(sample, samples)] if over_time else spikes[0]  # [T or B, N]
        shown = _thinned(fired.shape[1], neurons)
        rows = [
            {"at": at, "neuron": int(shown[row]), "spikes": count}
            for at, row, count in zip(*_nonzero(fired[:, shown]), strict=True)
        ]
        points += len(rows)
        if points > MOST_POINTS:
            raise PicojouleError(
                f"a raster of more than {MOST_POINTS:,} spikes shows nothing: choose fewer layers, neurons or samples"
            )
        title = f"{name}: {len(shown)} of {fired.shape[1]:,} neurons, {fired.count_nonzero() / fired.numel():.1%} fire"
        across = "step" if over_time else "sample"
        charts.append(_chart(rows, title, across, (len(fired), fired.shape[1]), width))
    shown_of = f"sample {sample}, step by step" if over_time else f"{samples:,} samples side by side"
    heading = alt.Title("Raster of spikes", subtitle=f"{shown_of}; a point for each spike", anchor="start")
    chart: alt.VConcatChart = alt.vconcat(*charts, title=heading)
    return chart


def _thinned(count: int, most: int) -> torch.Tensor:
    """Choose which of the neurons are shown, spread evenly."""
    shown: torch.Tensor = torch.linspace(0, count - 1, min(count, most)).round().long().unique()
    return shown


def _nonzero(fired: torch.Tensor) -> tuple[list[int], list[int], list[float]]:
    at, row = fired.nonzero(as_tuple=True)
    return at.tolist(), row.tolist(), fired[at, row].tolist()


def _chart(rows: list[dict[str, float]], title: str, across: str, extent: tuple[int, int], width: int) -> alt.Chart:
    spans = [alt.Scale(domain=[-0.5, count - 0.5], nice=False) for count in extent]
    x = alt.X("at:Q", title=across, scale=spans[0], axis=alt.Axis(tickMinStep=1))
    chart: alt.Chart = (
        alt.Chart({"values": rows}, width=width, height=120, title=alt.Title(title, anchor="start", fontSize=11))
        .mark_tick(color=BLUE, orient="vertical", thickness=2, size=3)
        .encode(
            x=x,
            y=alt.Y("neuron:Q", title="neuron", scale=spans[1], axis=alt.Axis(tickMinStep=1, tickCount=3)),
            tooltip=[alt.Tooltip("at:Q", title=across), alt.Tooltip("neuron:Q"), alt.Tooltip("spikes:Q")],
        )
    )
    return chart
