"""Where in its feature maps a network fires, and where its energy goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import altair as alt
import torch
from torch import Tensor

from picojoule.energy.hardware import DEFAULT, PriceList
from picojoule.energy.hardware import get as price_list
from picojoule.errors import PicojouleError
from picojoule.report.plot.layers import checked_sample, chosen_layers, spikes_of
from picojoule.spikes.activity import Activity
from picojoule.synapses.table import Synapses

_COLUMNS = 3
_SIDE = 150
"""Pixels of a map's longer side."""


def rate_maps(
    activity: Activity, layers: Iterable[str] | None = None, *, sample: int | None = None
) -> alt.TopLevelMixin:
    """Draw the firing rate at each place of the feature maps, the mean over channels and steps.

    Args:
        activity: What `picojoule.watch` recorded.
        layers: The layers; None is all that have neurons in maps [C, H, W].
        sample: One of the samples; None is the mean of all.

    Returns:
        A map for each layer.

    Raises:
        PicojouleError: If there is no such layer or sample, or a layer has no maps.

    >>> import picojoule as pj
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), pj.Spike())
    >>> with pj.watch(net) as activity:
    ...     _ = net(torch.randn(2, 1, 6, 6))
    >>> len(rate_maps(activity).concat)
    1
    """
    return _maps(
        "rate maps", activity, layers, sample, lambda name, spikes: spikes.mean(0), "spikes per neuron and step", ".2%"
    )


def energy_maps(
    activity: Activity,
    synapses: Synapses,
    layers: Iterable[str] | None = None,
    *,
    sample: int | None = None,
    hardware: str | PriceList = DEFAULT,
) -> alt.TopLevelMixin:
    """Draw the energy that the spikes of each place of the feature maps cost, summed over channels and steps.

    What is drawn is E = Σ_t Σ_c c_{c,h,w} s_{c,h,w,t}, with the price c of a spike: the maps of a layer add up to its
    line in the energy report.

    Args:
        activity: What `picojoule.watch` recorded.
        synapses: What `picojoule.trace` gave for the network.
        layers: The layers; None is all that have maps [C, H, W], max pools that pass spikes on among them.
        sample: One of the samples; None is the mean of all.
        hardware: The price list.

    Returns:
        A map for each layer, in picojoules.

    Raises:
        PicojouleError: If there is no such layer or sample, a layer has no maps, or the network is another one.

    >>> import picojoule as pj
    >>> net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), pj.Spike(), torch.nn.Conv2d(4, 2, 3))
    >>> synapses = pj.trace(net, torch.zeros(1, 1, 6, 6))
    >>> with pj.watch(net) as activity:
    ...     _ = net(torch.randn(2, 1, 6, 6))
    >>> chart = energy_maps(activity, synapses)
    """
    if not isinstance(synapses, Synapses):
        raise PicojouleError(f"energy maps need the Synapses that picojoule.trace gives, not {type(synapses).__name__}")
    prices = price_list(hardware)

    def energy(name: str, spikes: Tensor) -> Tensor:
        if name not in synapses:
            raise PicojouleError(f"the layer {name!r} was watched, but not traced: trace the network that is watched")
        if tuple(synapses[name].shape) != tuple(spikes.shape[1:]):
            raise PicojouleError(
                f"the layer {name!r} emitted maps of shape {tuple(spikes.shape[1:])}, but {synapses[name].shape} was "
                "traced: trace the network with an example of the size it is used with"
            )
        return 1e12 * spikes.double().sum(0) * prices(synapses[name])

    if layers is None:  # those of which the price is known, and a map can be drawn
        layers = [name for name in activity if name in synapses and len(synapses[name].shape) == 3] or None
    title, form = "energy per sample (pJ)", ",.4~r"
    return _maps("energy maps", activity, layers, sample, energy, title, form, total=True)


def _maps(
    what: str,
    activity: Activity,
    layers: Iterable[str] | None,
    sample: int | None,
    value: Callable[[str, Tensor], Tensor],
    title: str,
    form: str,
    total: bool = False,
) -> alt.TopLevelMixin:
    """Draw a map for each layer; `value` turns the spikes [T, C, H, W] of a sample into values [C, H, W]."""
    charts = []
    for name in chosen_layers(what, activity, layers):
        spikes = spikes_of(activity, name)
        if spikes.dim() != 5:
            if layers is not None:
                raise PicojouleError(
                    f"the layer {name!r} has no feature maps [C, H, W], it emits {tuple(spikes.shape[2:])}: choose "
                    "other layers, or take a raster"
                )
            continue
        if sample is not None:
            at = checked_sample(sample, spikes.shape[1])
            spikes = spikes[:, at : at + 1]
        by_sample = torch.stack([value(name, spikes[:, b]) for b in range(spikes.shape[1])]).mean(0)
        places = by_sample.sum(0) if total else by_sample.mean(0)
        charts.append(_map(places, name, title, form))
    if not charts:
        raise PicojouleError(
            f"{what} need a layer with feature maps [C, H, W], and this network has none: take a raster"
        )
    shown = "mean of all samples" if sample is None else f"sample {sample}"
    heading = alt.Title(what.capitalize(), subtitle=f"{shown}, each layer on its own scale", anchor="start")
    chart: alt.TopLevelMixin = (
        alt.concat(*charts, columns=_COLUMNS).resolve_scale(color="independent").properties(title=heading)
    )
    return chart


def _map(places: Tensor, name: str, title: str, form: str) -> alt.Chart:
    height, width = places.shape
    scale = _SIDE / max(height, width)
    greatest = alt.Undefined if places.any() else 1  # a scale from 0 to 0 would give nothing the colour of its middle
    rows = [
        {"row": row, "column": column, "value": value}
        for row, line in enumerate(places.tolist())
        for column, value in enumerate(line)
    ]
    chart: alt.Chart = (
        alt.Chart(
            {"values": rows},
            width=max(20, round(width * scale)),
            height=max(20, round(height * scale)),
            title=alt.Title(f"{name} ({height} × {width})", fontSize=11),
        )
        .mark_rect()
        .encode(
            x=alt.X("column:O", axis=None),
            y=alt.Y("row:O", axis=None),
            color=alt.Color(
                "value:Q",
                title=title,
                scale=alt.Scale(scheme="viridis", domainMin=0, domainMax=greatest),
                legend=alt.Legend(orient="bottom", format=form, gradientLength=_SIDE, titleFontSize=9),
            ),
            tooltip=[alt.Tooltip("row:O"), alt.Tooltip("column:O"), alt.Tooltip("value:Q", format=form, title=title)],
        )
    )
    return chart
