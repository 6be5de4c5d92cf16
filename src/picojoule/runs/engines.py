"""The two engines that answer images with a trained network, and what they count of each image.

The `events` engine walks only spikes and counts the operations that it does, which are those of exact ψ; by another ψ,
and for `dense`, which is PyTorch, the meter counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor, nn

from picojoule.deploy import events
from picojoule.energy.hardware import PriceList
from picojoule.energy.meter import EnergyMeter
from picojoule.neurons.time_steps import as_batch, logits_of
from picojoule.spikes.activity import Activity
from picojoule.spikes.watch import watch
from picojoule.synapses.table import Synapses

EngineName = Literal["events", "dense"]
"""What computes: the event-driven engine, or PyTorch."""


class Readout(NamedTuple):
    """What an engine found for one image."""

    logits: Tensor
    synops: float
    """Synaptic operations; a whole number with exact ψ."""
    joules: float
    """What they cost."""
    spikes: dict[str, int]
    """By layer."""


Engine: TypeAlias = Callable[[Tensor], Callable[[], Readout]]
"""Computes one image [1, C, H, W]; what it returns reads out the findings, which is no part of the network's time."""


def build_engine(name: EngineName, model: nn.Module, example: Tensor, synapses: Synapses, prices: PriceList) -> Engine:
    """Make a network ready to answer images.

    Args:
        name: "events" or "dense".
        model: The network, in evaluation mode.
        example: A few images as they are given to it.
        synapses: Its synapses, by which spikes are counted.
        prices: The price list.

    Returns:
        The engine.

    Raises:
        PicojouleError: If the network has something that the event-driven engine cannot compute.
    """
    return (
        _events_engine(model, example, synapses, prices) if name == "events" else _dense_engine(model, synapses, prices)
    )


def _events_engine(model: nn.Module, example: Tensor, synapses: Synapses, prices: PriceList) -> Engine:
    engine = events.compile(model, example)
    # Where synapses are counted as they are, and one price holds for all, the engine's own count is the bill.
    flat = (
        synapses.psi == "exact"
        and not (synapses.unit_synapses or synapses.made)
        and all(
            prices.per_spike(layer) == 0 and all(prices.per_synop(t) == prices.accumulate for t in layer.targets)
            for layer in synapses.values()
        )
    )

    def answer(x: Tensor) -> Callable[[], Readout]:
        result = engine(x)

        def read_out() -> Readout:
            synops = int(result.synops[0])
            spent = (synops, synops * prices.accumulate) if flat else _count(synapses, prices, engine.watch(x))
            spikes = {name: int(count[0]) for name, count in result.spikes.items()}
            return Readout(result.logits[0].flatten(), spent[0], spent[1], spikes)

        return read_out

    return answer


def _dense_engine(model: nn.Module, synapses: Synapses, prices: PriceList) -> Engine:
    @torch.inference_mode()
    def answer(x: Tensor) -> Callable[[], Readout]:
        with watch(model, synapses.steps) as activity:
            logits = logits_of(model(as_batch(x)), 1)

        def read_out() -> Readout:
            synops, joules = _count(synapses, prices, activity)
            spikes = {name: int(activity[name].sum()) for name in activity}
            return Readout(logits[0].flatten(), synops, joules, spikes)

        return read_out

    return answer


def _count(synapses: Synapses, prices: PriceList, activity: Activity) -> tuple[float, float]:
    """Count synaptic operations and joules of one image."""
    meter = EnergyMeter(synapses, prices)
    meter.update(activity)
    spent = meter.compute()
    return round(spent.synops) if synapses.psi == "exact" else spent.synops, spent.joules
