"""Layers of synapses that skip silent inputs in training: `sparse` makes a network's layers such, `dense` undoes it.

A module keeps its identity, its parameters, hooks and place in the state dict; only its class gains a part that
computes by events where that is faster (`choice`). Everything else takes the dense path: evaluation, other dtypes and
devices, `torch.compile`, transforms such as vmap, activation checkpointing, tensor subclasses, and everything where
Numba is not installed.

What it gains: time, at most the two thirds of a layer that are output and weight gradient, by `benchmarks/training.py`;
and memory, since bits are kept in the place of inputs. Results differ in the order of sums.
PICOJOULE_SPARSE=0 leaves every layer dense.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from picojoule.errors import PicojouleError
from picojoule.io.background import Task
from picojoule.io.extras import lacks_numba
from picojoule.kernels.event_driven.choice import NO_SPIKES, Choice
from picojoule.kernels.event_driven.geometry import Geometry, geometry_of
from picojoule.kernels.event_driven.versions import Versions
from picojoule.kernels.switches import Switch
from picojoule.kernels.torch_private import (
    has_own_convolution,
    in_backward,
    is_traced,
    is_transformed,
    modes_are_active,
    saved_tensors_are_packed,
)

Net = TypeVar("Net", bound=nn.Module)


def sparse(net: Net, *, measured: bool = False) -> Net:
    """Let a network's convolutions and linear layers skip silent inputs in training, where that is faster.

    Convolutions of one or two dimensions and linear layers then compute their output and their weight gradient from
    the inputs that are not zero. Each measures how active its inputs are, compares that with the share up to which
    events are faster, and chooses; a layer that is fed by anything but spikes stays dense. The gradient is the same up
    to the order of sums. Average pools keep the shape of their inputs in place of the inputs.

    The network itself is changed and returned; names, parameters, state dict and results in evaluation stay as they
    are. It needs Numba, without which every layer stays dense, and works on the CPU, in float32 and bfloat16.

    Three things differ from the dense layers: a weight that is NaN or infinite does not show while its input is silent
    (0 times it is NaN in the dense layer); `type(layer) is nn.Linear` is False, though `isinstance` holds; and
    `torch.jit.script` does not take the layers. `dense` undoes all of them.

    Args:
        net: Any network. Layers that are event-driven already stay as they are.
        measured: Whether that share is measured on this machine, once for each shape, where it is otherwise computed
            from constants: better on unusual processors, but other choices, and bits, from one machine to another.

    Returns:
        The same network.

    Raises:
        PicojouleError: If it is not an `nn.Module`.

    >>> net = sparse(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten(), nn.Linear(8, 2)))
    >>> list(choices(net)), isinstance(net[0], nn.Conv2d)
    (['0', '2'], True)
    """
    _check(net, "sparse")
    module: Any  # whose class is about to change
    for module in net.modules():
        base = _base_of(module)
        if base is not None:
            module.__class__ = _event_class(type(module), base)
            if isinstance(module, EventDriven):
                module.event_choice = Choice(measured=measured)
    return net


def dense(net: Net) -> Net:
    """Make the layers of a network what they were before `sparse`.

    Args:
        net: Any network.

    Returns:
        The same network.

    Raises:
        PicojouleError: If it is not an `nn.Module`, or the class of a layer was changed again since.

    >>> net = sparse(nn.Sequential(nn.Conv2d(3, 8, 3)))
    >>> type(dense(net)[0]) is nn.Conv2d
    True
    """
    _check(net, "dense")
    layers = {name: module for name, module in net.named_modules() if isinstance(module, Altered)}
    for name, module in layers.items():
        if "dense_class" not in vars(type(module)):
            raise PicojouleError(
                f"the class of the layer {name!r} was changed after picojoule.sparse, as parametrizations do: undo "
                "that first"
            )
    plain: Any
    for plain in layers.values():
        if isinstance(plain, EventDriven):
            del plain.event_choice
        plain.__class__ = type(plain).dense_class
    return net


def choices(net: nn.Module) -> dict[str, Choice]:
    """Return what each event-driven layer has measured and decided.

    Args:
        net: Any network.

    Returns:
        The choices by the layers' names, in the order of the modules; empty for a network that is not `sparse`.
    """
    return {name: module.event_choice for name, module in net.named_modules() if isinstance(module, EventDriven)}


def dense_class(module: nn.Module) -> type[nn.Module]:
    """Return the class that a module has where nothing is event-driven.

    Args:
        module: Any module.

    Returns:
        Its class, or the one that it had before `sparse`.

    >>> dense_class(sparse(nn.Linear(2, 2))) is nn.Linear
    True
    """
    return type(module).dense_class if isinstance(module, Altered) else type(module)


def _check(net: object, who: str) -> None:
    if not isinstance(net, nn.Module):
        raise PicojouleError(f"{who} needs an nn.Module, not {type(net).__name__}: pass the network itself")


# --- The layers ------------------------------------------------------------------------------------------------------


class Altered(nn.Module):
    """The part that the class of a layer gains, between that class and PyTorch's own."""

    dense_class: ClassVar[type[nn.Module]]

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The class of an altered layer has no name under which a copy or a pickle could find it.
        return _blank, (type(self).dense_class,), self.__dict__


