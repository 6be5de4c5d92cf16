"""The synaptic layers of the zoo: no bias, He initialisation for ReLU (normal, fan-in)."""

from __future__ import annotations

from torch import nn


def conv(inputs: int, outputs: int, kernel: int, stride: int = 1, padding: int = 0) -> nn.Conv2d:
    """Make a square convolution without bias."""
    layer = nn.Conv2d(inputs, outputs, kernel, stride, padding, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
    return layer


def linear(inputs: int, outputs: int) -> nn.Linear:
    """Make a fully connected layer without bias."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.kaiming_normal_(layer.weight, mode="fan_in", nonlinearity="relu")
    return layer
