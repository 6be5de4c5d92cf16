"""Running a compiled network, and what comes out of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from picojoule.deploy.events.draft import Weights
from picojoule.deploy.events.graph import captured
from picojoule.deploy.events.lowering import lower
from picojoule.deploy.events.program import WORD, Memory, Program, SpikeMap
from picojoule.deploy.reproduction import Executed, difference, probes
from picojoule.errors import PicojouleError, unknown
from picojoule.io.background import apart, share
from picojoule.io.extras import explained
from picojoule.neurons.spike import Spike
from picojoule.spikes.activity import Activity
from picojoule.spikes.layout import TimeLayout
from picojoule.spikes.spiking import spiking_modules, unwrap
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace


@dataclass(frozen=True, eq=False)
class Result:
    """Answers to a batch, and what each of them took."""

    logits: Tensor
    """What the network returns, [B, …]."""
    program: Program = field(repr=False)
    spike_counts: NDArray[np.int64] = field(repr=False)
    """[B, spiking layers and relays]"""
    operation_counts: NDArray[np.int64] = field(repr=False)
    """[B, layers of synapses]"""

    @property
    def spikes(self) -> dict[str, Tensor]:
        """How many spikes each spiking layer and each relay emitted, [B], by the layer's name."""
        names = (layer.name for layer in self.program.spiking)
        return {name: torch.from_numpy(column) for name, column in zip(names, self.spike_counts.T, strict=True)}

    @property
    def operations(self) -> dict[str, Tensor]:
        """Synaptic operations [B] by the layer of synapses that did them; those fed by the input are not among them."""
        columns = zip(self.program.synaptic, self.operation_counts.T, strict=True)
        return {name: torch.from_numpy(column) for name, column in columns}

    @property
    def synops(self) -> Tensor:
        """Synaptic operations of each sample, [B]: what `EnergyMeter` counts with exact ψ."""
        return torch.from_numpy(self.operation_counts.sum(1))


