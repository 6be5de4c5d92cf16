"""How far an exported network does what the network does: layer by layer on identical inputs, and end to end."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import nir
import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import nir_reader
import picojoule as pj

Array = NDArray[np.float32]
Execute = Callable[[Array, Mapping[str, Array] | None], dict[str, Array]]
"""Images, and spikes to be put in place of those computed, to what every spiking layer computed and `logits`."""

NEAR = 1e-4
"""A potential this near to the threshold may fall on either side."""


@dataclass
class Agreement:
    samples: int = 0
    spikes: int = 0
    """Neurons times samples."""
    near: int = 0
    """Of them, potentials within NEAR of the threshold."""
    flipped: int = 0
    """Layer by layer, different spikes within NEAR of the threshold."""
    wrong: int = 0
    """Layer by layer, different spikes anywhere else: a defect."""
    different: int = 0
    """Different spikes end to end."""
    same_class: int = 0

    def __str__(self) -> str:
        return (
            f"{self.samples:,} images, {self.spikes:,} neurons: layer by layer {self.flipped} different near the "
            f"threshold (of {self.near:,} near it) and {self.wrong} elsewhere; end to end {self.different} different "
            f"({self.different / self.spikes:.1e}); class agrees on {self.same_class / self.samples:.2%}"
        )

    @property
    def within_bounds(self) -> bool:
        return (
            self.wrong == 0
            and self.different * 10_000 <= self.spikes
            and self.same_class >= self.samples - self.samples // 1000
        )


@contextlib.contextmanager
def hooked(model: nn.Module, hook: Callable[[str, pj.Spike, Tensor, Tensor], Tensor | None]) -> Iterator[None]:
    """Calls hook(name, layer, potential, spikes) for every spiking layer; what it returns replaces the spikes."""
    layers = [(name, module) for name, module in model.named_modules() if isinstance(module, pj.Spike)]
    handles = [
        module.register_forward_hook(lambda layer, args, out, name=name: hook(name, layer, args[0], out))
        for name, module in layers
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


@torch.no_grad()
def compare(model: nn.Module, execute: Execute, images: Tensor, batch: int = 25) -> Agreement:
    model.eval()
    found = Agreement()
    distances: dict[str, Array] = {}
    spikes: dict[str, Array] = {}

    def note(name: str, layer: pj.Spike, potential: Tensor, emitted: Tensor) -> None:
        distances[name], spikes[name] = np.abs(potential.numpy() - layer.threshold), emitted.numpy()

    for part in images.split(batch):
        with hooked(model, note):
            (logits,) = tree_leaves(model(part))
        forced, free = execute(part.numpy(), spikes), execute(part.numpy(), None)
        for name, expected in spikes.items():
            near = distances[name] <= NEAR
            differs = forced[name] != expected
            found.spikes += expected.size
            found.near += int(near.sum())
            found.flipped += int((differs & near).sum())
            found.wrong += int((differs & ~near).sum())
            found.different += int((free[name] != expected).sum())
        found.samples += len(part)
        found.same_class += int((free["logits"].argmax(1) == logits.numpy().argmax(1)).sum())
    return found


def itself(model: nn.Module) -> Execute:
    """The network in PyTorch, with its spiking layers' outputs replaced where they are given."""

    @torch.no_grad()
    def execute(images: Array, forced: Mapping[str, Array] | None) -> dict[str, Array]:
        out: dict[str, Array] = {}

        def note(name: str, layer: pj.Spike, potential: Tensor, emitted: Tensor) -> Tensor | None:
            out[name] = emitted.numpy()
            return None if forced is None else torch.from_numpy(forced[name])

        with hooked(model, note):
            out["logits"] = model(torch.from_numpy(images)).numpy()
        return out

    return execute


def nir_executor(graph: nir.NIRGraph) -> Execute:
    def execute(images: Array, forced: Mapping[str, Array] | None) -> dict[str, Array]:
        out = nir_reader.execute(graph, images, forced)
        return {**out, "logits": out["output"]}

    return execute


def onnx_executor(content: bytes, layers: list[str]) -> Execute:
    """Two sessions of onnxruntime: the file with its spikes as outputs, and one cut behind every spiking layer, where
    spikes come in from outside."""
    whole, cut = (onnx.load_model(io.BytesIO(content)) for _ in range(2))
    for name in layers:
        spikes = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        whole.graph.output.append(spikes)
        computed = onnx.helper.make_tensor_value_info(f"{name}:computed", onnx.TensorProto.FLOAT, None)
        cut.graph.output.append(computed)
        (producer,) = (node for node in cut.graph.node if name in node.output)
        producer.output[list(producer.output).index(name)] = f"{name}:computed"
        shape = next(info for info in whole.graph.value_info if info.name == name)
        cut.graph.input.append(shape)
    del whole.graph.value_info[:], cut.graph.value_info[:]
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    sessions = [
        onnxruntime.InferenceSession(m.SerializeToString(), settings, providers=["CPUExecutionProvider"])
        for m in (whole, cut)
    ]

    def execute(images: Array, forced: Mapping[str, Array] | None) -> dict[str, Array]:
        session = sessions[forced is not None]
        inputs = {"images": images, **(forced or {})}
        inputs = {spec.name: inputs[spec.name] for spec in session.get_inputs()}
        names = [spec.name for spec in session.get_outputs()]
        return {
            name.removesuffix(":computed"): out for name, out in zip(names, session.run(names, inputs), strict=True)
        }

    return execute


def lived_in(net: nn.Module, images: Tensor) -> None:
    """Batch norms with the statistics of the images, and a scale and shift of their own, as training leaves them."""
    norms = [m for m in net.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.momentum = None  # the mean over all batches
        if norm.affine:
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, 0.3, 0.5)
    net.train()
    with torch.no_grad():
        net(images[:32])
    net.eval()
