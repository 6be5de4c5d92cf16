"""VGG11: eight convolutions with average pooling, then three fully connected layers."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from picojoule.neurons.time_steps import present, readout
from picojoule.zoo.dropout import Dropout
from picojoule.zoo.layers import conv, linear

_CONV_WIDTHS = (64, 128, 256, 512, 512, 512, 512, 512)
_FC_WIDTHS = (4096, 4096)
_POOLED = {1, 3, 5, 6}
_DROPPED = {2, 4, 7, 9, 10}


class VGG11(nn.Sequential):
    """VGG11: C(k3 p1)-BN-S eight times, FC-BN-S twice, FC(classes).

    2x2 average pools stand after spiking layers 1, 3, 5 and 6, dropout 0.2 after 2, 4, 7, 9 and 10: the places that
    give the paper's 249 856 neurons on a 32x32 image (its printed table swaps those of layers 1 and 2).
    `picojoule.zoo.create` builds it.

    Args:
        classes: The number of classes.
        in_channels: Channels of an image.
        neuron: Makes the module of each spiking layer.
        steps: Time steps of an image.
    """

    def __init__(self, classes: int, in_channels: int, neuron: Callable[[], nn.Module], steps: int) -> None:
        super().__init__()
        self.steps = steps
        self.input_shape = (in_channels, 32, 32)
        width, side = in_channels, 32
        for i, outputs in enumerate(_CONV_WIDTHS, start=1):
            self.add_module(f"conv{i}", conv(width, outputs, kernel=3, padding=1))
            self.add_module(f"norm{i}", nn.BatchNorm2d(outputs))
            self._add_neuron(i, neuron)
            width, side = outputs, side // 2 if i in _POOLED else side
        self.add_module("flatten", nn.Flatten())
        width *= side**2
        for i, outputs in enumerate(_FC_WIDTHS, start=len(_CONV_WIDTHS) + 1):
            self.add_module(f"fc{i}", linear(width, outputs))
            self.add_module(f"norm{i}", nn.BatchNorm1d(outputs))
            self._add_neuron(i, neuron)
            width = outputs
        self.add_module("fc11", linear(width, classes))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits of images.

        Args:
            x: Images [B, C, 32, 32], normalised.

        Returns:
            Logits [B, classes], averaged over the time steps.
        """
        x = present(x, self.steps)
        for layer in self:
            x = layer(x)
        return readout(x, self.steps)

    def _add_neuron(self, i: int, neuron: Callable[[], nn.Module]) -> None:
        self.add_module(f"spike{i}", neuron())
        if i in _POOLED:
            self.add_module(f"pool{i}", nn.AvgPool2d(2))
        if i in _DROPPED:
            self.add_module(f"drop{i}", Dropout(0.2))
