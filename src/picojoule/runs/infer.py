"""Inference with a trained network: its answer to each image, and what that answer took.

Conventions: one image at a time; synaptic operations and joules are what its spikes cost by the recipe's ψ and price
list, as in `evaluate`, without the encoder; milliseconds are the network's alone, without reading the picture and
without compiling.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from torch import Tensor

from picojoule import data as datasets
from picojoule.data.batches import as_floats, as_input
from picojoule.deploy.events.builder import WeightType
from picojoule.energy.hardware import get as price_list
from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError, as_path, unknown
from picojoule.io.machine import peak_bytes
from picojoule.recipe import Recipe
from picojoule.runs.engines import Candidate, Engine, EngineChoice, EngineName, build_engine
from picojoule.runs.folder import Run
from picojoule.runs.footprint import format_bytes
from picojoule.runs.model import Trust, load_data, load_model
from picojoule.runs.result import Split
from picojoule.synapses.rules import Psi
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace


@dataclass(frozen=True)
class Answer:
    """The network's answer to one image, and what it took."""

    image: str
    """The picture's path, or the split and the image's number in it."""
    label: int | None
    """The right class, where it is known."""
    class_: int
    """The answer."""
    confidence: float
    """Softmax of the class."""
    synops: float
    """Synaptic operations; a whole number with exact ψ."""
    joules: float
    """What they cost."""
    milliseconds: float
    """The network's time alone."""
    spikes: dict[str, int]
    """By spiking layer; relays are left out."""

    def to_dict(self, neurons: dict[str, int], steps: int, names: Sequence[str] = ()) -> dict[str, Any]:
        """Give the fields of an image in `infer --json`.

        Args:
            neurons: Neurons by spiking layer.
            steps: Time steps T.
            names: Names of the classes, where they have any.

        Returns:
            Plain values, with spikes and firing rates by layer.
        """
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
class Occupied:
    """The memory that answering took."""

    weight_bytes: int
    """The network's weights and settings, as the engine stores them."""
    activation_bytes: int | None
    """What one image takes beside them; None where the engine does not tell."""
    process_peak_bytes: int | None
    """The most that the whole process has held, with Python, PyTorch and the data; None where no system tells."""

    def to_dict(self) -> dict[str, int | None]:
        """Give the object `memory` of `infer --json`."""
        return {
            "weight_bytes": self.weight_bytes,
            "activation_bytes": self.activation_bytes,
            "process_peak_bytes": self.process_peak_bytes,
        }

    def line(self) -> str:
        """Write the memory as one line for people."""
        parts = [f"{format_bytes(self.weight_bytes)} of weights"]
        if self.activation_bytes is not None:
            parts.append(f"{format_bytes(self.activation_bytes)} for one image")
        if self.process_peak_bytes is not None:
            parts.append(f"the whole process at most {format_bytes(self.process_peak_bytes)}")
        return f"memory: {', '.join(parts)}"


