"""One training step of a small network that uses every native trick there is, and runs without all of them."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.neurons.lif import LIF
from picojoule.neurons.spike import Spike
from picojoule.neurons.surrogate import Surrogate
from picojoule.zoo.dropout import Dropout


def gradients(surrogate: Surrogate) -> list[Tensor]:
    """Logits and gradients of a small network with batch norm, spikes over time and dropout."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        Spike(0.5, surrogate),
        Dropout(0.25),
        nn.Conv2d(8, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        LIF(0.5, surrogate=surrogate, steps=2),
        nn.Flatten(),
        nn.Linear(4 * 16 * 16, 3),
    )
    images = torch.randn(6, 1, 16, 16)
    logits = net(images)
    F.cross_entropy(logits, torch.arange(6) % 3).backward()
    return [logits.detach(), *(p.grad for p in net.parameters() if p.grad is not None)]
