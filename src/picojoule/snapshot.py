"""A model put back exactly as it was found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Whatever happens inside, the model leaves with the values, modes, states and random numbers that it came with.

    Covers attributes that a forward pass replaces (a membrane potential, a step counter), tensors that it writes in place
    (batch-norm statistics, buffers), gradients, and PyTorch's random number generators.
    """
    containers: list[tuple[dict[str, Any], dict[str, Any]]] = []
    tensors: dict[int, tuple[Tensor, int, Tensor, Tensor | None]] = {}
    for module in model.modules():
        for held in (module.__dict__, *(v for v in module.__dict__.values() if isinstance(v, dict))):
            containers.append((held, dict(held)))
            for leaf in tree_flatten(list(held.values()))[0]:
                if isinstance(leaf, Tensor) and id(leaf) not in tensors:
                    tensors[id(leaf)] = (
                        leaf,
                        _version(leaf),
                        leaf.detach().clone(),
                        leaf.grad if leaf.is_leaf else None,
                    )
    devices = {tensor.device for tensor, *_ in tensors.values()}
    with torch.random.fork_rng(devices=[d.index for d in devices if d.type == "cuda"]):
        try:
            yield
        finally:
            with torch.no_grad():
                for tensor, version, value, grad in tensors.values():
                    if tensor.is_leaf and tensor.grad is not grad:
                        tensor.grad = grad
                    if _version(tensor) != version or version < 0:
                        tensor.detach().copy_(value)
            for held, before in containers:
                held.clear()
                held.update(before)


def _version(tensor: Tensor) -> int:
    """How often the tensor was written to; writing back what nobody changed would disturb a pending backward pass."""
    return -1 if tensor.is_inference() else tensor._version
