"""Using a trained network: answers, image by image, with what each of them took.

Conventions: one image at a time; synaptic operations and joules are what its spikes cost by the recipe's ψ and price
list, as in `evaluation`, without the encoder; milliseconds are the network's alone, without reading the picture and
without compiling. The `events` engine walks only spikes and counts the operations that it does, which are those of
exact ψ; by another ψ, and for `dense`, which is PyTorch, the meter counts.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from picojoule import data as datasets
from picojoule.deploy import events
from picojoule.energy.hardware import PriceList
from picojoule.energy.hardware import get as price_list
from picojoule.energy.meter import EnergyMeter
from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError, a_path, unknown
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.runs.model import Trust, load_model
from picojoule.runs.result import Split
from picojoule.spikes.activity import Activity
from picojoule.spikes.watch import watch
from picojoule.synapses.rules import Psi
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace

EngineName = Literal["events", "dense"]


@dataclass(frozen=True)
class Answer:
    """What the network says to one image, and what that took."""

    image: str
    label: int | None
    """The right class, where it is known."""
    class_: int
    confidence: float
    """Softmax of the class."""
    synops: float
    """A whole number with exact ψ."""
    joules: float
    milliseconds: float
    spikes: dict[str, int]
    """By spiking layer; relays are left out."""

    def to_dict(self, neurons: dict[str, int], steps: int, names: Sequence[str] = ()) -> dict[str, Any]:
        truth = {} if self.label is None else {"label": self.label, "label_name": _name(names, self.label)}
        return {
            "image": self.image,
            **truth,
            "class": self.class_,
            "class_name": _name(names, self.class_),
            "confidence": self.confidence,
            "synops": self.synops,
            "joules": self.joules,
            "milliseconds": self.milliseconds,
            "layers": [
                {"name": name, "neurons": neurons[name], "spikes": count, "rate": count / (neurons[name] * steps)}
                for name, count in self.spikes.items()
            ],
        }


@dataclass(frozen=True)
class Inference:
    """All answers of one request, and the images that could not be answered."""

    run: str
    engine: EngineName
    psi: Psi
    hardware: str
    steps: int
    preparation_seconds: float
    """Compiling the network, machine code included; none of it is in the images' milliseconds."""
    neurons: dict[str, int]
    answers: tuple[Answer, ...]
    failed: tuple[tuple[str, str], ...]
    """Image and reason."""
    class_names: tuple[str, ...] = ()
    """By class number, where the data set has them."""

    @property
    def accuracy(self) -> float | None:
        """Among the images whose class is known."""
        known = [answer.class_ == answer.label for answer in self.answers if answer.label is not None]
        return sum(known) / len(known) if known else None

    def _called(self, class_: int) -> str:
        name = _name(self.class_names, class_)
        return str(class_) if name is None else f"{class_} {name}"

    def lines(self) -> Iterator[str]:
        """What a person wants to see."""
        for a in self.answers:
            truth = "" if a.label is None else f" (is {self._called(a.label)})"
            rates = {name: count / (self.neurons[name] * self.steps) for name, count in a.spikes.items() if count}
            fired = ", ".join(f"{name} {rate:.1%}" for name, rate in rates.items())
            yield (
                f"{a.image}: class {self._called(a.class_)}{truth}, {a.confidence:.1%} sure; "
                f"{a.synops:,.0f} synaptic operations, {format_joules(a.joules)}, {a.milliseconds:.3f} ms; "
                f"fired: {fired or 'nothing'}"
            )
        if self.answers:
            n = len(self.answers)
            synops = sum(a.synops for a in self.answers) / n
            right = "" if self.accuracy is None else f"{self.accuracy:.2%} right, "
            yield (
                f"{n:,} image{'s' * (n > 1)} by {self.engine}: {right}mean {synops:,.0f} synaptic operations "
                f"(ψ {self.psi}), {format_joules(sum(a.joules for a in self.answers) / n)}, "
                f"{sum(a.milliseconds for a in self.answers) / n:.3f} ms (preparation, apart: "
                f"{self.preparation_seconds:.1f} s)"
            )

    def to_dict(self) -> dict[str, Any]:
        return {
            "run": self.run,
            "engine": self.engine,
            "psi": self.psi,
            "hardware": self.hardware,
            "steps": self.steps,
            "preparation_seconds": self.preparation_seconds,
            "accuracy": self.accuracy,
            "images": [answer.to_dict(self.neurons, self.steps, self.class_names) for answer in self.answers],
            "failed": [{"image": image, "error": reason} for image, reason in self.failed],
        }


