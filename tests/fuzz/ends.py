"""How random networks end: from spikes to the output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.making import Calls, Maker, Making, weighted


def _head(making: Making, run: Callable[[Any, Tensor], Tensor], **parts: Any) -> nn.Module:
    return nn.Sequential(nn.Flatten(), Calls(run, **parts))


def _size(making: Making) -> int:
    return int(torch.tensor(making.shape[1:]).prod())


@weighted(12)
def linear_end(making: Making) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(making), 4))


def spikes_end(making: Making) -> nn.Module:
    return nn.Flatten()


def softmax_end(making: Making) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(_size(making), 4), nn.Softmax(-1))


def vote_end(making: Making) -> nn.Module:
    return Calls(lambda self, x: x.flatten(1).unsqueeze(-1).mean(1))


def cosine_end(making: Making) -> nn.Module:
    prototypes = torch.randn(3, _size(making))
    return _head(making, lambda self, x: F.cosine_similarity(x.unsqueeze(1), self.w, -1), w=prototypes)


def distance_end(making: Making) -> nn.Module:
    return _head(making, lambda self, x: -torch.cdist(x, self.w), w=torch.randn(3, _size(making)))


def vecdot_end(making: Making) -> nn.Module:
    return _head(making, lambda self, x: torch.linalg.vecdot(x.unsqueeze(1), self.w), w=torch.randn(3, _size(making)))


def cumsum_end(making: Making) -> nn.Module:
    return _head(making, lambda self, x: (x.unsqueeze(1) * self.w).cumsum(-1)[..., -1], w=torch.randn(3, _size(making)))


def masked_end(making: Making) -> nn.Module:
    size = _size(making)
    mask = (torch.rand(4, size) < 0.5).float()
    return _head(
        making, lambda self, x: F.linear(x, self.w * self.mask), w=nn.Parameter(torch.randn(4, size)), mask=mask
    )


@torch.library.custom_op("fuzz::closed_product", mutates_args=())
def _closed_product(x: Tensor, seed: int) -> Tensor:
    weight = torch.randn(x.shape[-1], 3, generator=torch.Generator().manual_seed(seed)).to(x.dtype)
    return x @ weight


@_closed_product.register_fake
def _(x: Tensor, seed: int) -> Tensor:
    return x.new_empty(*x.shape[:-1], 3)


def closed_end(making: Making) -> nn.Module:
    """An operation of the user's own that holds its weights itself."""
    return _head(making, lambda self, x: _closed_product(x, 0))


ENDS: dict[str, Maker] = {
    maker.__name__.removesuffix("_end"): maker
    for maker in (
        linear_end, spikes_end, softmax_end, vote_end, cosine_end, distance_end, vecdot_end, cumsum_end, masked_end,
        closed_end,
    )
}  # fmt: skip
