"""Running a compiled network, and what comes out of it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.deploy.events.program import WORD, Memory, Program, SpikeMap
from picojoule.deploy.reproduction import Executed
from picojoule.errors import PicojouleError
from picojoule.io.background import run_in_thread, share_among_threads
from picojoule.io.extras import explained
from picojoule.spikes.activity import Activity
from picojoule.spikes.layout import TimeLayout
from picojoule.synapses.table import Synapses

TOGETHER = 16
"""Images, or time steps of images, of a batch that go through a layer together: weights are read less often."""


class Result:
    """The answers to a batch, and what each of them took.

    Args:
        program: The compiled network.
        outputs: What it returns, [B, numbers].
        spike_counts: Spikes [B, spiking layers and relays].
        operation_counts: Synaptic operations [B, layers of synapses].
    """

    __slots__ = ("operation_counts", "outputs", "program", "spike_counts")

    def __init__(
        self,
        program: Program,
        outputs: NDArray[np.float32],
        spike_counts: NDArray[np.int64],
        operation_counts: NDArray[np.int64],
    ) -> None:
        self.program = program
        self.outputs = outputs
        self.spike_counts = spike_counts
        self.operation_counts = operation_counts

    @property
    def logits(self) -> Tensor:
        """What the network returns, [B, …]."""
        return torch.from_numpy(self.outputs.reshape(len(self.outputs), *self.program.output_shape))

    @property
    def spikes(self) -> dict[str, Tensor]:
        """Numbers of spikes [B] that each spiking layer and each relay emitted, by the layer's name."""
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
    """A compiled network whose time is proportional to the synaptic operations that it does.

    `picojoule.events.compile` makes one. It is called with a batch and holds no state from one call to the next;
    several threads may call it at once.

    Args:
        program: The compiled network.
        synapses: ψ of the network, exact.
        threads: How many threads share the images of a batch.

    Raises:
        PicojouleError: If Numba is not installed.
    """

    def __init__(self, program: Program, synapses: Synapses, threads: int) -> None:
        self._execute = load_kernels()
        self._program = program
        self._sample_shape = torch.Size(program.input_shape)
        self._inputs, self._outputs = math.prod(program.input_shape), math.prod(program.output_shape)
        self.synapses = synapses
        """ψ of the network, exact."""
        self.threads = threads
        """How many threads share the images of a batch."""
        self.steps = program.steps
        """Time steps T."""
        self._together = max(TOGETHER // program.steps, 1)
        self._memories: dict[int, list[tuple[Memory, NDArray[np.int64]]]] = {1: [], self._together: []}
        start = time.perf_counter()
        run_in_thread(lambda: self(torch.zeros(1, *program.input_shape)))  # no interruption is lost in the compiler
        self.compilation_seconds = time.perf_counter() - start
        """Seconds of the first call: making machine code, or reading it from Numba's cache."""

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights and tables, which never change."""
        program = self._program
        return program.constants.nbytes + program.bytes.nbytes + program.tables.nbytes

    @property
    def activation_bytes(self) -> int:
        """Bytes that one image takes beside them: spikes, currents, and the lists of what is active."""
        memory = Memory.of(self._program)
        whole = sum(part.nbytes for part in memory if isinstance(part, np.ndarray))
        return whole - self.weight_bytes

    def __call__(self, images: Tensor | NDArray[np.float32]) -> Result:
        """Answer a batch.

        Args:
            images: A batch [B, …] of samples of the shape that the engine was compiled for.

        Returns:
            Logits, spikes and synaptic operations of each image.

        Raises:
            PicojouleError: If the batch is not one of that shape.
        """
        rows = self._rows(images)
        program, samples = self._program, len(rows)
        outputs = np.empty((samples, self._outputs), dtype=np.float32)
        spikes = np.zeros((samples, len(program.spiking)), dtype=np.int64)
        synops = np.zeros((samples, len(program.synaptic)), dtype=np.int64)
        if self.threads == 1 or samples < 2:
            self._run(rows, outputs, spikes, synops)
        else:
            # Several parts for each, because an image that fires more takes longer.
            size = max(1, min(self._together, samples // (4 * self.threads)))
            parts = [slice(first, first + size) for first in range(0, samples, size)]
            share_among_threads(
                lambda part: self._run(rows[part], outputs[part], spikes[part], synops[part]), parts, self.threads
            )
        return Result(program, outputs, spikes, synops)

    def watch(self, images: Tensor | NDArray[np.float32]) -> Activity:
        """Record the spikes themselves, as `picojoule.watch` does those of PyTorch; for tests and study, as it is slow.

        Args:
            images: A batch, as in a call.

        Returns:
            The spikes of every spiking layer and relay.

        Raises:
            PicojouleError: If the batch is not of the shape that the engine was compiled for.
        """
        emitted: dict[str, list[NDArray[np.float32]]] = {layer.name: [] for layer in self._program.spiking}
        memory = Memory.of(self._program)
        for row in self._rows(images):
            counts = [np.zeros((1, n), dtype=np.int64) for n in (len(emitted), len(self._program.synaptic))]
            output = np.empty((1, self._outputs), dtype=np.float32)
            self._execute(self._program.instructions, row[None], output, *counts, memory.addresses())
            for layer in self._program.spiking:
                emitted[layer.name].append(_spikes(layer, memory))
        activity = Activity(TimeLayout(self.steps))
        for name, maps in emitted.items():
            for step in torch.from_numpy(np.stack(maps)).unbind(1):
                activity.record(name, step)
        return activity

    def executed(self, images: Tensor) -> Executed:
        """Answer a batch and record its spikes, for a comparison with the network.

        Args:
            images: A batch, as in a call.

        Returns:
            Answer and spikes.
        """
        activity = self.watch(images)
        spikes = {}
        for layer in self._program.spiking:
            by_step = activity.by_step(layer.name)
            spikes[layer.name] = [torch.stack(by_step) if layer.time_axis else torch.cat(by_step)]
        return Executed(self(images).logits, spikes)

    def _run(self, *arrays: NDArray[Any]) -> None:
        together = self._together if len(arrays[0]) > 1 else 1
        try:
            memory, addresses = self._memories[together].pop()
        except IndexError:  # another call has it
            memory = Memory.of(self._program, together)
            addresses = memory.addresses()
        self._execute(self._program.instructions, *arrays, addresses)
        self._memories[together].append((memory, addresses))

    def _rows(self, images: Tensor | NDArray[np.float32]) -> NDArray[np.float32]:
        """Lay a batch out as flat rows of float32."""
        if type(images) is Tensor and images.dtype is torch.float32 and images.shape[1:] == self._sample_shape:
            with suppress(RuntimeError, TypeError):  # one that is not in memory, or has a history
                return images.numpy().reshape(len(images), self._inputs)
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


def load_kernels() -> Callable[..., None]:
    """Import the compiled kernels, which need Numba.

    Returns:
        The function that runs a program.

    Raises:
        PicojouleError: If Numba is not installed.
    """
    try:
        from picojoule.deploy.events import kernels
    except ModuleNotFoundError as fault:
        raise explained(fault, "the event engine") from None
    execute: Callable[..., None] = kernels.execute
    return execute


def _is_batch(images: object) -> bool:
    if isinstance(images, Tensor):
        plain = images.layout is torch.strided and not images.is_quantized and images.device.type != "meta"
        return plain and not images.is_complex()
    return isinstance(images, np.ndarray) and images.dtype.kind in "fiub"


def _spikes(layer: SpikeMap, memory: Memory) -> NDArray[np.float32]:
    """Read what one layer has left in memory, [T, …] in the shape that the network shows."""
    size, steps = layer.map, layer.steps
    if layer.binary:
        words = memory.masks[layer.address : layer.address + steps * size.pixels * size.words]
        places = np.arange(size.channels)
        by_pixel = words.reshape(steps, size.pixels, size.words)[..., places // WORD]
        numbers = ((by_pixel >> (places % WORD).astype(np.uint64)) & np.uint64(1)).astype(np.float32)
    else:
        here = memory.maps[layer.address : layer.address + steps * size.pixels * size.pitch]
        numbers = here.reshape(steps, size.pixels, size.pitch)[..., : size.channels].copy()
    return np.ascontiguousarray(numbers.transpose(0, 2, 1)).reshape(steps, *layer.shape)
