"""Networks without norms, of several architectures, which a strong penalty silences: `model.name = "dying:deep"`."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

Neuron = Callable[[], nn.Module]


def deep(classes: int, in_channels: int, neuron: Neuron) -> nn.Module:
    """Five convolutions in a row, with weights that let all of them fire."""
    layers: list[nn.Module] = []
    widths = (in_channels, 8, 8, 16, 16, 16)
    for before, after, stride in zip(widths, widths[1:], (4, 1, 2, 1, 1), strict=False):
        layers += [nn.Conv2d(before, after, 3, stride, 1), neuron()]
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(256, classes))
    for weight in net.parameters():
        if weight.dim() > 1:
            nn.init.kaiming_normal_(weight)
    return net


class Residual(nn.Module):
    """A branch of two layers that is added to what it began with."""

    def __init__(self, classes: int, in_channels: int, neuron: Neuron) -> None:
        super().__init__()
        self.stem, self.spike0 = nn.Conv2d(in_channels, 12, 5, 4, 2), neuron()
        self.conv1, self.spike1 = nn.Conv2d(12, 12, 3, 1, 1), neuron()
        self.conv2, self.spike2 = nn.Conv2d(12, 12, 3, 1, 1), neuron()
        self.conv3, self.spike3, self.out = nn.Conv2d(12, 16, 3, 2, 1), neuron(), nn.Linear(256, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = self.spike0(self.stem(x))
        x = x + self.spike2(self.conv2(self.spike1(self.conv1(x))))
        logits: Tensor = self.out(self.spike3(self.conv3(x)).flatten(1))
        return logits


class OverTime(nn.Module):
    """Two layers over T steps."""

    def __init__(self, classes: int, in_channels: int, neuron: Neuron, steps: int) -> None:
        super().__init__()
        self.first, self.spike1 = nn.Linear(in_channels * 1024, 64), neuron()
        self.second, self.spike2, self.out = nn.Linear(64, 48), neuron(), nn.Linear(48, classes)
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        currents = self.first(x.flatten(1)).repeat(self.steps, 1)
        logits: Tensor = self.out(self.spike2(self.second(self.spike1(currents))))
        return logits.unflatten(0, (self.steps, -1))