def infer(
    run: Run | str | os.PathLike[str],
    images: Sequence[str | os.PathLike[str]] = (),
    *,
    split: Split | None = None,
    limit: int | None = None,
    engine: EngineName = "events",
    trust: Trust = False,
) -> Inference:
    """Answer pictures (PNG, JPEG), or the first `limit` images of a split, the one that `evaluate` measures.

    A model that is not picojoule's own needs `trust`, as `load_model` says.
    """
    if engine not in get_args(EngineName):
        raise unknown("engine", engine, get_args(EngineName))
    if isinstance(images, str | os.PathLike):
        raise PicojouleError(f"images is a list of pictures, not one path: give [{os.fspath(images)!r}]")
    if bool(images) == (split is not None):
        raise PicojouleError("name some pictures or a split, one of the two: IMAGES…, or --split test")
    if limit is not None and (type(limit) is not int or limit < 1 or split is None):
        raise PicojouleError(f"limit {limit} is not allowed: give a whole number from 1 up, and a split")
    if split is not None and split not in get_args(Split):
        raise unknown("split", split, get_args(Split))
    run = run if isinstance(run, Run) else Run.at(run)
    recipe = run.recipe
    model = load_model(run, trust)
    data = recipe.data.load()
    start = time.perf_counter()
    example = data.test.images[:4].float() / 255
    example = data.normalization(example) if recipe.data.normalize else example
    prices = price_list(recipe.energy.hardware)
    synapses = trace(model, example, psi=recipe.energy.psi, steps=recipe.neuron.steps)
    answer = _by_events(model, example, synapses, prices) if engine == "events" else _densely(model, synapses, prices)
    preparation = time.perf_counter() - start
    answers, failed = [], []
    for name, label, pixels in _pixels(recipe, data, [a_path("a picture", image) for image in images], split, limit):
        if isinstance(pixels, PicojouleError):
            failed.append((name, str(pixels)))
            continue
        x = pixels[None].float() / 255
        x = data.normalization(x) if recipe.data.normalize else x
        begin = time.perf_counter()
        outcome = answer(x)
        milliseconds = 1000 * (time.perf_counter() - begin)
        logits, synops, joules, spikes = outcome()
        confidence, class_ = logits.double().softmax(0).max(0)
        spikes = {layer.name: spikes[layer.name] for layer in synapses.spiking}
        answers.append(Answer(name, label, int(class_), float(confidence), synops, joules, milliseconds, spikes))
    neurons = {layer.name: layer.neurons for layer in synapses.spiking}
    return Inference(
        str(run.path),
        engine,
        recipe.energy.psi,
        prices.name,
        recipe.neuron.steps,
        preparation,
        neurons,
        tuple(answers),
        tuple(failed),
        datasets.DATASETS[recipe.data.name].class_names,
    )


def _name(names: Sequence[str], class_: int) -> str | None:
    return names[class_] if class_ < len(names) else None


Outcome = Callable[[], tuple[Tensor, float, float, dict[str, int]]]
"""Logits, synaptic operations, joules and spikes by layer, read out of what an engine left, outside of its time."""


def _by_events(model: nn.Module, example: Tensor, synapses: Synapses, prices: PriceList) -> Callable[[Tensor], Outcome]:
    engine = events.compile(model, example)
    # Where synapses are counted as they are, and one price holds for all, the engine's own count is the bill.
    flat = synapses.psi == "exact" and all(
        prices.per_spike(layer) == 0 and all(prices.per_synop(t) == prices.accumulate for t in layer.targets)
        for layer in synapses.values()
    )

    def answer(x: Tensor) -> Outcome:
        result = engine(x)

        def outcome() -> tuple[Tensor, float, float, dict[str, int]]:
            synops = int(result.synops[0])
            bill = (synops, synops * prices.accumulate) if flat else _bill(synapses, prices, engine.watch(x))
            return result.logits[0].flatten(), *bill, {n: int(c[0]) for n, c in result.spikes.items()}

        return outcome

    return answer


def _densely(model: nn.Module, synapses: Synapses, prices: PriceList) -> Callable[[Tensor], Outcome]:
    @torch.inference_mode()
    def answer(x: Tensor) -> Outcome:
        with watch(model, synapses.steps) as activity:
            logits = model(x.contiguous(memory_format=torch.channels_last))

        def outcome() -> tuple[Tensor, float, float, dict[str, int]]:
            bill = _bill(synapses, prices, activity)
            return logits[0].flatten(), *bill, {n: int(activity[n].sum()) for n in activity}

        return outcome

    return answer


def _bill(synapses: Synapses, prices: PriceList, activity: Activity) -> tuple[float, float]:
    """Synaptic operations and joules of one image."""
    meter = EnergyMeter(synapses, prices)
    meter.update(activity)
    bill = meter.compute()
    return round(bill.synops) if synapses.psi == "exact" else bill.synops, bill.joules


def _pixels(
    recipe: Recipe, data: datasets.Data, pictures: list[Path], split: Split | None, limit: int | None
) -> Iterator[tuple[str, int | None, Tensor | PicojouleError]]:
    """Name, class if known, and uint8 pixels of every image, or why it has none."""
    if split is None:
        from picojoule.data.picture import read_picture  # brings Pillow, which nothing else needs

        for path in pictures:
            try:
                yield str(path), None, read_picture(path, recipe.data.name, recipe.data.pad)
            except PicojouleError as fault:
                yield str(path), None, fault
        return
    part = data.validation if split == "validation" else data.test
    for i in range(min(len(part), len(part) if limit is None else limit)):
        yield f"{split}/{i}", int(part.labels[i]), part.images[i]
