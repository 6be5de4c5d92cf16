"""Reach: which outputs of a layer, or of a chain of layers, each input reaches.

A layer whose kernels are whole joins channels and positions independently of each other: an input of channel c at place
(i, j) reaches an output of channel d at (k, l) if d is joined to c, k to i and l to j. So does a chain of such layers,
whose matrices are the products of theirs, as booleans. That is the support of the one layer into which the chain can be
folded, borders included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.errors import Clause
from picojoule.synapses.rules.call import Call


@dataclass(frozen=True, eq=False)
class Reach:
    """Which outputs each input reaches.

    Attributes:
        channels: By channels, bool [out, in].
        axes: By positions along each axis of the map, bool [out, in] each.

    >>> one = Reach(torch.ones(4, 2).bool(), (torch.eye(3).bool(),))
    >>> one.then(Reach(torch.ones(5, 4).bool(), (torch.ones(1, 3).bool(),))).fan_out()
    tensor([[5., 5., 5.],
            [5., 5., 5.]], dtype=torch.float64)
    """

    channels: Tensor
    axes: tuple[Tensor, ...] = ()

    def then(self, following: Reach) -> Reach:
        """Fold a following layer into this one.

        Args:
            following: What its inputs reach, which are the outputs of this one.

        Returns:
            What the inputs of this one reach behind both.
        """
        axes = tuple(_joined(after, before) for after, before in zip(following.axes, self.axes, strict=True))
        return Reach(_joined(following.channels, self.channels), axes)

    def fan_out(self) -> Tensor:
        """Count the outputs that each input reaches, [channels, *map] in float64."""
        found = self.channels.sum(0).double()
        for axis in self.axes:
            found = found.unsqueeze(-1) * axis.sum(0).double()
        return found

    @property
    def weights(self) -> int:
        """The number of weights of the folded layer: its joined channels, times the places that an output takes in."""
        places = math.prod(round(axis.sum(1).amax().item()) for axis in self.axes)
        return round(self.channels.sum().item()) * places


def _joined(after: Tensor, before: Tensor) -> Tensor:
    return (after.to(torch.float32) @ before.to(torch.float32)) > 0


def linear(call: Call, x: Tensor, present: Tensor) -> Reach:
    """Say which outputs each input of y = x Wᵀ reaches.

    Args:
        call: The call.
        x: Its input [..., in].
        present: Its weights as ones and zeros [out, in].
    """
    return Reach(present.ne(0))


def convolution(call: Call, x: Tensor, present: Tensor) -> Reach:
    """Say which outputs each input of a convolution reaches.

    Args:
        call: The call.
        x: Its input [B, C, *map].
        present: Its weights as ones and zeros [C', C / groups, *k].

    Raises:
        PicojouleError: Single weights of its kernels are pruned; a clause.
    """
    kernels = present.flatten(2).ne(0)
    if bool((kernels.any(2) != kernels.all(2)).any()):
        raise Clause("has kernels of which single weights are pruned, so channels and positions do not fold apart")
    groups = call.argument(6, "groups", 1)
    blocks = kernels.any(2).view(groups, -1, kernels.shape[1]).unbind(0)
    size = present.shape[2:]
    stride, padding, dilation = (
        _by_axis(call.argument(position, key, default), len(size))
        for position, key, default in ((3, "stride", 1), (4, "padding", 0), (5, "dilation", 1))
    )

    def along(axis: int) -> Tensor:
        def convolve(places: Tensor) -> Tensor:
            return F.conv1d(places, torch.ones(1, 1, size[axis]), None, stride[axis], padding[axis], dilation[axis])

        return positions(convolve, x.shape[2:][axis])

    return Reach(torch.block_diag(*(block.float() for block in blocks)).bool(), tuple(map(along, range(len(size)))))


def positions(operation: Callable[[Tensor], Tensor], n: int) -> Tensor:
    """Run an operation along one axis on each of its positions.

    Args:
        operation: Takes [B, 1, n].
        n: The number of positions.

    Returns:
        Which positions of its result each of them reaches, bool [out, n].
    """
    return operation(torch.eye(n).unsqueeze(1)).squeeze(1).ne(0).T


def _by_axis(value: Any, axes: int) -> tuple[Any, ...]:
    if isinstance(value, int | str):
        return (value,) * axes
    return tuple(value) * (axes if len(value) == 1 else 1)


FOLDING: dict[str, Callable[[Call, Tensor, Tensor], Reach]] = {
    "linear": linear,
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
}
"""The layers that can be folded."""
