"""Checks for layers that do something else than their class, weights and settings say.

Whoever reads a layer (its weights, its stride, its threshold) instead of calling it asks here first: hooks, a method
set on the instance, or a class derived from PyTorch's own may change what the layer does without changing what it
shows.
"""

from __future__ import annotations

import inspect
import re
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from picojoule.errors import PicojouleError
from picojoule.kernels.event_driven.layers import dense_class
from picojoule.kernels.torch_private import forward_hooks, forward_pre_hooks, global_forward_hooks

_KNOWN = re.compile(r"torch\.nn\.modules\.|picojoule(\.|$)")
"""Where the classes live whose forward pass is known."""


class Alteration(NamedTuple):
    """What is altered about a layer, as a clause to follow "which", and what to do about it."""

    what: str
    remedy: str


def alteration(layer: nn.Module) -> Alteration | None:
    """Find what keeps a layer from being what its class, weights and settings say.

    Hooks of `torch.nn.utils` that only compute weights (pruning, weight norm, spectral norm) are not an alteration:
    after a forward pass the layer shows what they computed.

    Args:
        layer: The layer.

    Returns:
        The first alteration that is found, or None for a plain layer.

    Example:
        >>> layer = nn.Linear(2, 2)
        >>> alteration(layer)
        >>> _ = layer.register_forward_hook(lambda module, inputs, output: 2 * output)
        >>> alteration(layer)
        Alteration(what='has forward hooks', remedy='remove them')
    """
    hooked = hooks_of(layer)
    if hooked is not None:
        return hooked
    plain = dense_class(layer)
    kinds = (kind for kind in plain.__mro__ if issubclass(kind, nn.Module))
    kind = next(kind for kind in kinds if _KNOWN.match(kind.__module__))  # nn.Module is the last of them
    replaced = [name for name in vars(layer) if inspect.isroutine(getattr(plain, name, None))]
    if replaced:
        return Alteration(f"has a {replaced[0]} of its own, set on the instance", "make it a module of its own class")
    if plain.forward is not kind.forward or not _KNOWN.match(kind.forward.__module__):
        home = kind.__module__.partition(".")[0]
        return Alteration(f"has another forward pass than the {kind.__name__} of {home}", "use that one as it is")
    return None


def hooks_of(module: nn.Module) -> Alteration | None:
    """Find hooks that may change what goes into a module or comes out of it.

    Args:
        module: The module.

    Returns:
        The alteration, or None if there are no such hooks.
    """
    if forward_hooks(module):
        return Alteration("has forward hooks", "remove them")
    if not all(map(_computes_weights, forward_pre_hooks(module).values())):
        return Alteration("has forward pre-hooks", "remove them")
    return None


def computes_weights(layer: nn.Module) -> bool:
    """Say whether some of a layer's weights are made from others in every pass, so that what it shows may be stale.

    Args:
        layer: The layer.

    Returns:
        True for layers that are pruned, parametrised or normed by weight.

    Example:
        >>> computes_weights(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)))
        True
    """
    held = {"weight", "bias"} & vars(layer).keys()  # where a hook puts them
    return bool(held) or is_parametrized(layer) or any(map(_computes_weights, forward_pre_hooks(layer).values()))


def unreadable_weights(layer: nn.Module) -> str | None:
    """Find weights that are not plain tensors of numbers.

    Args:
        layer: The layer.

    Returns:
        What kind of tensor they are, or None if all are plain.

    Example:
        >>> unreadable_weights(nn.Linear(2, 2, device="meta"))
        'on no device'
    """
    for tensor in (getattr(layer, name, None) for name in ("weight", "bias")):
        if not isinstance(tensor, Tensor):
            continue
        if type(tensor) not in (Tensor, nn.Parameter, nn.Buffer):
            return type(tensor).__name__
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            return "on no device" if tensor.device.type == "meta" else str(tensor.layout)
    return None


def refuse_low_precision(tensor: Tensor, what: str) -> None:
    """Refuse numbers of few digits, which engines and files of float32 would not round as the network does.

    In bfloat16 one potential in hundreds sits exactly on the threshold, so that the rounding decides about its spike.

    Args:
        tensor: A result of the network.
        what: The destination that would compute it in float32.

    Raises:
        PicojouleError: If its type has fewer than 32 bits.
    """
    if tensor.is_floating_point() and torch.finfo(tensor.dtype).bits < 32:
        raise PicojouleError(
            f"{what} computes in float32 and this network, or a part of it, in "
            f"{str(tensor.dtype).removeprefix('torch.')}, which rounds potentials to other spikes: make all of it "
            "float32 with .float() and compare the two, or run it with PyTorch"
        )


def refuse_global_hooks(what: str) -> None:
    """Refuse hooks for every module of the process, which change what each layer does, whatever it shows itself.

    Args:
        what: The destination that would leave them out.

    Raises:
        PicojouleError: If one is registered.
    """
    for hook in global_forward_hooks():
        name = getattr(hook, "__qualname__", type(hook).__name__)
        raise PicojouleError(
            f"a forward hook for all modules is registered ({name}), which {what} would leave out: remove it first"
        )


def _computes_weights(hook: object) -> bool:
    if isinstance(hook, BasePruningMethod):
        return type(hook).__call__ is BasePruningMethod.__call__
    return type(hook) in (WeightNorm, SpectralNorm)