class EventDriven(Altered):
    """The part of an altered layer of synapses that computes it by events where the choice falls on them."""

    event_choice: Choice
    weight: Tensor

    def by_events(self, x: Tensor, weight: Tensor, bias: Tensor | None, shape: Geometry | None) -> Tensor | None:
        """Compute the output of a batch by events, if the choice falls on them.

        Args:
            x: [images, channels, height, width].
            weight: The weight, of four axes.
            bias: The bias, if there is one.
            shape: The shape of the call; None for one that the kernels do not know.

        Returns:
            The output; None where the dense path is due.
        """
        if shape is None or not self.event_choice.take_call(x, shape):
            return None
        kernels = _kernels.result()
        assert kernels is not None  # or no call would have come here
        y, active = kernels.event_convolution(x, weight, bias, shape)
        self.event_choice.decide(active / max(x.numel(), 1), x, shape)
        output: Tensor = y
        return output

    def keeping_less(self, x: Tensor) -> AbstractContextManager[object]:
        """Keep the inputs of a dense call for its backward pass in half the memory, where nothing is lost.

        Args:
            x: The inputs. Pooled spikes and sums of spikes are short numbers, which bfloat16 has too; plain spikes are
                left as they are, because they are seldom so many that the dense path is due.

        Returns:
            The context in which the dense path is to be taken.
        """
        activity = self.event_choice.activity
        if activity is None or activity > NO_SPIKES or x.dtype != torch.float32 or torch.is_autocast_enabled("cpu"):
            return nullcontext()
        sample = (x if x.is_contiguous() else x[:1]).detach().flatten()[:_SAMPLE]
        active = sample[sample != 0]
        if not len(active) or bool((active == active[0]).all()) or not torch.equal(active.bfloat16().float(), active):
            return nullcontext()
        return saved_tensors_hooks(_Kept, _Kept.tensor)


_SAMPLE = 1 << 12
"""Inputs that show whether they are short numbers, before all of them are tried."""


class _Kept:
    """What autograd keeps of a dense call: a tensor of float32, as bfloat16 if nothing is lost."""

    def __init__(self, x: Tensor) -> None:
        self._versions, self._tensor, self._kind = Versions(x), x, x.dtype
        if x.dtype == torch.float32 and not isinstance(x, nn.Parameter):
            short = x.detach().bfloat16()
            self._tensor = short if torch.equal(short.float(), x.detach()) else x

    def tensor(self) -> Tensor:
        self._versions.check()
        return self._tensor.to(self._kind)


class _EventConv2d(EventDriven, nn.Conv2d):
    def forward(self, input: Tensor) -> Tensor:
        kind = _kind_of_number(self, input)
        if kind is not None and input.dim() == 4:
            x = input.to(kind)
            y = self.by_events(x, self.weight, self.bias, geometry_of(self, x))
            if y is not None:
                return _laid_out_like(x, y)
            with self.keeping_less(input):
                return super().forward(input)
        return super().forward(input)


class _EventConv1d(EventDriven, nn.Conv1d):
    def forward(self, input: Tensor) -> Tensor:
        kind = _kind_of_number(self, input)
        if kind is not None and input.dim() == 3:
            x = input.to(kind).unsqueeze(2)
            y = self.by_events(x, self.weight.unsqueeze(2), self.bias, geometry_of(self, x))
            if y is not None:
                return _laid_out_like(x, y).squeeze(2)
            with self.keeping_less(input):
                return super().forward(input)
        return super().forward(input)


class _EventLinear(EventDriven, nn.Linear):
    def forward(self, input: Tensor) -> Tensor:
        kind = _kind_of_number(self, input)
        if kind is not None and input.dim() >= 2:
            x = input.to(kind).reshape(-1, input.shape[-1], 1, 1)
            y = self.by_events(x, self.weight[:, :, None, None], self.bias, geometry_of(self, x))
            if y is not None:
                return y.reshape(*input.shape[:-1], self.out_features)
            with self.keeping_less(input):
                return super().forward(input)
        return super().forward(input)


