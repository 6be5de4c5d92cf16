"""What a network occupies on the machine that runs it: its parameters, and bytes of weights and of activations.

Conventions: weights are all parameters and the buffers that are stored with them, in their own types. Activations are
those of one sample through PyTorch, all its time steps as the network takes them: the most bytes that its input and
the tensors made on the way occupy at once. What a kernel needs for itself while it runs is not among them.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.kernels.torch_private import TorchDispatchMode, tree_leaves
from picojoule.synapses.snapshot import unchanged


@dataclass(frozen=True)
class Footprint:
    """What a network occupies.

    >>> Footprint(1_000, 4_000, 2_500_000).line()
    '1,000 parameters, 4.00 kB of weights, at most 2.50 MB of activations for one sample'
    """

    parameters: int
    """Numbers that training changes, or could change; one that is shared counts once."""
    weight_bytes: int
    """Parameters and stored buffers."""
    peak_activation_bytes: int
    """The most that one sample's tensors occupy at once."""

    def to_dict(self) -> dict[str, int]:
        """Return the fields of `evaluate --json`."""
        return {
            "parameters": self.parameters,
            "weight_bytes": self.weight_bytes,
            "peak_activation_bytes": self.peak_activation_bytes,
        }

    def line(self) -> str:
        """Write the footprint as one line for people."""
        return (
            f"{self.parameters:,} parameters, {format_bytes(self.weight_bytes)} of weights, at most "
            f"{format_bytes(self.peak_activation_bytes)} of activations for one sample"
        )


def footprint(model: nn.Module, sample: Tensor) -> Footprint:
    """Measure what a network occupies, by one forward pass.

    Args:
        model: The network, in evaluation mode; it stays as it is.
        sample: A batch of one, as the network takes it.

    Returns:
        Parameters and bytes.

    >>> net = nn.Sequential(nn.Linear(100, 50), nn.Linear(50, 10))
    >>> footprint(net, torch.zeros(1, 100)).peak_activation_bytes == 4 * (100 + 50 + 10)
    True
    """
    stored = {tensor.untyped_storage().data_ptr(): tensor for tensor in model.state_dict().values()}
    living = _Living([*model.parameters(), *model.buffers()], sample)
    with torch.no_grad(), unchanged(model), living:
        model(sample)
    return Footprint(
        sum(parameter.numel() for parameter in model.parameters()),
        sum(tensor.numel() * tensor.element_size() for tensor in stored.values()),
        living.peak,
    )


class _Living(TorchDispatchMode):
    """The bytes of all storages that operations inside the block made and that still live, and the most they were."""

    def __init__(self, known: list[Tensor], sample: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's annotations lack it
        self.now = self.peak = 0
        self._seen: dict[int, weakref.ref[Any]] = {}
        self._known = [tensor.untyped_storage() for tensor in known]
        for storage in self._known:
            self._seen[id(storage)] = weakref.ref(storage)
        self._note(sample)

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = operation(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                self._note(tensor)
        return out

    def _note(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        number, size = id(storage), storage.nbytes()
        if number in self._seen:
            return

        def forget(_: Any) -> None:
            del self._seen[number]
            self.now -= size

        self._seen[number] = weakref.ref(storage, forget)
        self.now += size
        self.peak = max(self.peak, self.now)


def format_bytes(count: float) -> str:
    """Write bytes in three significant digits with the fitting unit, in powers of ten.

    Args:
        count: The bytes.

    Returns:
        The text for tables and messages.

    >>> format_bytes(6_236_384), format_bytes(999.9e3), format_bytes(12)
    ('6.24 MB', '1.00 MB', '12 B')
    """
    if count < 1000:
        return f"{count:.0f} B"
    count = float(f"{count:.2e}")  # first the digits, then the unit
    scale, unit = next((s, u) for s, u in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")) if count >= s)
    return f"{count / scale:#.3g} {unit}".replace(". ", " ")
