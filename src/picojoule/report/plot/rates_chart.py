"""Firing rates and dead neurons, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable

import altair as alt

from picojoule.report.figures.palette import GREY, SKY
from picojoule.report.plot.layers import chosen_layers, spikes_of
from picojoule.spikes.activity import Activity

_BAR, _NAME = 20, 260
"""Pixels: the height of a layer's bar, and the most that its name takes."""


def rates(activity: Activity, layers: Iterable[str] | None = None, *, width: int = 260) -> alt.HConcatChart:
    """Draw the firing rate and the share of dead neurons of each layer.

    A rate is spikes per neuron and step. A neuron is dead if it is silent in every step of every sample that was
    watched: with few samples many are.

    Args:
        activity: What `picojoule.watch` recorded.
        layers: The layers; None is all that have neurons.
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
    rows: list[dict[str, object]] = []
    samples = 0
    for name in chosen_layers("a chart of rates", activity, layers):
        spikes = spikes_of(activity, name)
        samples = spikes.shape[1]
        dead = (spikes == 0).flatten(0, 1).all(0)
        rows.append({"layer": name, "rate": float(spikes.mean()), "dead": float(dead.float().mean())})
    shown = "in the one sample" if samples == 1 else f"in all {samples:,} samples"
    heading = alt.Title(
        "Firing rates and dead neurons", subtitle=f"a dead neuron is silent in every step {shown}", anchor="start"
    )
    chart: alt.HConcatChart = alt.hconcat(
        _bars(rows, "rate", "spikes per neuron and step", SKY, width),
        _bars(rows, "dead", "share of dead neurons", GREY, width, named=False),
        title=heading,
    )
    return chart


def _bars(
    rows: list[dict[str, object]], key: str, title: str, colour: str, width: int, named: bool = True
) -> alt.Chart:
    names = alt.Axis(labelLimit=_NAME) if named else None
    chart: alt.Chart = (
        alt.Chart({"values": rows}, width=width, height=alt.Step(_BAR))
        .mark_bar(color=colour)
        .encode(
            x=alt.X(f"{key}:Q", title=title, axis=alt.Axis(format="%", tickCount=5)),
            y=alt.Y("layer:N", sort=None, title=None, axis=names),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip(f"{key}:Q", format=".2%", title=title)],
        )
    )
    return chart
