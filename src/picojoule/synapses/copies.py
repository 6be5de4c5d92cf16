"""Scaled copies of the same spikes, by which models change a gradient and leave the values."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from picojoule.kernels.torch_private import version
from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.passing import SCALING

_CUTTING = ("data", "detach")
_UNIT = ("clone", "contiguous", "positive", *_CUTTING)


@dataclass(frozen=True)
class _Part:
    """A number times a tensor."""

    base: Tensor
    factor: float = 1.0
    cut: bool = False
    """Whether gradients do not pass it."""

    def times(self, factor: float) -> _Part:
        return replace(self, factor=self.factor * factor)


class Copies:
    """A record of tensors that are a number times another, so that parts of spikes that add up to them count once.

    Scaling a gradient does that: 0.3 z + (0.7 z).detach() has the values of z, and costs what z costs. Only sums with a
    detached term are taken for that; of all others, such as 2 z - z, both sides' connections add up.
    """

    def __init__(self) -> None:
        self._parts: dict[int, tuple[Tensor, _Part, tuple[int, int]]] = {}
        """By identity: the tensor, what it is a part of, and the versions of the two then."""
        self.gradients = True
        """Whether the model has gradients switched on; the structural pass keeps them on whatever it does."""

    def whole(self, name: str, call: Call) -> Tensor | None:
        """Find the tensor that a sum of parts of it gives back; None if the operation is no such sum."""
        total = self._sum(name, call)
        return total.base if total and total.cut and math.isclose(total.factor, 1, rel_tol=1e-6) else None

    def follow(self, name: str, call: Call, out: Any) -> None:
        """Note what an operation makes of a part."""
        if not isinstance(out, Tensor) or call.in_place:
            return
        part = self._sum(name, call) or self._scaled(name, call)
        if part is not None:
            part = replace(part, cut=part.cut or name in _CUTTING or not self.gradients)
            self._parts[id(out)] = (out, part, (version(out), version(part.base)))

    def _scaled(self, name: str, call: Call) -> _Part | None:
        x, other = call.argument(0, "input"), call.argument(1, "other")
        if name in _UNIT or name == "neg":
            return self._of(x).times(-1 if name == "neg" else 1)
        x, constant = (x, other) if call.is_activation(x) else (other, x)
        if name in SCALING and isinstance(constant, bool | int | float) and constant:
            return self._of(x).times(1 / constant if "div" in name else constant)
        return None

    def _sum(self, name: str, call: Call) -> _Part | None:
        """Add both terms of a sum, if they are parts of the same tensor."""
        first, second = call.argument(0, "input"), call.argument(1, "other")
        if name not in ("add", "sub", "subtract") or not (isinstance(first, Tensor) and isinstance(second, Tensor)):
            return None
        one, other = self._of(first), self._of(second)
        other = other.times((1 if name == "add" else -1) * call.kwargs.get("alpha", 1))
        if one.base is not other.base:
            return None
        return _Part(one.base, one.factor + other.factor, one.cut or other.cut)

    def _of(self, tensor: Tensor) -> _Part:
        if id(tensor) in self._parts:
            _, part, versions = self._parts[id(tensor)]
            if versions == (version(tensor), version(part.base)):  # neither was overwritten since
                return part
        return _Part(tensor)
