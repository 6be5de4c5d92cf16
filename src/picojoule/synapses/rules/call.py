"""A call of an operation, as rules see it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Psi = Literal["exact", "uniform", "paper"]
"""How ψ is counted: see `picojoule.trace`."""

ChainsOfLayers = Literal["run", "merged"]
"""How layers of weights without a neuron between them are billed: see `picojoule.trace`."""


@dataclass(frozen=True)
class Call:
    """A call of an operation by the model, and the convention it is counted by: what a rule is given.

    Attributes:
        function: The operation.
        args: Its arguments as the model gave them.
        kwargs: Its named arguments.
        psi: The convention.
        is_activation: Whether a value carries spikes or the network's input, as opposed to a constant, a number or an
            index.
        mask_of: Where a constant is a mask: ones and zeros of its shape.

    >>> call = Call(torch.flatten, (torch.zeros(2, 3),), {"start_dim": 1}, "exact", torch.is_tensor)
    >>> call.argument(1, "start_dim", 0)
    1
    """

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    psi: Psi
    is_activation: Callable[[Any], bool]
    mask_of: Callable[[Any], Tensor | None] = lambda constant: None

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """Return an argument, whether it was given by position or by name.

        Args:
            position: Where it stands in the operation's signature.
            name: Its name there.
            default: What it is where it was not given.

        Returns:
            The argument.
        """
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def in_place(self) -> bool:
        """Whether the operation writes into its first argument."""
        name = self.function.__name__
        return name.endswith("_") and not name.endswith("__")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the operation on other arguments.

        Args:
            args: In place of those that the model gave.
            kwargs: The same for the named ones.

        Returns:
            What the operation returns.
        """
        return self.function(*args, **kwargs)


def shadow(tensor: Tensor) -> Tensor:
    """Return the tensor's shape without its numbers: enough to learn the shape of a result.

    Args:
        tensor: Any tensor.

    Returns:
        A tensor of that shape on the device "meta".
    """
    return torch.empty_like(tensor, device="meta", dtype=torch.float32)
