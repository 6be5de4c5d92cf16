"""Spikes that are recorded without a gradient though the network trains: a penalty on them would train nothing.

Three things may switch gradients off while a layer fires. If they were off when the network was called, nobody wants
any. Inside the `forward` of an autograd function (a reentrant checkpoint, a reversible block) they come back in the
backward pass, from a second run that nothing recorded has a part in. A `no_grad` of the network's own cuts them: that
is as it should be in front of frozen weights, and a mistake in front of weights that train.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from picojoule.kernels.torch_private import forward_mode_gradients_are_on


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

    def begin(self, module: nn.Module, arguments: Any) -> None:
        """Note whether gradients are expected: a forward pre-hook of the whole model.

        Args:
            module: The model.
            arguments: What it is called with.
        """
        if not _inside_autograd_function():
            self._expected = torch.is_grad_enabled()

    def lost(self, layer: nn.Module) -> Lost | None:
        """Find out how the layer that is running has lost its gradient.

        Args:
            layer: A module of the model.

        Returns:
            How, or None if it has a gradient or none is expected.
        """
        if torch.is_grad_enabled() or not self._expected:
            return None
        if _inside_autograd_function():
            return Lost.FUNCTION if _trains(self._model.parameters()) else None
        return Lost.NO_GRAD if layer.training and _trains(self._weights_before(layer)) else None

    def _weights_before(self, layer: nn.Module) -> Iterable[nn.Parameter]:
        """Return the weights of the last module that has any, up to the layer itself, in the order of the model."""
        nearest: list[nn.Parameter] = []
        for module in self._model.modules():
            nearest = list(module.parameters(recurse=False)) or nearest
            if module is layer:
                break
        return nearest


def _trains(parameters: Iterable[nn.Parameter]) -> bool:
    return any(parameter.requires_grad for parameter in parameters)


def _inside_autograd_function() -> bool:
    """Return whether an autograd function's `forward` is running.

    There, unlike under `no_grad`, forward-mode gradients are off too; inference mode switches off both.
    """
    return not forward_mode_gradients_are_on() and not torch.is_inference_mode_enabled()
