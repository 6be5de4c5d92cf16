"""Parts with weights where nobody looks for them: factors, sums written by hand, operators with borrowed names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from fuzz.making import Calls, Making, TooSmall, checked, weighted


class _TensorGradientScale(nn.Module):
    def __init__(self, share: Tensor) -> None:
        super().__init__()
        self.register_buffer("share", share)

    def forward(self, x: Tensor) -> Tensor:
        return self.share * x + ((1 - self.share) * x).detach()


def gradient_scaling_by_a_tensor(making: Making) -> nn.Module:
    module = _TensorGradientScale(torch.rand(making.channels, *[1] * making.spatial))
    making.identities.append(module)
    return module


@weighted(1.5)
def tensor_factors(making: Making) -> nn.Module:
    """Scales that are tensors: one number, or one for each channel, alone or beside what is not scaled."""
    chance = making.chance
    shape = chance.choice([(), (1,), (making.channels, *[1] * making.spatial), making.shape[1:]])
    factor: Tensor = torch.rand(shape) + 0.5
    factor = factor if chance.random() < 0.5 else nn.Parameter(factor)
    ways: list[Callable[[Any, Tensor], Tensor]] = [
        lambda self, x: x * self.factor,
        lambda self, x: self.factor * x,
        lambda self, x: x / self.factor,
        lambda self, x: x.clone().mul_(self.factor),
        lambda self, x: x * self.factor.exp(),
        lambda self, x: x + x * self.factor,
        lambda self, x: torch.cat([x * self.factor, x], 1),
    ]
    block = Calls(chance.choice(ways), factor=factor)
    return nn.Sequential(block, making.neuron()) if chance.random() < 0.3 else block


@weighted(1.5)
def by_hand(making: Making) -> nn.Module:
    """Weighted sums of channels, number by number."""
    chance, c = making.chance, making.channels
    if not 2 <= c <= 8:
        raise TooSmall
    table: Tensor = torch.randn(2, c)
    table = table if chance.random() < 0.5 else nn.Parameter(table)

    def loop(self: Any, x: Tensor) -> Tensor:
        rows = []
        for weights in self.table:
            total = torch.zeros_like(x[:, 0])
            for i, weight in enumerate(weights):
                total = total + weight * x[:, i]
            rows.append(total)
        return torch.stack(rows, 1)

    ways: list[Callable[[Any, Tensor], Tensor]] = [
        loop,
        lambda self, x: self.table[0, 0] * x[:, :-1] + self.table[0, 1] * x[:, 1:],
        lambda self, x: sum(part * weight for part, weight in zip(x.split(1, 1), self.table[0], strict=True)),  # type: ignore[return-value]
        lambda self, x: torch.stack([x[:, i] * self.table[0, i] for i in range(c)]).sum(0).unsqueeze(1),
    ]
    block = Calls(chance.choice(ways), table=table)
    return nn.Sequential(block, making.neuron()) if chance.random() < 0.6 else block


def _named(name: str) -> Any:
    """An operator that multiplies by weights of its own under the name of one of PyTorch's that does not."""

    @torch.library.custom_op(f"fuzz::{name}", mutates_args=())
    def operator(x: Tensor) -> Tensor:
        weight = torch.randn(x.shape[-1], 3, generator=torch.Generator().manual_seed(0)).to(x.dtype)
        return x @ weight

    operator.register_fake(lambda x: x.new_empty(*x.shape[:-1], 3))
    return operator


ALIKE = [_named(name) for name in ("add", "dropout", "flatten", "relu", "clone", "linear")]


def named_alike(making: Making) -> nn.Module:
    operator = making.chance.choice(ALIKE)
    block = Calls(lambda self, x: operator(x))
    return checked(block, making) if making.chance.random() < 0.5 else block
