"""CNN4: three convolutions and a linear layer over time, for frames of events."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from picojoule.neurons.input_spikes import InputSpikes
from picojoule.neurons.time_steps import present, readout
from picojoule.zoo.layers import conv, linear

_WIDTHS = (16, 32, 64)


class CNN4(nn.Module):
    """CNN4: C-BN-S three times with stride 2, then a linear layer; every time step sees its own frame.

    >>> import picojoule as pj
    >>> pj.zoo.create("cnn4", neuron=pj.LIF, steps=3)(torch.zeros(3, 2, 2, 34, 34)).shape
    torch.Size([2, 10])
    """

    def __init__(
        self,
        classes: int,
        input_shape: tuple[int, ...],
        neuron: Callable[[], nn.Module],
        steps: int,
        spiking_input: bool,
    ) -> None:
        super().__init__()
        self.steps = steps
        self.input_shape = input_shape
        self.input = InputSpikes() if spiking_input else nn.Identity()
        channels, side = input_shape[0], torch.Size(input_shape[1:])
        for i, width in enumerate(_WIDTHS, start=1):
            self.add_module(f"conv{i}", conv(channels, width, 3, stride=2, padding=1))
            self.add_module(f"norm{i}", nn.BatchNorm2d(width))
            self.add_module(f"spike{i}", neuron())
            channels, side = width, torch.Size((n + 1) // 2 for n in side)
        self.flatten = nn.Flatten()
        self.classify = linear(channels * side.numel(), classes)

    def forward(self, x: Tensor) -> Tensor:
        """Compute logits of frames over time, or of images that are given in every step.

        Args:
            x: Frames [T, B, C, H, W] or images [B, C, H, W].

        Returns:
            Logits [B, classes], averaged over time.
        """
        x = x.flatten(0, 1) if x.dim() == 5 else present(x, self.steps)
        for layer in self.children():
            x = layer(x)
        return readout(x, self.steps)
