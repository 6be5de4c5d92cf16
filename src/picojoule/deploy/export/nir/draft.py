"""A NIR graph in the making: nodes, edges, and the currents between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import nir
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import operator_name

REMEDY = "build it from Conv1d, Conv2d, Linear, batch norm, average pools, sums and picojoule.Spike, or export to ONNX"
REMEDIES = {
    "relu": "train with picojoule.Spike in place of ReLU, or export to ONNX",
    "cat": "add the two branches, or let each have a convolution of its own and add those, or export to ONNX",
}


@dataclass(frozen=True, eq=False)
class Current:
    """What flows at one place of the network: the sum of what nodes put out, plus a constant [B, …] in float64."""

    sources: tuple[str, ...]
    constant: Tensor
    shared: bool = False
    """Whether something else reads it too, so that its node must stay as it is."""

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.constant.shape[1:])


@dataclass(eq=False)
class Weighted:
    """A convolution or linear layer before it is written: batch norms may still fold into it."""

    weight: Tensor  # float64, output channels first
    bias: Tensor  # float64
    write: Callable[[NDArray[np.float32], NDArray[np.float32]], nir.NIRNode]

    def node(self) -> nir.NIRNode:
        return self.write(numbers(self.weight), numbers(self.bias))


class Draft:
    """What rules add to."""

    def __init__(self) -> None:
        self.nodes: dict[str, nir.NIRNode | Weighted] = {}
        self.edges: list[tuple[str, str]] = []
        self.at: fx.Node
        """The operation that is being translated."""

    def current(self, name: str | None, node: nir.NIRNode | Weighted, x: Current, constant: Tensor) -> Current:
        return Current((self.add(name or self.here(), node, x.sources),), constant)

    def here(self) -> str:
        """The innermost module around the operation, or the operation if the network itself calls it."""
        return next((part for part in reversed(self.path()) if part), operator_name(self.at.target))

    def add(self, name: str, node: nir.NIRNode | Weighted, sources: tuple[str, ...]) -> str:
        taken = sum(other == name or other.startswith(f"{name}:") for other in self.nodes)
        name = f"{name}:{taken + 1}" if taken else name
        self.nodes[name] = node
        self.edges += [(source, name) for source in sources]
        return name

    def own_layer(self, x: Current) -> Weighted | None:
        """The layer of weights that x comes from, if nothing else does and nothing else reads it."""
        node = self.nodes[x.sources[0]]
        sole = len(x.sources) == 1 and not x.shared and not x.constant.any()
        return node if sole and isinstance(node, Weighted) else None

    def without_constant(self, x: Current) -> Current:
        """A constant that reached the output gets a layer of its own."""
        if not x.constant.any():
            return x
        if len(x.shape) != 1:
            raise self.refusal("constant added to an output map")
        affine = nir.Affine(np.eye(x.shape[0], dtype=np.float32), numbers(x.constant[0]))
        return self.current("bias", affine, x, torch.zeros_like(x.constant))

    def path(self) -> list[str]:
        """The names of the modules around the operation, the outermost first."""
        return [str(path).partition("@")[0] for path, _ in self.at.meta.get("nn_module_stack", {}).values()]

    def refusal(self, name: str) -> PicojouleError:
        where = next((repr(part) for part in reversed(self.path()) if part), "the network's own forward pass")
        return PicojouleError(f"NIR cannot express {name} (in {where}): {REMEDIES.get(name, REMEDY)}")


def numbers(tensor: Tensor) -> NDArray[np.float32]:
    return np.ascontiguousarray(tensor.numpy(), dtype=np.float32)


def neurons(v_threshold: NDArray[np.float32]) -> nir.IF:
    """Those that fire at v > v_threshold."""
    return nir.IF(r=np.ones_like(v_threshold), v_threshold=v_threshold, v_reset=np.zeros_like(v_threshold))


def checked_by_nir(node: nir.NIRNode) -> bool:
    """Whether the shape that `nir` works out for a node is right: it takes every kernel for square and ungrouped."""
    groups, weight = getattr(node, "groups", 1), getattr(node, "weight", np.ones((1, 1, 1, 1)))
    return groups == 1 and len(set(weight.shape[2:])) <= 1
