"""A model put back exactly as it was found."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from picojoule.errors import PicojouleError


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Whatever happens inside, the model leaves with the values, modes, states and random numbers that it came with.

    Covers attributes that a forward pass replaces (a membrane potential, a step counter), containers and tensors that
    it writes in place (a list of spikes, batch-norm statistics, buffers), gradients, and PyTorch's random number
    generators. Not covered is what the model keeps outside its modules: in other objects, globals or files.
    """
    held = _Held()
    for module in model.modules():
        held.remember(vars(module))
    devices = {tensor.tensor.device for tensor in held.tensors}
    with torch.random.fork_rng(devices=[d.index for d in devices if d.type == "cuda"]):
        try:
            yield
        finally:
            with torch.inference_mode(False), torch.no_grad():
                for tensor in held.tensors:
                    tensor.restore()
            for restore in held.containers:
                restore()


class _Held:
    """Everything that a module's attributes hold: containers with their contents, tensors with their values."""

    def __init__(self) -> None:
        self.containers: list[Callable[[], None]] = []
        self.tensors: list[_TensorBefore] = []
        self._seen: dict[int, Any] = {}

    def remember(self, value: Any) -> None:
        if id(value) in self._seen:
            return
        if isinstance(value, Tensor):
            self._seen[id(value)] = value
            self.tensors.append(_TensorBefore.of(value))
        elif isinstance(value, dict):
            self._contents(value, list(value.values()), partial(_refill_dict, value, dict(value)))
        elif isinstance(value, list):
            self._contents(value, value, partial(value.__setitem__, slice(None), list(value)))
        elif isinstance(value, deque | set):
            self._contents(value, value, partial(_refill, value, list(value)))
        elif isinstance(value, tuple):
            self._contents(value, value, None)

    def _contents(self, container: Any, contents: Any, restore: Callable[[], None] | None) -> None:
        self._seen[id(container)] = container
        if restore is not None:
            self.containers.append(restore)
        for value in contents:
            self.remember(value)


def _refill_dict(container: dict[Any, Any], before: dict[Any, Any]) -> None:
    container.clear()
    container.update(before)


def _refill(container: deque[Any] | set[Any], before: list[Any]) -> None:
    container.clear()
    extend = container.extend if isinstance(container, deque) else container.update
    extend(before)


@dataclass(frozen=True)
class _TensorBefore:
    tensor: Tensor
    version: int
    memory: Tensor
    """The same memory, in case the tensor is given another."""
    value: Tensor
    requires_grad: bool
    is_leaf: bool
    grad: Tensor | None

    @classmethod
    def of(cls, tensor: Tensor) -> _TensorBefore:
        if is_lazy(tensor):
            raise PicojouleError(
                "the model has parameters without a shape yet (lazy modules): run it once on real data before"
            )
        memory = tensor.detach()
        grad = tensor.grad if tensor.is_leaf else None
        return cls(tensor, _version(tensor), memory, memory.clone(), tensor.requires_grad, tensor.is_leaf, grad)

    def restore(self) -> None:
        tensor = self.tensor
        if self.is_leaf and not tensor.is_leaf and not tensor._is_view():
            tensor.detach_()
        if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad
        if tensor.data_ptr() != self.memory.data_ptr() or tensor.shape != self.memory.shape:
            tensor.data = self.memory
        # Writing back what nobody changed would disturb a pending backward pass. Writes through .data show in the
        # values only.
        if _version(tensor) != self.version or not torch.equal(self.memory, self.value):
            self.memory.copy_(self.value)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version