@dataclass(frozen=True)
class Inference:
    """All answers of one request, and the images that could not be answered."""

    run: str
    """The run's folder."""
    engine: EngineName
    """What computed."""
    psi: Psi
    """How synapses are counted."""
    hardware: str
    """The price list."""
    steps: int
    """Time steps T."""
    preparation_seconds: float
    """Compiling the network, machine code included; none of it is in the images' milliseconds."""
    neurons: dict[str, int]
    """By spiking layer."""
    answers: tuple[Answer, ...]
    """One for each image that could be read, in their order."""
    failed: tuple[tuple[str, str], ...]
    """Image and reason."""
    memory: Occupied
    """What the answers took."""
    weights: WeightType = "float32"
    """How the engine stored the weights."""
    candidates: tuple[Candidate, ...] = ()
    """Where the engine was chosen by its speed: all that were tried, the fastest first."""
    class_names: tuple[str, ...] = ()
    """By class number, where the data set has them."""

    @property
    def accuracy(self) -> float | None:
        """Share of right answers among the images whose class is known; None where none is."""
        known = [answer.class_ == answer.label for answer in self.answers if answer.label is not None]
        return sum(known) / len(known) if known else None

    @property
    def milliseconds(self) -> dict[str, float]:
        """Median of the network's times, and the span in which nine of ten lie; empty without answers."""
        times = sorted(answer.milliseconds for answer in self.answers)
        if not times:
            return {}
        low, high = (times[round(share * (len(times) - 1))] for share in (0.05, 0.95))
        return {"median": statistics.median(times), "low": low, "high": high}

    def _class_label(self, class_: int) -> str:
        name = _name(self.class_names, class_)
        return str(class_) if name is None else f"{class_} {name}"

    def lines(self) -> Iterator[str]:
        """Say the answers to a reader.

        Yields:
            A line for each image, one with the means, one with the memory, and one with the choice of the engine.
        """
        for a in self.answers:
            truth = "" if a.label is None else f" (is {self._class_label(a.label)})"
            rates = {name: count / (self.neurons[name] * self.steps) for name, count in a.spikes.items() if count}
            fired = ", ".join(f"{name} {rate:.1%}" for name, rate in rates.items())
            yield (
                f"{a.image}: class {self._class_label(a.class_)}{truth}, {a.confidence:.1%} sure; "
                f"{a.synops:,.0f} synaptic operations, {format_joules(a.joules)}, {a.milliseconds:.3f} ms; "
                f"fired: {fired or 'nothing'}"
            )
        if self.answers:
            n = len(self.answers)
            synops = sum(a.synops for a in self.answers) / n
            right = "" if self.accuracy is None else f"{self.accuracy:.2%} right, "
            yield (
                f"{n:,} image{'s' * (n > 1)} by {self.engine}{self._stored()}: {right}mean {synops:,.0f} synaptic "
                f"operations (ψ {self.psi}), {format_joules(sum(a.joules for a in self.answers) / n)}, "
                f"{sum(a.milliseconds for a in self.answers) / n:.3f} ms; median {self.milliseconds['median']:.3f} ms, "
                f"nine of ten from {self.milliseconds['low']:.3f} to {self.milliseconds['high']:.3f} ms (preparation, "
                f"apart: {self.preparation_seconds:.1f} s)"
            )
            yield self.memory.line()
        if self.candidates:
            yield f"engine: {self._choice()}"

    def _stored(self) -> str:
        return "" if self.weights == "float32" else f" with {self.weights} weights"

    def _choice(self) -> str:
        """Say which engine was the fastest, and what became of the others."""
        first, *others = self.candidates
        said = [
            f"{each.name} {each.milliseconds:.3f} ms" if each.reason is None else f"not {each.name}, for {each.reason}"
            for each in others
        ]
        return f"{first.name} is the fastest here, {first.milliseconds:.3f} ms per image; {'; '.join(said)}"

    def to_dict(self) -> dict[str, Any]:
        """Give the document of `infer --json`.

        Returns:
            Plain values.
        """
        return {
            "run": self.run,
            "engine": self.engine,
            "psi": self.psi,
            "hardware": self.hardware,
            "steps": self.steps,
            "preparation_seconds": self.preparation_seconds,
            "accuracy": self.accuracy,
            "milliseconds": self.milliseconds,
            "weights": self.weights,
            "memory": self.memory.to_dict(),
            "candidates": [candidate.to_dict() for candidate in self.candidates],
            "images": [answer.to_dict(self.neurons, self.steps, self.class_names) for answer in self.answers],
            "failed": [{"image": image, "error": reason} for image, reason in self.failed],
        }


