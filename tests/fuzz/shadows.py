"""What the elements of every tensor carry, kept beside the memory that the tensors look at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

INPUT, SPIKE, CURRENT, SCALED, WEIGHTED, LOST, SUMMED, SHARE = (1 << i for i in range(8))
"""What an element is made of. SCALED and WEIGHTED beside SPIKE: times a vector of constants, times a matrix of them.
SUMMED: such a one and something else were added, as in `w0 * z0 + w1 * z1`; it costs unless it goes into weights.
SHARE beside LOST: a softmax, which is analog whatever it was made of."""
KINDS = (INPUT, SPIKE, CURRENT, SCALED, WEIGHTED, LOST, SUMMED, SHARE)


class Shadow:
    """What the elements of a tensor carry."""

    def __init__(self, counts: Tensor, bits: Tensor) -> None:
        self.counts, self.bits = counts, bits

    def mapped(self, move: Callable[[Tensor], Tensor]) -> Shadow:
        """Both through an operation that only moves elements."""
        return Shadow(move(self.counts), move(self.bits.double()).to(torch.uint8))

    def any(self, kind: int) -> bool:
        return bool((self.bits & kind).any())

    @property
    def union(self) -> int:
        return sum(kind for kind in KINDS if self.any(kind))


class Shadows:
    """The shadows of all memory; views of one memory share theirs."""

    def __init__(self) -> None:
        self._memory: dict[int, tuple[Tensor, Tensor, Tensor]] = {}
        """Counts and bits by storage, with a tensor that keeps the storage alive."""

    def _shadow_memory(self, t: Tensor, *, make: bool) -> tuple[Tensor, Tensor] | None:
        if t.layout != torch.strided or t.device.type == "meta":
            return None
        key = t.untyped_storage()._cdata
        if key not in self._memory:
            if not make:
                return None
            n = t.untyped_storage().nbytes() // t.element_size()
            self._memory[key] = (torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.uint8), t)
        return self._memory[key][:2]

    def get(self, t: Tensor) -> Shadow:
        """The shadow of a tensor as views of its memory's; zeros where it has none."""
        found = self._shadow_memory(t, make=False)
        if found is None:
            return Shadow(torch.zeros(t.shape, dtype=torch.float64), torch.zeros(t.shape, dtype=torch.uint8))
        if found[0].numel() * t.element_size() != t.untyped_storage().nbytes():  # seen as another type
            return Shadow(torch.zeros(t.shape, dtype=torch.float64), torch.full(t.shape, LOST, dtype=torch.uint8))
        counts, bits = (torch.as_strided(m, t.shape, t.stride(), t.storage_offset()) for m in found)
        return Shadow(counts, bits)

    def put(self, t: Any, shadow: Shadow) -> None:
        if not isinstance(t, Tensor) or (not shadow.bits.any() and self._shadow_memory(t, make=False) is None):
            return
        if self._shadow_memory(t, make=True) is None:
            return
        here = self.get(t)
        if any(stride == 0 and size > 1 for stride, size in zip(t.stride(), t.shape, strict=True)):
            return  # an expanded view of memory that has its shadow
        here.counts.copy_(shadow.counts.expand(t.shape))
        here.bits.copy_(shadow.bits.expand(t.shape))

    def fill(self, t: Tensor, bits: int, counts: float = 0.0) -> None:
        self.put(
            t, Shadow(torch.full(t.shape, counts, dtype=torch.float64), torch.full(t.shape, bits, dtype=torch.uint8))
        )

    def mark_input(self, *values: Any) -> None:
        for leaf in tree_leaves(values):
            if isinstance(leaf, Tensor):
                self.fill(leaf, INPUT)
