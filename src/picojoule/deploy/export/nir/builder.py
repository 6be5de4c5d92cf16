"""A NIR graph in the making: nodes, edges, and the currents between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import nir
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, fx

from picojoule.deploy.export.nir.readers import Reader
from picojoule.deploy.graph.nodes import enclosing_modules, operation_name
from picojoule.deploy.graph.refusal import Unsupported

Readout = Literal["mean", "sum"]


@dataclass(frozen=True, eq=False)
class Current:
    """What flows at one place of the network: the sum of what nodes put out, plus a constant [B, …] in float64.

    Over T time steps the constant is [T·B, …], whether the network has [T·B, …] or, split, [T, B, …] there.
    """

    sources: tuple[str, ...]
    constant: Tensor
    shared: bool = False
    """Whether something else reads it too, so that its node must stay as it is."""
    steps: int = 1
    split: bool = False
    readout: Readout | None = None
    """What the network made of the steps, where it has read them out."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one sample in one step."""
        return tuple(self.constant.shape[1:])

    @property
    def full_shape(self) -> tuple[int, ...]:
        """The shape that the network has there."""
        rows = len(self.constant)
        return (self.steps, rows // self.steps, *self.shape) if self.split else (rows, *self.shape)


@dataclass(eq=False)
class PendingLayer:
    """A convolution or linear layer before it is written: scales and shifts may still fold into it."""

    weight: Tensor  # float64, output channels first
    bias: Tensor  # float64
    write: Callable[[NDArray[np.float32], NDArray[np.float32]], nir.NIRNode]

    def node(self) -> nir.NIRNode:
        """Write the layer with the weights that it has now.

        Returns:
            The node.
        """
        return self.write(float32_array(self.weight), float32_array(self.bias))


class GraphBuilder:
    """What the rules of translation add nodes and edges to.

    Args:
        reader: The program that is to read the graph.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.nodes: dict[str, nir.NIRNode | PendingLayer] = {}
        self.edges: list[tuple[str, str]] = []
        self.node: fx.Node
        """The operation that is being translated."""

    def current(self, name: str | None, node: nir.NIRNode | PendingLayer, x: Current, constant: Tensor) -> Current:
        """Add a node behind a current.

        Args:
            name: The node's name; that of the module around the operation where it is None.
            node: The node.
            x: What it takes.
            constant: The constant that travels on behind it.

        Returns:
            The current behind the node.
        """
        return replace(x, sources=(self.add(name or self.place(), node, x.sources),), constant=constant, shared=False)

    def place(self) -> str:
        """Name the innermost module around the operation, or the operation if the network itself calls it.

        Returns:
            The name that a node for the operation gets.
        """
        around = enclosing_modules(self.node)
        return next((part for part in reversed(around) if part), operation_name(self.node))

    def add(self, name: str, node: nir.NIRNode | PendingLayer, sources: tuple[str, ...]) -> str:
        """Add a node and the edges that lead to it.

        Args:
            name: The node's name; a number is added where it is taken.
            node: The node.
            sources: The nodes that it reads.

        Returns:
            The name that it got.
        """
        taken = sum(other == name or other.startswith(f"{name}:") for other in self.nodes)
        name = f"{name}:{taken + 1}" if taken else name
        self.nodes[name] = node
        self.edges += [(source, name) for source in sources]
        return name

    def foldable_layer(self, x: Current) -> PendingLayer | None:
        """Find the layer of weights that a scale or shift behind it may fold into.

        Args:
            x: The current that is scaled or shifted.

        Returns:
            The layer that the current comes from, or None if something else contributes to it or reads it too.
        """
        node = self.nodes[x.sources[0]]
        sole = len(x.sources) == 1 and not x.shared and not x.constant.any()
        return node if sole and isinstance(node, PendingLayer) else None

    def with_bias_layer(self, x: Current) -> Current:
        """Give a constant that reached the output a layer of its own.

        Args:
            x: The current at the output.

        Returns:
            The same current without a constant.

        Raises:
            Unsupported: If the constant is added to a map.
        """
        if not x.constant.any():
            return x
        if len(x.shape) != 1:
            raise Unsupported(because="an output map to which a constant is added")
        affine = nir.Affine(np.eye(x.shape[0], dtype=np.float32), float32_array(x.constant[0]))
        return self.current("bias", affine, x, torch.zeros_like(x.constant))


def float32_array(tensor: Tensor) -> NDArray[np.float32]:
    """Round a tensor to a contiguous NumPy array of float32.

    Args:
        tensor: A tensor on the CPU.

    Returns:
        The array.
    """
    return np.ascontiguousarray(tensor.numpy(), dtype=np.float32)


def checked_by_nir(node: nir.NIRNode) -> bool:
    """Say whether the shape that `nir` works out for a node is right: it takes every kernel for square and ungrouped.

    Args:
        node: Any node.

    Returns:
        False for convolutions with groups or an oblong kernel.
    """
    groups, weight = getattr(node, "groups", 1), getattr(node, "weight", np.ones((1, 1, 1, 1)))
    return groups == 1 and len(set(weight.shape[2:])) <= 1
