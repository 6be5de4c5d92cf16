"""Charts by layer: energy, firing rate, and the shares of energy and penalties."""

from __future__ import annotations

from collections.abc import Sequence

import altair as alt

from picojoule.report.figures.axes import Width, empty_chart, layer_axis
from picojoule.report.figures.palette import GREY, KIND_COLOURS, SKY
from picojoule.report.rows import Row


def energy_by_layer(rows: Sequence[Row], networks: Sequence[str], width: Width = 320, height: int = 230) -> alt.Chart:
    """Draw the energy of each layer as bars, one per network, side by side.

    Args:
        rows: Rows with `network`, `layer` and `energy` (microjoules), in the order of the layers.
        networks: Names of the networks, in their order.
        width: The chart's width.
        height: Its height in pixels.

    Returns:
        The chart.

    >>> rows = [{"network": "a", "layer": "spike1", "energy": 2.5, "rate": 0.1}]
    >>> energy_by_layer(rows, ["a"]).to_dict()["encoding"]["y"]["title"]
    'energy per image (µJ)'
    """
    return _bars(rows, networks, alt.Y("energy:Q", title="energy per image (µJ)"), width, height)


def rate_by_layer(rows: Sequence[Row], networks: Sequence[str], width: Width = 320, height: int = 230) -> alt.Chart:
    """Draw the firing rate of each layer as bars, one per network, side by side.

    Args:
        rows: Rows with `network`, `layer` and `rate`, which is None for a relay.
        networks: Names of the networks, in their order.
        width: The chart's width.
        height: Its height in pixels.

    Returns:
        The chart.

    >>> rows = [{"network": "a", "layer": "spike1", "energy": 2.5, "rate": 0.1}]
    >>> rate_by_layer(rows, ["a"]).to_dict()["encoding"]["y"]["title"]
    'firing rate'
    """
    return _bars(rows, networks, alt.Y("rate:Q", title="firing rate", axis=alt.Axis(format="%")), width, height)


def share_by_layer(rows: Sequence[Row], networks: Sequence[str], width: Width = 480, height: int = 230) -> alt.Chart:
    """Draw each layer's share of the energy of its network as bars, one per network, side by side.

    Args:
        rows: Rows with `network`, `layer`, `energy`, `rate` and `share`.
        networks: Names of the networks, in their order.
        width: The chart's width.
        height: Its height in pixels.

    Returns:
        The chart.

    Example:
        >>> row = {"network": "baseline", "layer": "spike1", "energy": 1.0, "rate": 0.1, "share": 1.0}
        >>> share_by_layer([row], ["baseline"]).to_dict()["encoding"]["y"]["field"]
        'share'
    """
    y = alt.Y("share:Q", title="share of the energy", axis=alt.Axis(format="%"))
    return _bars(rows, networks, y, width, height)


def layers(rows: Sequence[Row], networks: Sequence[str]) -> alt.HConcatChart:
    """Draw energy and firing rate by layer, side by side.

    Args:
        rows: Rows with `network`, `layer`, `energy` and `rate`.
        networks: Names of the networks, in their order.

    Returns:
        Two charts.

    >>> rows = [{"network": "a", "layer": "spike1", "energy": 2.5, "rate": 0.1}]
    >>> len(layers(rows, ["a"]).hconcat)
    2
    """
    return alt.hconcat(energy_by_layer(rows, networks), rate_by_layer(rows, networks))


def penalty_by_layer(rows: Sequence[Row], width: Width = 480, height: int = 230, legend: bool = True) -> alt.Chart:
    """Draw each layer's share of the energy and of every penalty: Ω_syn stands as high as the energy.

    Args:
        rows: Rows with `layer`, `term` ("energy", "Ω_syn", "Ω_total" or "Ω_balance") and `share`.
        width: The chart's width.
        height: Its height in pixels.
        legend: Whether it has a legend.

    Returns:
        The chart.

    >>> chart = penalty_by_layer([{"layer": "spike1", "term": "Ω_syn", "share": 1.0}])
    >>> chart.to_dict()["encoding"]["y"]["title"]
    'share of the total'
    """
    terms = {"energy": GREY, **KIND_COLOURS}
    chart: alt.Chart = (
        empty_chart(rows, width, height)
        .mark_bar()
        .encode(
            x=layer_axis(),
            xOffset=alt.XOffset("term:N", sort=list(terms)),
            y=alt.Y("share:Q", title="share of the total", axis=alt.Axis(format="%")),
            color=alt.Color(
                "term:N",
                title=None,
                scale=alt.Scale(domain=list(terms), range=list(terms.values())),
                legend=alt.Legend(orient="top") if legend else None,
            ),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("term:N"), alt.Tooltip("share:Q", format=".2%")],
        )
    )
    return chart


def _bars(rows: Sequence[Row], networks: Sequence[str], y: alt.Y, width: Width, height: int) -> alt.Chart:
    bars = [_network_colour(name, first=name == networks[0] and len(networks) > 1) for name in networks]
    chart: alt.Chart = (
        empty_chart(rows, width, height)
        .mark_bar()
        .encode(
            x=layer_axis(),
            xOffset=alt.XOffset("network:N", sort=list(networks)),
            y=y,
            color=alt.Color(
                "network:N",
                title=None,
                scale=alt.Scale(domain=list(networks), range=bars),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                *(alt.Tooltip("network:N"), alt.Tooltip("layer:N")),
                *(alt.Tooltip("energy:Q", format=".4", title="µJ"), alt.Tooltip("rate:Q", format=".2%")),
            ],
        )
    )
    return chart


def _network_colour(name: str, first: bool) -> str:
    """Choose the colour of its penalty; the first of several is what they are measured against."""
    kind = next((kind for kind in KIND_COLOURS if kind in name), None)
    return GREY if first else KIND_COLOURS[kind] if kind else SKY
