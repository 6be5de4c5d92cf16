"""ResNet18, pre-activation: blocks add currents to a stream, and spikes never leave their block."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from picojoule.neurons.time_steps import present, readout
from picojoule.zoo.layers import conv


class ResNet18(nn.Module):
    """ResNet18: C(64)-{A A}-{B A}-{B A}-{B A}-BN-S-C(classes)-GAP, A and B of 64, 128, 256 and 512 channels.

    671 744 neurons in 20 spiking layers on a 32x32 image, as in the paper. `picojoule.zoo.create` builds it.

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
        self.conv1 = conv(in_channels, 64, kernel=3, padding=1)
        self.stage1 = nn.Sequential(ResA(64, neuron), ResA(64, neuron))
        self.stage2 = nn.Sequential(ResB(64, neuron), ResA(128, neuron))
        self.stage3 = nn.Sequential(ResB(128, neuron), ResA(256, neuron))
        self.stage4 = nn.Sequential(ResB(256, neuron), ResA(512, neuron))
        self.norm = nn.BatchNorm2d(512)
        self.spike = neuron()
        self.conv = conv(512, classes, kernel=1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits of images.

        Args:
            x: Images [B, C, 32, 32], normalised.

        Returns:
            Logits [B, classes], averaged over the time steps.
        """
        currents = self.stage4(self.stage3(self.stage2(self.stage1(self.conv1(present(x, self.steps))))))
        maps: Tensor = self.conv(self.spike(self.norm(currents)))  # [T·B, classes, 4, 4]
        return readout(maps.mean(dim=(2, 3)), self.steps)


class _Block(nn.Module):
    """The path that ResA and ResB have in common: BN-S-C(k3 p1) twice; the stride is that of the first convolution."""

    def __init__(self, inputs: int, outputs: int, stride: int, neuron: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(inputs)
        self.spike1 = neuron()
        self.conv1 = conv(inputs, outputs, kernel=3, stride=stride, padding=1)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.spike2 = neuron()
        self.conv2 = conv(outputs, outputs, kernel=3, padding=1)

    def path(self, currents: Tensor) -> Tensor:
        """Compute the currents that the block adds."""
        hidden = self.conv1(self.spike1(self.norm1(currents)))
        result: Tensor = self.conv2(self.spike2(self.norm2(hidden)))
        return result


class ResA(_Block):
    """A block whose path is added to the stream as it is."""

    def __init__(self, width: int, neuron: Callable[[], nn.Module]) -> None:
        super().__init__(width, width, stride=1, neuron=neuron)

    def forward(self, currents: Tensor) -> Tensor:
        """Add the block's currents to the stream [T·B, C, H, W].

        Args:
            currents: The stream.

        Returns:
            The stream behind the block, [T·B, C, H, W].
        """
        return self.path(currents) + currents


class ResB(_Block):
    """A block to half the map and twice the channels.

    Its skip is BN-S-C(k1 s2 p0), the only one that gives the paper's number of synapses.
    """

    def __init__(self, inputs: int, neuron: Callable[[], nn.Module]) -> None:
        super().__init__(inputs, 2 * inputs, stride=2, neuron=neuron)
        self.skip_norm = nn.BatchNorm2d(inputs)
        self.skip_spike = neuron()
        self.skip_conv = conv(inputs, 2 * inputs, kernel=1, stride=2)

    def forward(self, currents: Tensor) -> Tensor:
        """Add the block's currents to the stream [T·B, C, H, W].

        Args:
            currents: The stream.

        Returns:
            The stream behind the block, [T·B, C, H, W].
        """
        skip: Tensor = self.skip_conv(self.skip_spike(self.skip_norm(currents)))
        return self.path(currents) + skip