def infer(
    run: Run | str | os.PathLike[str],
    images: Sequence[str | os.PathLike[str]] = (),
    *,
    split: Split | None = None,
    limit: int | None = None,
    engine: EngineChoice = "events",
    weights: WeightType = "float32",
    trust: Trust = False,
    data: datasets.Given | None = None,
) -> Inference:
    """Let a trained network answer pictures, or images of a split, one at a time.

    Args:
        run: The run, or the path of its folder.
        images: Pictures (PNG, JPEG).
        split: In place of pictures, "test" or "validation", as `evaluate` measures it.
        limit: Only the first so many images of the split.
        engine: "events" walks only spikes, "onnx" is ONNX Runtime, "dense" is PyTorch; "auto" times those that can run
            the network on this machine and takes the fastest.
        weights: "int8" stores the weights of all that spikes feed as bytes, with "events" alone.
        trust: Needed for a model or data that are not picojoule's own code, as `load_model` says.
        data: The data that were given to `fit`, for a run with `data.name = "own"`.

    Returns:
        The answers, and the pictures that could not be read with the reason.

    Raises:
        PicojouleError: If the run cannot be read, its code is not trusted, or an argument is not valid.

    >>> found = infer(finished_run, split="test", limit=2, engine="dense")  # a run, or the path of its folder
    >>> [answer.image for answer in found.answers], found.answers[0].synops > 0
    (['test/0', 'test/1'], True)
    """
    _check_request(images, split, limit)
    _check_engine(engine, weights)
    run = Run.opened(run)
    recipe = run.recipe
    model = load_model(run, trust)
    loaded = load_data(run, trust, data)
    if images and not loaded.of_bytes:  # nobody but the user knows how pixels were made into these floats
        raise PicojouleError(
            f"pictures cannot be given to {run.path}, whose network was trained on floats of a scale that is not "
            "known: give --split in place of pictures, or train on uint8"
        )
    start = time.perf_counter()
    example = _as_input(loaded.test.images[:4], recipe, loaded)
    prices = price_list(recipe.energy.hardware)
    energy = recipe.energy
    synapses = trace(model, recipe.example(), psi=energy.psi, steps=recipe.neuron.steps, chains=energy.chains or "run")
    chosen, candidates = build_engine(engine, model, example, synapses, prices, weights)
    preparation = time.perf_counter() - start
    answers, failed = [], []
    for name, label, pixels in _pixels(recipe, loaded, [as_path("a picture", image) for image in images], split, limit):
        if isinstance(pixels, PicojouleError):
            failed.append((name, str(pixels)))
        else:
            answers.append(_answer(name, label, _as_input(pixels[None], recipe, loaded), chosen, synapses))
    return Inference(
        str(run.path),
        chosen.name,
        recipe.energy.psi,
        prices.name,
        recipe.neuron.steps,
        preparation,
        {layer.name: layer.neurons for layer in synapses.spiking},
        tuple(answers),
        tuple(failed),
        Occupied(chosen.weight_bytes, chosen.activation_bytes, peak_bytes()),
        weights,
        candidates,
        loaded.class_names,
    )


def _check_engine(engine: object, weights: object) -> None:
    if engine not in get_args(EngineChoice):
        raise unknown("engine", engine, get_args(EngineChoice))
    if weights not in get_args(WeightType):
        raise unknown("type of weights", weights, get_args(WeightType))


def _check_request(images: object, split: object, limit: object) -> None:
    if isinstance(images, str | os.PathLike):
        raise PicojouleError(f"images is a list of pictures, not one path: give [{os.fspath(images)!r}]")
    if bool(images) == (split is not None):
        raise PicojouleError("name some pictures or a split, one of the two: IMAGES…, or --split test")
    if limit is not None and (type(limit) is not int or limit < 1 or split is None):
        raise PicojouleError(f"limit {limit} is not allowed: give a whole number from 1 up, and a split")
    if split is not None and split not in get_args(Split):
        raise unknown("split", split, get_args(Split))


def _as_input(pixels: Tensor, recipe: Recipe, data: datasets.Data) -> Tensor:
    return as_input(as_floats(pixels), data.normalization if recipe.data.normalize else None)


def _answer(name: str, label: int | None, x: Tensor, engine: Engine, synapses: Synapses) -> Answer:
    begin = time.perf_counter()
    counted = engine.answer(x)
    milliseconds = 1000 * (time.perf_counter() - begin)
    logits, synops, joules, spikes = counted()
    confidence, class_ = logits.double().softmax(0).max(0)
    spikes = {layer.name: spikes[layer.name] for layer in synapses.spiking}
    return Answer(name, label, int(class_), float(confidence), synops, joules, milliseconds, spikes)


def _name(names: Sequence[str], class_: int) -> str | None:
    return names[class_] if class_ < len(names) else None


def _pixels(
    recipe: Recipe, data: datasets.Data, pictures: list[Path], split: Split | None, limit: int | None
) -> Iterator[tuple[str, int | None, Tensor | PicojouleError]]:
    """Give name, class if known, and uint8 pixels of every image, or the error where it has none."""
    if split is None:
        from picojoule.data.picture import read_picture  # brings Pillow, which nothing else needs

        for path in pictures:
            try:
                yield str(path), None, read_picture(path, data.sample_shape, recipe.data.pad)
            except PicojouleError as fault:
                yield str(path), None, fault
        return
    part = data.validation if split == "validation" else data.test
    for i in range(min(len(part), len(part) if limit is None else limit)):
        yield f"{split}/{i}", int(part.labels[i]), part.images[i]
