"""One operation of a forward pass, as rules see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Psi = Literal["exact", "uniform", "paper"]
"""How ψ is counted: see `picojoule.trace`."""


@dataclass(frozen=True)
class Call:
    """One operation as the model called it, and the convention it is counted by."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    psi: Psi
    is_activation: Callable[[Any], bool]
    """Whether a value carries spikes or the network's input (as opposed to a constant, a number or an index)."""
    mask_of: Callable[[Any], Tensor | None] = lambda constant: None
    """Where a constant is a mask: ones and zeros of its shape."""

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def in_place(self) -> bool:
        name = self.function.__name__
        return name.endswith("_") and not name.endswith("__")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def shadow(tensor: Tensor) -> Tensor:
    """The tensor's shape without its numbers: enough to learn the shape of a result."""
    return torch.empty_like(tensor, device="meta", dtype=torch.float32)
