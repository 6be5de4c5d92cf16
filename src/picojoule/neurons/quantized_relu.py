"""The quantised ReLU: what an integrate-and-fire neuron does in a single step, made trainable.

    y = ⌊max(0, x)⌋,    ∂y/∂x = 1 where x > 0

Its values are whole numbers of spikes, so it counts as a spiking layer that may fire several times: meter and penalty
see it (Sorbaro et al., 2020).
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from torch.autograd import Function

from picojoule.neurons.spike import takes_forward_mode


def quantized_relu(x: Tensor) -> Tensor:
    """Round down to whole numbers from 0 up, ``⌊max(0, x)⌋``, with the gradient of the ReLU.

    Args:
        x: Of any shape.

    Returns:
        Whole numbers of spikes, in the dtype and shape of ``x``.

    >>> import torch
    >>> x = torch.tensor([-0.5, 0.5, 2.5], requires_grad=True)
    >>> y = quantized_relu(x)
    >>> y.detach()
    tensor([0., 0., 2.])
    >>> y.sum().backward()
    >>> x.grad
    tensor([0., 1., 1.])
    """
    kind = _ForwardQuantizedReLU if takes_forward_mode(x) else _QuantizedReLU
    y: Tensor = kind.apply(x)  # type: ignore[no-untyped-call]
    return y


class QuantizedReLU(nn.Module):
    """The quantised ReLU ``⌊max(0, x)⌋``, without memory; `convert` makes an integrate-and-fire neuron of it.

    >>> import torch
    >>> QuantizedReLU()(torch.tensor([-0.5, 0.5, 2.5]))
    tensor([0., 0., 2.])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Round down to whole numbers from 0 up.

        Args:
            x: Of any shape.

        Returns:
            Whole numbers of spikes.
        """
        return quantized_relu(x)


class _QuantizedReLU(Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.clamp(min=0).floor_()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(inputs[0] > 0)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        positive: Tensor = ctx.saved_tensors[0]
        return grad * positive


class _ForwardQuantizedReLU(_QuantizedReLU):
    """The same with a forward-mode derivative, which `torch.compile` does not take."""

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        positive = inputs[0] > 0
        ctx.save_for_backward(positive)
        ctx.save_for_forward(positive)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        positive: Tensor = ctx.saved_tensors[0]
        return tangent * positive
