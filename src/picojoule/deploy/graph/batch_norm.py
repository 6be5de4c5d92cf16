"""Batch norm in evaluation: a scale and a shift for each channel, and how they fold into the weights before them.

With the statistics μ, σ² and the parameters γ, β (1 and 0 where there are none),

    y = γ (x − μ)/√(σ² + ε) + β = scale · x + shift,   scale = γ/√(σ² + ε),   shift = β − μ · scale.

Every destination takes scale and shift from here, in the precision that it computes in: the event engine and NIR in
float64, which they round once at the end, the conversion in the network's own.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights, fuse_linear_bn_weights

from picojoule.deploy.graph.refusal import Unsupported
from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import BatchNorm, ConvNd, ConvTransposeNd


class ScaleShift(NamedTuple):
    """A map x ↦ scale · x + shift, channel by channel."""

    scale: Tensor
    shift: Tensor


def scale_and_shift(
    mean: Tensor, variance: Tensor, epsilon: float, weight: Tensor | None = None, bias: Tensor | None = None
) -> ScaleShift:
    """Compute what a batch norm of fixed statistics does to each channel.

    Args:
        mean: The running means μ.
        variance: The running variances σ².
        epsilon: ε, added to the variances.
        weight: γ, or None for 1.
        bias: β, or None for 0.

    Returns:
        Scale and shift, in the precision of what was given.

    Example:
        >>> scale_and_shift(torch.tensor([3.0]), torch.tensor([4.0]), 0.0, bias=torch.tensor([1.0]))
        ScaleShift(scale=tensor([0.5000]), shift=tensor([-0.5000]))
    """
    scale = torch.rsqrt(variance + epsilon) * (1 if weight is None else weight)
    return ScaleShift(scale, (0 if bias is None else bias) - mean * scale)


def scale_and_shift_of(norm: BatchNorm, dtype: torch.dtype | None = None) -> ScaleShift:
    """Compute what a layer of batch norm does to each channel in evaluation.

    Args:
        norm: The layer.
        dtype: The precision to compute in; that of the layer where it is None.

    Returns:
        Scale and shift, detached.

    Raises:
        Unsupported: If the layer normalises by the statistics of each batch.

    Example:
        >>> scale, shift = scale_and_shift_of(nn.BatchNorm1d(3, eps=0.0), torch.float64)
        >>> scale.tolist(), shift.tolist()
        ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    """
    mean, variance = _statistics(norm)
    mean, variance, weight, bias = (
        None if tensor is None else tensor.detach().to(dtype=dtype)
        for tensor in (mean, variance, norm.weight, norm.bias)
    )
    return scale_and_shift(mean, variance, norm.eps, weight, bias)


def fold_into(layer: ConvNd | nn.Linear, norm: BatchNorm) -> None:
    """Fold a batch norm into the weights and bias of the layer directly before it, in place.

    This is PyTorch's own fusion, in the layer's precision: W ← scale · W, b ← γ (b − μ)/√(σ² + ε) + β. The bias is
    centred before it is scaled, which in float32 rounds otherwise than scale · b + shift, and by as much as can move a
    spike; so the converted networks keep this order.

    Args:
        layer: A convolution, transposed convolution or linear layer; gets new parameters.
        norm: The batch norm of its output channels.

    Raises:
        Unsupported: If the norm normalises by the statistics of each batch.
    """
    mean, variance = _statistics(norm)
    weight = torch.ones_like(mean) if norm.weight is None else norm.weight  # the fusion of linear layers takes no None
    bias = torch.zeros_like(mean) if norm.bias is None else norm.bias
    fixed = (mean, variance, norm.eps, weight, bias)
    if isinstance(layer, nn.Linear):
        layer.weight, layer.bias = fuse_linear_bn_weights(layer.weight, layer.bias, *fixed)
    else:
        transposed = isinstance(layer, ConvTransposeNd)
        layer.weight, layer.bias = fuse_conv_bn_weights(layer.weight, layer.bias, *fixed, transpose=transposed)


def _statistics(norm: BatchNorm) -> tuple[Tensor, Tensor]:
    if norm.running_mean is None or norm.running_var is None:
        raise Unsupported("let it track running statistics", because="whose statistics are those of the batch")
    return norm.running_mean, norm.running_var


class Affine(nn.Module):
    """A map x·scale + shift for each channel: a batch norm whose statistics are fixed.

    Args:
        scale: One factor for each channel.
        shift: One addend for each channel.

    Example:
        >>> import torch
        >>> Affine(torch.tensor([2.0]), torch.tensor([1.0]))(torch.ones(1, 1)).item()
        3.0
    """

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)
        self.scale: Tensor
        self.shift: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Scale and shift a batch.

        Args:
            x: A batch [B, C, …].

        Returns:
            A batch of the same shape.
        """
        scale, shift = (c.view(-1, *[1] * (x.dim() - 2)) for c in (self.scale, self.shift))
        return x * scale + shift


def features_only(x: Tensor, refusal: str) -> Tensor:
    """Pass on what a linear layer takes that a batch norm is folded into, if it has no further axes.

    With further axes the norm's channels are not the layer's outputs, even where there are as many. No shape is known
    when a network is converted, so the converted network looks here.

    Args:
        x: The input of the linear layer.
        refusal: What to say if it has further axes.

    Returns:
        The input itself.

    Raises:
        PicojouleError: If the input is not [batch, features].
    """
    if x.dim() != 2:
        raise PicojouleError(refusal)
    return x
