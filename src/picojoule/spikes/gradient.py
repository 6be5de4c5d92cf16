"""Spikes that are recorded without a gradient though the network trains: a penalty on them would train nothing.

If gradients were off when the network was called, nobody wants any. Inside the `forward` of an autograd function (a
reentrant checkpoint, a reversible block) they come back in the backward pass, from a second run that nothing recorded
has a part in. A `no_grad` or `detach` of the network's own cuts them, and so does a neuron without a surrogate
gradient: that is as it should be behind frozen weights, and a mistake behind weights that train. The weights meant are
those that were used last before the layer fired.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.kernels.torch_private import forward_mode_gradients_are_on, is_transformed


class Lost(enum.Enum):
    """How spikes lost their gradient: where, and what to do."""

    FUNCTION = (
        "inside an autograd function such as a reentrant checkpoint",
        "give torch.utils.checkpoint use_reentrant=False",
    )
    NO_GRAD = (
        "under torch.no_grad() inside the network, though the weights before them train",
        "take no_grad away there, or freeze those weights with requires_grad_(False)",
    )
    CUT = (
        "though gradients are on and the weights before them train",
        "give the neuron a surrogate gradient, or take away the detach() before it",
    )

    def __init__(self, where: str, instead: str) -> None:
        self.where = where
        self.instead = instead


class GradientWatch:
    """Finds out for every call of a layer whether a gradient was expected and lost.

    Args:
        model: The network that is watched.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._expected = torch.is_grad_enabled()
        self._used_last: nn.Module | None = None

    def begin(self, module: nn.Module, arguments: Any) -> None:
        """Note whether gradients are expected: a forward pre-hook of the whole model.

        Args:
            module: The model.
            arguments: What it is called with.
        """
        if not _inside_autograd_function():
            self._expected = torch.is_grad_enabled()

    def uses(self, module: nn.Module, arguments: Any) -> None:
        """Note which weights are used: a forward pre-hook of a module that has weights of its own.

        Args:
            module: The module.
            arguments: What it is called with.
        """
        self._used_last = module

    def lost(self, layer: nn.Module, spikes: Tensor) -> Lost | None:
        """Find out how the spikes of the layer that is running have lost their gradient.

        Args:
            layer: A module of the model.
            spikes: What it has emitted.

        Returns:
            How, or None if they have a gradient or none is expected.
        """
        if not self._expected or spikes.requires_grad or is_transformed(spikes):
            return None
        if _inside_autograd_function():
            return Lost.FUNCTION if _trains(self._model.parameters()) else None
        if not layer.training or self._used_last is None or not _trains(self._used_last.parameters(recurse=False)):
            return None
        return Lost.CUT if torch.is_grad_enabled() else Lost.NO_GRAD


def modules_with_weights(model: nn.Module) -> list[nn.Module]:
    """List the modules that have parameters of their own."""
    return [module for module in model.modules() if next(module.parameters(recurse=False), None) is not None]


def _trains(parameters: Iterable[nn.Parameter]) -> bool:
    return any(parameter.requires_grad for parameter in parameters)


def _inside_autograd_function() -> bool:
    """Return whether an autograd function's `forward` is running.

    There, unlike under `no_grad`, forward-mode gradients are off too; inference mode switches off both.
    """
    return not forward_mode_gradients_are_on() and not torch.is_inference_mode_enabled()
