"""The engines that answer images with a trained network, and what they count of each image.

The `events` engine walks only spikes and counts the operations that it does, which are those of exact ψ; by another ψ,
and for `dense`, which is PyTorch, the meter counts. `onnx` is ONNX Runtime with the exported file, which is compared
with the network when it is made; the network itself is run for the count, outside of the engine's time.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from picojoule.deploy import events
from picojoule.deploy.events.builder import WeightType
from picojoule.deploy.export.onnx import load_onnx, to_onnx
from picojoule.energy.hardware import PriceList
from picojoule.energy.meter import EnergyMeter
from picojoule.errors import PicojouleError
from picojoule.neurons.time_steps import as_batch, logits_of
from picojoule.runs.footprint import footprint
from picojoule.spikes.activity import Activity
from picojoule.spikes.watch import watch
from picojoule.synapses.table import Synapses

EngineName = Literal["events", "onnx", "dense"]
"""What computes: the event-driven engine, ONNX Runtime, or PyTorch."""
EngineChoice = Literal["events", "onnx", "dense", "auto"]
"""One of the engines, or the fastest of those that can run the network here."""
_CALLS, _SECONDS = 60, 0.3
"""An engine is timed for so many calls, or so long."""


class ImageResult(NamedTuple):
    """What an engine found for one image."""

    logits: Tensor
    synops: float
    """Synaptic operations; a whole number with exact ψ."""
    joules: float
    """What they cost."""
    spikes: dict[str, int]
    """By layer."""


@dataclass(frozen=True)
class Engine:
    """A network that is ready to answer images, one at a time."""

    name: EngineName
    """What computes."""
    answer: Callable[[Tensor], Callable[[], ImageResult]]
    """Computes one image [1, C, H, W]; what it returns counts what that took, outside of the time that is measured."""
    weight_bytes: int
    """The network's weights and settings, as the engine stores them."""
    activation_bytes: int | None
    """What one image takes beside them; None where the engine does not tell."""


@dataclass(frozen=True)
class Candidate:
    """An engine that was tried, and its time for one image or the reason why it cannot be used."""

    name: EngineName
    """What computes."""
    milliseconds: float | None
    """Median time for one image; None where it cannot be used."""
    reason: str | None
    """Why not; None where it can."""

    def to_dict(self) -> dict[str, Any]:
        """Give its entry in `infer --json`."""
        return {"engine": self.name, "milliseconds": self.milliseconds, "reason": self.reason}


@dataclass(frozen=True)
class _Network:
    """A network with what every engine needs of it."""

    model: nn.Module
    """In evaluation mode."""
    example: Tensor
    """A few images as they are given to it."""
    synapses: Synapses
    """By which spikes are counted."""
    prices: PriceList
    """The price list."""


def build_engine(
    name: EngineChoice,
    model: nn.Module,
    example: Tensor,
    synapses: Synapses,
    prices: PriceList,
    weights: WeightType = "float32",
) -> tuple[Engine, tuple[Candidate, ...]]:
    """Make a network ready to answer images.

    Args:
        name: One of the engines, or "auto" for the fastest: all are made and timed on the example.
        model: The network, in evaluation mode.
        example: A few images as they are given to it.
        synapses: Its synapses, by which spikes are counted.
        prices: The price list.
        weights: "int8" stores the weights of all that spikes feed as bytes, which only the event engine does.

    Returns:
        The engine, and for "auto" all that were tried, the fastest first.

    Raises:
        PicojouleError: If the network has something that the engine cannot compute, or a package is missing.
    """
    network = _Network(model, example, synapses, prices)
    if name != "auto":
        return _built(name, network, weights), ()
    usable: list[tuple[float, Engine]] = []
    refused: list[Candidate] = []
    for each in get_args(EngineName):
        try:
            engine = _built(each, network, weights)
            usable.append((_median_milliseconds(engine, example), engine))
        except PicojouleError as fault:
            refused.append(Candidate(each, None, str(fault)))
    if not usable:
        raise PicojouleError(f"no engine can run this network with {weights} weights: {refused[0].reason}")
    usable.sort(key=lambda timed: timed[0])
    return usable[0][1], (*(Candidate(engine.name, time_, None) for time_, engine in usable), *refused)


