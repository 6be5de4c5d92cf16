"""A snapshot of a model, which puts it back exactly as it was found."""

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
from picojoule.kernels.torch_private import is_view, sparse_parts, version
from picojoule.spikes.hooks import exclusive_hooks


@contextlib.contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put a model back after the block: values, modes, states and random numbers are those that it came with.

    Covers attributes that a forward pass replaces (a membrane potential, a step counter), containers and tensors that
    it writes in place (a list of spikes, batch-norm statistics, buffers), gradients, and PyTorch's random number
    generators. Not covered is what the model keeps outside its modules: in other objects, globals or files. One thread
    at a time is in such a block; the others wait.

    Args:
        model: The network.

    Raises:
        PicojouleError: The model holds something that could not be put back, or that was not.
    """
    with exclusive_hooks():
        held = _Snapshot()
        for module in model.modules():
            held.remember(vars(module))
        devices = {tensor.tensor.device for tensor in held.tensors}
        with torch.random.fork_rng(devices=[d.index for d in devices if d.type == "cuda"]):
            try:
                yield
            finally:
                held.restore()


class _Snapshot:
    """Everything that a module's attributes hold: containers with their contents, tensors with their values."""

    def __init__(self) -> None:
        self.containers: list[Callable[[], None]] = []
        self.tensors: list[_TensorBefore] = []
        self._seen: dict[int, Any] = {}

    def restore(self) -> None:
        """Put back everything that can be; then, if something could not, say so."""
        failures: list[Exception] = []
        with torch.inference_mode(False), torch.no_grad():
            for restore in (*self.containers, *(tensor.restore for tensor in self.tensors)):
                try:
                    restore()
                except Exception as failure:
                    failures.append(failure)
        if failures:
            raise PicojouleError(
                f"{len(failures)} of the model's tensors or attributes could not be put back as they were "
                f"({failures[0]}): do not use this model any further"
            ) from failures[0]

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
                "the model has parameters without a shape yet (lazy modules): run it once on real data first"
            )
        grad = tensor.grad if tensor.is_leaf else None
        try:
            memory = tensor.detach()
            value = memory.clone()
            if not tensor.is_meta:  # what will be asked of it later must be possible
                _places(tensor)
                _equal(_corner(memory), _corner(value))
        except Exception as failure:
            raise PicojouleError(
                f"the model holds a {type(tensor).__name__} ({tensor.layout}) that cannot be copied and compared "
                f"({failure}), so it could not be put back as it was: make it an ordinary tensor"
            ) from failure
        return cls(tensor, _version(tensor), memory, value, tensor.requires_grad, tensor.is_leaf, grad)

    def restore(self) -> None:
        tensor = self.tensor
        if self.is_leaf and not tensor.is_leaf and not is_view(tensor):
            tensor.detach_()
        if tensor.is_leaf and tensor.requires_grad != self.requires_grad:
            tensor.requires_grad_(self.requires_grad)
        if tensor.is_leaf and tensor.grad is not self.grad:
            tensor.grad = self.grad
        if not tensor.is_meta:  # which has no numbers
            self._restore_numbers()

    def _restore_numbers(self) -> None:
        tensor = self.tensor
        if _places(tensor) != _places(self.memory) or tensor.shape != self.memory.shape:
            tensor.data = self.memory
        # Writing back what nobody changed would disturb a pending backward pass. Writes through .data show in the
        # values only.
        if _version(tensor) != self.version or not _equal(self.memory, self.value):
            self.memory.copy_(self.value)


def _parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """List the tensors that hold the numbers: those of a sparse one are several."""
    if tensor.layout == torch.sparse_coo:
        return sparse_parts(tensor)
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)


def _places(tensor: Tensor) -> list[int]:
    """Find where the numbers lie in memory."""
    return [part.data_ptr() for part in _parts(tensor)]


def _equal(left: Tensor, right: Tensor) -> bool:
    return all(map(torch.equal, _parts(left), _parts(right)))


def _corner(tensor: Tensor) -> Tensor:
    """Take one element of a tensor, to try on it what would take long on all; of a sparse one, all."""
    return tensor[(slice(1),) * tensor.dim()] if tensor.layout == torch.strided else tensor


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else version(tensor)