class _ForgetfulPool(Altered, nn.AvgPool2d):
    """An average pool that keeps the shape of its inputs, where PyTorch keeps the inputs, of which it reads no more."""

    def forward(self, input: Tensor) -> Tensor:
        if torch.compiler.is_compiling() or is_traced() or not (Switch.SPARSE.is_on and _is_plain(input)):
            return super().forward(input)
        if modes_are_active() or in_backward() or saved_tensors_are_packed():
            return super().forward(input)
        with saved_tensors_hooks(lambda x: (x.shape, x.stride(), x.dtype), lambda kept: _unwritten(*kept)):
            return super().forward(input)


def _unwritten(shape: torch.Size, stride: tuple[int, ...], kind: torch.dtype) -> Tensor:
    """Reserve memory that nobody reads or writes, which therefore takes none."""
    return torch.empty_strided(shape, stride, dtype=kind)


def _laid_out_like(x: Tensor, y: Tensor) -> Tensor:
    """Answer in the memory layout in which the dense layer would."""
    return y if x.is_contiguous(memory_format=torch.channels_last) else y.contiguous()


_BASES: dict[type[nn.Module], type[Altered]] = {
    nn.Conv2d: _EventConv2d,
    nn.Conv1d: _EventConv1d,
    nn.Linear: _EventLinear,
    nn.AvgPool2d: _ForgetfulPool,
}


def _base_of(module: nn.Module) -> type[nn.Module] | None:
    """Return PyTorch's class of a layer that can be made event-driven, else None."""
    if isinstance(module, Altered | LazyModuleMixin) or is_parametrized(module):
        return None
    base = next((kind for kind in _BASES if isinstance(module, kind)), None)
    if isinstance(module, nn.Conv1d | nn.Conv2d):
        own = has_own_convolution(type(module), nn.Conv2d if isinstance(module, nn.Conv2d) else nn.Conv1d)
        return None if own or module.padding_mode != "zeros" else base
    return base


_classes: dict[type[nn.Module], type[Altered]] = {}


def _event_class(kind: type[nn.Module], base: type[nn.Module]) -> type[Altered]:
    """Return the class of modules like these that can compute by events.

    The event-driven part stands between the class and PyTorch's own, so that a derived class keeps what it adds: where
    its forward pass calls that of its base, as those of other frameworks do, events are used inside.
    """
    if kind not in _classes:
        part = _BASES[base]
        names = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
        parents = (part,) if kind is base else (kind, part)
        _classes[kind] = type(kind.__name__, parents, {**names, "dense_class": kind})
    return _classes[kind]


def _blank(kind: type[nn.Module]) -> nn.Module:
    """Make an event-driven layer of such a class, before its state is set."""
    base = next(base for base in _BASES if issubclass(kind, base))
    made: Any = _event_class(kind, base)
    module: nn.Module = made.__new__(made)
    return module


# --- When events can be used -----------------------------------------------------------------------------------------


def _imported_kernels() -> ModuleType | None:
    """Import the kernels, which bring the compiler; None where that is not installed."""
    try:
        from picojoule.kernels.event_driven import convolution
    except ModuleNotFoundError as missing:
        if not lacks_numba(missing):
            raise
        return None
    return convolution


_kernels = Task(_imported_kernels)
"""In a thread of its own: Ctrl-C in the midst of an import would leave half of Numba behind."""

_NUMBERS = (torch.float32, torch.bfloat16)


def _kind_of_number(layer: EventDriven, x: Tensor) -> torch.dtype | None:
    """Return the dtype that a layer computes in, if it may do so by events."""
    if not layer.training or torch.compiler.is_compiling() or not torch.is_grad_enabled():
        return None
    if is_traced() or modes_are_active() or in_backward() or saved_tensors_are_packed():
        return None
    if is_parametrized(layer) or not (_is_plain(x) and _is_plain(layer.weight)) or not layer.weight.requires_grad:
        return None
    if x.numel() == 0 or not Switch.SPARSE.is_on or _kernels.result() is None:
        return None
    if torch.is_autocast_enabled("cpu"):
        kind = torch.get_autocast_dtype("cpu")
        return kind if kind == torch.bfloat16 and {x.dtype, layer.weight.dtype} <= set(_NUMBERS) else None
    return x.dtype if x.dtype in _NUMBERS and x.dtype == layer.weight.dtype else None


def _is_plain(x: Tensor) -> bool:
    """Return whether a tensor is dense memory of a CPU, of no subclass and outside every transform."""
    if type(x) not in (Tensor, nn.Parameter) or is_transformed(x):
        return False
    return x.device.type == "cpu" and x.layout is torch.strided
