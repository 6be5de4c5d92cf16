"""Training as anybody would write it in PyTorch, with room for what picojoule adds to the loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj

BATCH = 25
Charge = Callable[[pj.Activity, Tensor, int], Tensor | float]
"""What is added to the loss, of the batch's spikes, its cross-entropy and the epoch."""


def updates(images: Tensor) -> int:
    """Batches of an epoch."""
    return math.ceil(len(images) / BATCH)


def trained(
    net: nn.Module, data: Any, charge: Charge, steps: int, epochs: int, after: Callable[[], None] = lambda: None
) -> float:
    """Train a network in place, and return the test accuracy; `after` runs after every update."""
    images, labels, test, test_labels = data
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * updates(images))
    for epoch in range(epochs):
        for batch in torch.randperm(len(images)).split(BATCH):
            with pj.watch(net, steps) as activity:
                logits = net(images[batch])
            entropy = F.cross_entropy(logits, labels[batch])
            loss = entropy + charge(activity, entropy, epoch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            after()
    net.eval()
    with torch.no_grad():
        return (net(test).argmax(1) == test_labels).float().mean().item()
