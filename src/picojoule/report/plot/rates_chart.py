"""Firing rates and dead neurons, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt

from picojoule.report.figures.axes import empty_chart, layer_axis
from picojoule.report.figures.palette import GREY, SKY
from picojoule.report.plot.layers import chosen_layers, spikes_of
from picojoule.spikes.activity import Activity


def rates(activity: Activity, layers: Iterable[str] | None = None, *, width: int = 320) -> alt.HConcatChart:
    """Draw the firing rate and the share of dead neurons of each layer.

    A rate is spikes per neuron and step. A neuron is dead if it is silent in every step of every sample that was
    watched: with few samples many are.

    Args:
        activity: What `picojoule.watch` recorded.
        layers: The layers; None is all of them.
        width: The width of each of the two charts in pixels.

    Returns:
        Two charts side by side.

    Raises:
        PicojouleError: If there is no such layer.

    >>> import torch, picojoule as pj
    >>> net = torch.nn.Sequential(torch.nn.Linear(4, 8), pj.Spike())
    >>> with pj.watch(net) as activity:
    ...     _ = net(torch.zeros(5, 4))
    >>> len(rates(activity).hconcat)
    2
    """
    rows = []
    for name in chosen_layers("a chart of rates", activity, layers):
        spikes = spikes_of(activity, name)
        dead = (spikes == 0).flatten(0, 1).all(0)
        rows.append({"layer": name, "rate": float(spikes.mean()), "dead": float(dead.float().mean())})
    return alt.hconcat(_bars(rows, "rate", "firing rate", SKY, width), _bars(rows, "dead", "dead neurons", GREY, width))


def _bars(rows: list[dict[str, object]], key: str, title: str, colour: str, width: int) -> alt.Chart:
    chart: alt.Chart = (
        empty_chart(rows, width, 200)
        .mark_bar(color=colour)
        .encode(
            x=layer_axis(),
            y=alt.Y(f"{key}:Q", title=title, axis=alt.Axis(format="%")),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip(f"{key}:Q", format=".2%", title=title)],
        )
    )
    return chart