def _built(name: EngineName, network: _Network, weights: WeightType) -> Engine:
    if name == "events":
        return _events_engine(network, weights)
    if weights != "float32":
        raise PicojouleError(
            f"the engine {name!r} has float32 weights only: take --engine events for {weights}, or leave --weights out"
        )
    return _onnx_engine(network) if name == "onnx" else _dense_engine(network)


def _median_milliseconds(engine: Engine, example: Tensor) -> float:
    """Time an engine on the images of the example, one at a time."""
    images = _one_by_one(example)
    for image in images:
        engine.answer(image)
    times: list[float] = []
    end = time.perf_counter() + _SECONDS
    while len(times) < _CALLS and (not times or time.perf_counter() < end):
        begin = time.perf_counter()
        engine.answer(images[len(times) % len(images)])
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def _one_by_one(example: Tensor) -> tuple[Tensor, ...]:
    """Take samples apart, each a batch of one: [B, …], or [T, B, C, H, W] over time."""
    samples: tuple[Tensor, ...] = example.split(1, dim=1 if example.dim() == 5 else 0)
    return samples


def _events_engine(network: _Network, weights: WeightType) -> Engine:
    synapses, prices = network.synapses, network.prices
    engine = events.compile(network.model, network.example, weights=weights)
    # Where synapses are counted as they are, and one price holds for all, the engine's own count is the bill.
    flat = (
        synapses.psi == "exact"
        and not (synapses.unit_synapses or synapses.made)
        and all(
            prices.per_spike(layer) == 0 and all(prices.per_synop(t) == prices.accumulate for t in layer.targets)
            for layer in synapses.values()
        )
    )

    def answer(x: Tensor) -> Callable[[], ImageResult]:
        result = engine(x)

        def counted() -> ImageResult:
            synops = int(result.synops[0])
            spent = (synops, synops * prices.accumulate) if flat else _count(synapses, prices, engine.watch(x))
            spikes = {name: int(count[0]) for name, count in result.spikes.items()}
            return ImageResult(result.logits[0].flatten(), spent[0], spent[1], spikes)

        return counted

    return Engine("events", answer, engine.weight_bytes, engine.activation_bytes)


def _dense_engine(network: _Network) -> Engine:
    model, steps = network.model, network.synapses.steps

    @torch.inference_mode()
    def answer(x: Tensor) -> Callable[[], ImageResult]:
        with watch(model, steps) as activity:
            logits = logits_of(model(as_batch(x)), 1)
        return lambda: _image_result(network, logits[0].flatten(), activity)

    occupied = footprint(model, as_batch(_one_by_one(network.example)[0]))
    return Engine("dense", answer, occupied.weight_bytes, occupied.peak_activation_bytes)


def _onnx_engine(network: _Network) -> Engine:
    if network.example.dim() == 5:
        raise PicojouleError("the engine 'onnx' takes images, and these data come over time: take --engine dense")
    content = to_onnx(network.model, network.example)
    run = load_onnx(content)

    def answer(x: Tensor) -> Callable[[], ImageResult]:
        out = run(x.numpy())

        @torch.inference_mode()
        def counted() -> ImageResult:
            with watch(network.model, network.synapses.steps) as activity:
                network.model(x)
            return _image_result(network, logits_of(torch.from_numpy(out), 1)[0].flatten(), activity)

        return counted

    return Engine("onnx", answer, len(content), None)


def _image_result(network: _Network, logits: Tensor, activity: Activity) -> ImageResult:
    """Count what PyTorch's spikes cost."""
    synops, joules = _count(network.synapses, network.prices, activity)
    return ImageResult(logits, synops, joules, {name: int(activity[name].sum()) for name in activity})


def _count(synapses: Synapses, prices: PriceList, activity: Activity) -> tuple[float, float]:
    """Count synaptic operations and joules of one image."""
    meter = EnergyMeter(synapses, prices)
    meter.update(activity)
    spent = meter.compute()
    return round(spent.synops) if synapses.psi == "exact" else spent.synops, spent.joules
