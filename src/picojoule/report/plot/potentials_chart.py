"""How the potentials lie around the threshold: a network with many just below it fires at the slightest change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

import altair as alt
import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError, unknown
from picojoule.neurons.spike import Spike
from picojoule.report.figures.palette import SKY, VERMILION
from picojoule.spikes.spiking import spiking_modules, unwrap

BINS = 60
_TAIL = 0.005
"""The share of the potentials that is left out at either end, so that single outliers do not squeeze the rest."""


@dataclass(frozen=True)
class Potentials:
    """The potentials of every `picojoule.Spike` of a network in one `watch_potentials` block, with their thresholds.

    Attributes:
        values: A flat tensor by the layer's name.
        thresholds: The threshold by the layer's name.
    """

    values: Mapping[str, Tensor] = field(default_factory=dict)
    thresholds: Mapping[str, float] = field(default_factory=dict)


@contextmanager
def watch_potentials(model: nn.Module) -> Iterator[Potentials]:
    """Record what enters every `picojoule.Spike` while the block runs: there, the input is the potential.

    Neurons with a memory (`IF`, `LIF` and those of other frameworks) keep their potential to themselves.

    Args:
        model: The network.

    Yields:
        The potentials by the layer's name, complete when the block ends.

    Raises:
        PicojouleError: If the network has no `Spike`.

    >>> import picojoule as pj
    >>> net = nn.Sequential(nn.Linear(4, 8), pj.Spike())
    >>> with watch_potentials(net) as found:
    ...     _ = net(torch.randn(5, 4))
    >>> found.values["1"].shape, found.thresholds
    (torch.Size([40]), {'1': 1.0})
    """
    layers = {name: m for name, m in spiking_modules(unwrap(model)).items() if isinstance(m, Spike)}
    if not layers:
        raise PicojouleError(
            f"{type(model).__name__} has no picojoule.Spike, whose input is its potential: neurons with a memory keep "
            "theirs to themselves, so take a raster or rates of them"
        )
    calls: dict[str, list[Tensor]] = {name: [] for name in layers}
    values: dict[str, Tensor] = {}
    found = Potentials(values, {name: float(layer.threshold) for name, layer in layers.items()})
    handles = []
    try:
        for name, layer in layers.items():
            note = calls[name].append
            handles.append(
                layer.register_forward_pre_hook(
                    lambda _, args, note=note: note(args[0].detach().float().flatten().cpu())
                )
            )
        yield found
    finally:
        for handle in handles:
            handle.remove()
    values.update({name: torch.cat(parts) for name, parts in calls.items() if parts})


def potentials(found: Potentials, layer: str | None = None, *, width: int = 220) -> alt.TopLevelMixin:
    """Draw how the potentials of each layer are spread, with the threshold as a line.

    Args:
        found: What `watch_potentials` recorded.
        layer: One layer; None is all of them.
        width: The width of each chart in pixels.

    Returns:
        A histogram for each layer.

    Raises:
        PicojouleError: If there is no such layer, or nothing was recorded.

    >>> found = Potentials({"spike1": torch.randn(1000)}, {"spike1": 1.0})
    >>> len(potentials(found).concat)
    1
    """
    if not isinstance(found, Potentials) or not found.values:
        raise PicojouleError(
            "no potentials were recorded: run the network inside `with watch_potentials(net) as found`"
        )
    if layer is not None and layer not in found.values:
        raise unknown("layer", str(layer), list(found.values))
    names = [layer] if layer is not None else list(found.values)
    charts = [_histogram(name, found.values[name], found.thresholds[name], width) for name in names]
    heading = alt.Title(
        "Potentials", subtitle="the line is the threshold, from which on a neuron fires", anchor="start"
    )
    chart: alt.TopLevelMixin = alt.concat(*charts, columns=3).properties(title=heading)
    return chart


def _histogram(name: str, values: Tensor, threshold: float, width: int) -> alt.LayerChart:
    values = values[values.isfinite()]
    ordered = values.sort().values
    cut = int(len(ordered) * _TAIL)
    low, high = float(ordered[cut]), float(ordered[len(ordered) - 1 - cut])
    low, high = min(low, threshold - 0.1), max(high, threshold + 0.1)
    counts = torch.histc(values, BINS, low, high)
    edge = (high - low) / BINS
    rows = [
        {"from": low + i * edge, "to": low + (i + 1) * edge, "share": count / len(values)}
        for i, count in enumerate(counts.tolist())
    ]
    fires = float((values >= threshold).float().mean())
    bars = (
        alt.Chart({"values": rows}, width=width, height=130, title=alt.Title(f"{name}: {fires:.1%} fire", fontSize=11))
        .mark_bar(color=SKY)
        .encode(
            x=alt.X("from:Q", title="potential", bin=alt.BinParams(binned=True)),
            x2="to:Q",
            y=alt.Y("share:Q", title="share of neurons", axis=alt.Axis(format="%", tickCount=4)),
        )
    )
    rule = (
        alt.Chart({"values": [{"threshold": threshold}]})
        .mark_rule(color=VERMILION, strokeWidth=2)
        .encode(x="threshold:Q", tooltip=[alt.Tooltip("threshold:Q")])
    )
    return alt.LayerChart(layer=[bars, rule])