class Engine:
    """A network that costs as much as it fires. `picojoule.events.compile` makes one.

    It is called with a batch and holds no state from one call to the next; several threads may call it at once.
    """

    def __init__(self, program: Program, synapses: Synapses, threads: int) -> None:
        from picojoule.deploy.events import kernels  # brings Numba

        self._execute: Callable[..., None] = kernels.execute
        self._program = program
        self._outputs = math.prod(program.output_shape)
        self.synapses = synapses
        """ψ of the network, exact."""
        self.threads = threads
        """Images of a batch are shared out among so many."""
        self._memories: list[Memory] = []
        start = time.perf_counter()
        apart(lambda: self(torch.zeros(1, *program.input_shape)))  # no interruption is lost in the compiler
        self.compilation_seconds = time.perf_counter() - start
        """What the first call took: making machine code, or reading it from Numba's cache."""

    def __call__(self, images: Tensor | NDArray[np.float32]) -> Result:
        """Answer a batch [B, …]."""
        rows = self._rows(images)
        program, samples = self._program, len(rows)
        outputs = np.empty((samples, self._outputs), dtype=np.float32)
        spikes = np.zeros((samples, len(program.spiking)), dtype=np.int64)
        synops = np.zeros((samples, len(program.synaptic)), dtype=np.int64)
        if self.threads == 1 or samples < 2:
            self._run(rows, outputs, spikes, synops)
        else:
            # Small parts, because an image that fires more takes longer.
            size = max(1, samples // (8 * self.threads))
            parts = [slice(first, first + size) for first in range(0, samples, size)]
            share(lambda part: self._run(rows[part], outputs[part], spikes[part], synops[part]), parts, self.threads)
        logits = torch.from_numpy(outputs.reshape(samples, *program.output_shape))
        return Result(logits, program, spikes, synops)

    def watch(self, images: Tensor | NDArray[np.float32]) -> Activity:
        """The spikes themselves, as `picojoule.watch` shows those of PyTorch; image by image, for tests and study."""
        emitted: dict[str, list[NDArray[np.float32]]] = {layer.name: [] for layer in self._program.spiking}
        memory = Memory.of(self._program)
        for row in self._rows(images):
            counts = [np.zeros((1, n), dtype=np.int64) for n in (len(emitted), len(self._program.synaptic))]
            output = np.empty((1, self._outputs), dtype=np.float32)
            self._execute(self._program.operations, row[None], output, *counts, *memory)
            for layer in self._program.spiking:
                emitted[layer.name].append(_spikes(layer, memory))
        activity = Activity(TimeLayout())
        for name, maps in emitted.items():
            activity.record(name, torch.from_numpy(np.stack(maps)))
        return activity

    def executed(self, images: Tensor) -> Executed:
        """Answer and spikes, for a comparison with the network."""
        activity = self.watch(images)
        return Executed(self(images).logits, {name: [activity[name]] for name in activity})

    def _run(self, *arrays: NDArray[Any]) -> None:
        try:
            memory = self._memories.pop()
        except IndexError:  # another call has it
            memory = Memory.of(self._program)
        self._execute(self._program.operations, *arrays, *memory)
        self._memories.append(memory)

    def _rows(self, images: Tensor | NDArray[np.float32]) -> NDArray[np.float32]:
        """A batch as flat rows of float32."""
        shape = self._program.input_shape
        if not _is_batch(images):
            is_array = isinstance(images, Tensor | np.ndarray)
            what = "one without plain numbers" if is_array else type(images).__name__
            raise PicojouleError(
                f"the engine takes a batch of images as a tensor or a NumPy array, not {what}: give [batch, …] of "
                f"samples of shape {shape}"
            )
        if tuple(images.shape[1:]) != shape or not len(images.shape):
            raise PicojouleError(
                f"the engine was compiled for samples of shape {shape} and got a batch of {tuple(images.shape)}: give "
                "[batch, …] of that shape, or compile it for yours"
            )
        array = images.detach().to("cpu", torch.float32).numpy() if isinstance(images, Tensor) else images
        return np.ascontiguousarray(array, dtype=np.float32).reshape(len(array), math.prod(shape))


def compile(model: nn.Module, example: Tensor, *, weights: Weights = "float32", threads: int = 1) -> Engine:
    """Compile a spiking network of single-step neurons into an engine that walks only its spikes.

    `example` is a batch as the model takes it. On its first samples, and on noise, the engine is compared with the
    model layer by layer, spikes and synaptic operations included; a network that it does not reproduce is refused. So
    real images are worth more there than zeros. `weights="int8"` stores the weights of all that spikes feed as bytes,
    with a scale for each output channel, and adds them up in whole numbers; what is compared is the network before
    that. `threads` share the images of a batch; one image is the work of one thread.

    >>> import picojoule as pj
    >>> net = pj.zoo.create("cnn7").eval()
    >>> images = torch.rand(2, 1, 32, 32)
    >>> result = compile(net, images)(images)
    >>> torch.allclose(result.logits, net(images), atol=1e-4), result.synops.shape
    (True, torch.Size([2]))
    """
    try:
        import numba  # noqa: F401  # brings the compiler, which is missed before any work is done
    except ModuleNotFoundError as fault:
        raise explained(fault, "the event engine") from None
    if weights not in ("float32", "int8"):
        raise unknown("weights", str(weights), ("float32", "int8"))
    if type(threads) is not int or threads < 1:
        raise PicojouleError(f"threads={threads!r} is no number of threads: give a whole number from 1 up")
    model = unwrap(model)
    if not isinstance(model, nn.Module):
        raise PicojouleError(f"only an nn.Module can be compiled, not {type(model).__name__}")
    for name, layer in spiking_modules(model).items():
        if type(layer) is not Spike:
            raise PicojouleError(
                f"the event engine cannot run the layer {name!r} ({type(layer).__name__}): use picojoule.Spike as its "
                "neuron, or use the dense engine"
            )
    if not isinstance(example, Tensor):
        raise PicojouleError(f"the event engine needs a tensor as its example, not {type(example).__name__}")
    synapses = trace(model, example)
    with captured(model, tuple(example.shape[1:])) as graph:
        programs = [lower(model, graph, kind) for kind in dict.fromkeys(("float32", weights))]
    engines = [Engine(program, synapses, threads) for program in programs]
    images = probes(example.to(next(model.parameters(), example)))
    found = difference(model, images, engines[0].executed)
    if found is not None:
        raise PicojouleError(
            f"the event engine does not reproduce {type(model).__name__} ({found}): leave out of its forward pass what "
            "is not in the weights and settings of its layers, or use the dense engine"
        )
    for engine in engines:
        _check_operations(engine, images)
    return engines[-1]


def _check_operations(engine: Engine, images: Tensor) -> None:
    """The operations that an engine counts must be those of the spikes that it emits, by ψ."""
    activity, result = engine.watch(images), engine(images)
    expected = torch.zeros(len(images), dtype=torch.float64)
    for name, layer in engine.synapses.items():
        if layer.fan_out.any():
            expected += (activity[name].double() * layer.fan_out).flatten(1).sum(1)
    if not torch.equal(expected.long(), result.synops):
        raise PicojouleError(
            f"the event engine counts other synaptic operations than ψ ({result.synops.tolist()} instead of "
            f"{expected.long().tolist()} on noise): use the dense engine"
        )


def _is_batch(images: object) -> bool:
    if isinstance(images, Tensor):
        plain = images.layout is torch.strided and not images.is_quantized and images.device.type != "meta"
        return plain and not images.is_complex()
    return isinstance(images, np.ndarray) and images.dtype.kind in "fiub"


def _spikes(layer: SpikeMap, memory: Memory) -> NDArray[np.float32]:
    """What one layer has left in memory, in the shape that the network shows."""
    size = layer.map
    if layer.binary:
        words = memory.masks[layer.at : layer.at + size.pixels * size.words].reshape(size.pixels, size.words)
        places = np.arange(size.channels)
        bits = (words[:, places // WORD] >> (places % WORD).astype(np.uint64)) & np.uint64(1)
        numbers = bits.astype(np.float32)
    else:
        here = memory.maps[layer.at : layer.at + size.pixels * size.pitch]
        numbers = here.reshape(size.pixels, size.pitch)[:, : size.channels].copy()
    return np.ascontiguousarray(numbers.T).reshape(layer.shape)
