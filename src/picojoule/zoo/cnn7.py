"""CNN7: seven convolutions without padding, then the mean over the map."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from picojoule.neurons.time_steps import present, readout
from picojoule.zoo.dropout import Dropout
from picojoule.zoo.layers import conv

_HIDDEN = (  # channels, kernel, stride, dropout
    (64, 3, 2, 0.1),
    (128, 3, 1, 0.2),
    (256, 6, 1, 0.3),
    (128, 3, 1, 0.2),
    (64, 1, 1, 0.1),
    (10, 1, 1, 0.0),
)


class CNN7(nn.Sequential):
    """CNN7: C-BN-S-DO six times, then C(classes)-GAP; feature maps 15, 13, 8, 6, 6, 6 on a 32x32 image.

    The kernels are those that give the paper's 59 688 neurons and 98 895 888 synapses; its printed table has them one
    layer too early. ``classes`` changes the last convolution only. `picojoule.zoo.create` builds it.

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
        channels = in_channels
        for i, (width, kernel, stride, dropout) in enumerate(_HIDDEN, start=1):
            self.add_module(f"conv{i}", conv(channels, width, kernel, stride))
            self.add_module(f"norm{i}", nn.BatchNorm2d(width))
            self.add_module(f"spike{i}", neuron())
            if dropout:
                self.add_module(f"drop{i}", Dropout(dropout))
            channels = width
        self.add_module("conv7", conv(channels, classes, 1))

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
        return readout(x.mean(dim=(2, 3)), self.steps)  # [T·B, classes, 6, 6] to [B, classes]
