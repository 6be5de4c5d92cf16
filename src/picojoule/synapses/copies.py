"""Scaled copies of the same spikes, by which models change a gradient and leave the values."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from picojoule.kernels.torch_private import version
from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.passing import SCALING

_CUTTING = ("data", "detach", "detach_")
ADDS_OR_JOINS = frozenset(
    "add add_ sub sub_ subtract subtract_ rsub __rsub__ cat concat concatenate dstack hstack stack vstack".split()
)
_UNIT = ("clone", "contiguous", "positive", *_CUTTING)


@dataclass(frozen=True)
class _Multiple:
    """A number times a tensor."""

    base: Tensor
    factor: float | Tensor = 1.0
    cut: bool = False
    """Whether gradients do not pass it."""

    def times(self, factor: float | Tensor) -> _Multiple:
        return replace(self, factor=self.factor * factor)


class Copies:
    """A record of tensors that are a number times another, so that parts of spikes that add up to them count once.

    Scaling a gradient does that: 0.3 z + (0.7 z).detach() has the values of z, and costs what z costs. Only sums with a
    detached term are taken for that; of all others, such as 2 z - z, both sides' connections add up.
    """

    def __init__(self) -> None:
        self._parts: dict[int, tuple[Tensor, _Multiple, tuple[int, int]]] = {}
        """By identity: the tensor, what it is a part of, and the versions of the two then."""
        self.gradients = True
        """Whether the model has gradients switched on; the structural pass keeps them on whatever it does."""

    def whole(self, name: str, call: Call) -> Tensor | None:
        """Find the latest tensor that a sum of parts of it gives back; None if the operation is no such sum."""
        total = self._sum(name, call)
        if total is None or not total.cut:
            return None
        for tensor, part, versions in reversed(self._parts.values()):
            same = part.base is total.base and not part.cut and versions == (version(tensor), version(part.base))
            if same and _is_close(part.factor, total.factor):
                return tensor
        return total.base if _is_close(total.factor, 1.0) else None

    def knows(self, name: str, call: Call) -> bool:
        """Whether both terms of a sum are known to be numbers times the same tensor."""
        return self._sum(name, call) is not None

    def cuts(self, name: str) -> bool:
        """Whether gradients do not pass an operation."""
        return name in _CUTTING or not self.gradients

    @staticmethod
    def restored(call: Call, whole: Tensor) -> Tensor:
        """The whole as the result of the sum, in its place if the sum writes there."""
        return call.args[0].copy_(whole) if call.in_place else whole.clone()

    def follow(self, name: str, call: Call, out: Any) -> None:
        """Note what an operation makes of a part."""
        if call.in_place:
            self._parts.pop(id(call.args[0]), None)
        if not isinstance(out, Tensor) or call.in_place:
            return
        part = self._sum(name, call) or self._scaled(name, call)
        if part is not None:
            part = replace(part, cut=part.cut or self.cuts(name))
            self._parts[id(out)] = (out, part, (version(out), version(part.base)))

    def _scaled(self, name: str, call: Call) -> _Multiple | None:
        x, other = call.argument(0, "input"), call.argument(1, "other")
        if name in _UNIT or name == "neg":
            return self._of(x).times(-1 if name == "neg" else 1)
        x, constant = (x, other) if call.is_activation(x) else (other, x)
        if name not in SCALING or not isinstance(x, Tensor):
            return None
        if isinstance(constant, Tensor):
            constant = constant.detach().clone() if _fits(constant, x) and not call.is_activation(constant) else None
        elif not isinstance(constant, bool | int | float) or not constant:
            constant = None
        return None if constant is None else self._of(x).times(1 / constant if "div" in name else constant)

    def _sum(self, name: str, call: Call) -> _Multiple | None:
        """Add both terms of a sum, if they are parts of the same tensor."""
        first, second = call.argument(0, "input"), call.argument(1, "other")
        if name.removesuffix("_") not in ("add", "sub", "subtract") or not (
            isinstance(first, Tensor) and isinstance(second, Tensor)
        ):
            return None
        one, other = self._of(first), self._of(second)
        other = other.times((1 if name.startswith("add") else -1) * call.kwargs.get("alpha", 1))
        if one.base is not other.base:
            return None
        return _Multiple(one.base, one.factor + other.factor, one.cut or other.cut)

    def _of(self, tensor: Tensor) -> _Multiple:
        if id(tensor) in self._parts:
            _, part, versions = self._parts[id(tensor)]
            if versions == (version(tensor), version(part.base)):  # neither was overwritten since
                return part
        return _Multiple(tensor)


def _fits(constant: Tensor, x: Tensor) -> bool:
    """Whether a product has the shape of the activation in it."""
    try:
        return bool(torch.broadcast_shapes(constant.shape, x.shape) == x.shape)
    except RuntimeError:
        return False


def _is_close(one: float | Tensor, other: float | Tensor) -> bool:
    difference = torch.as_tensor(one - other).abs().max()
    return bool(difference <= 1e-6 * torch.as_tensor(other).abs().max())
