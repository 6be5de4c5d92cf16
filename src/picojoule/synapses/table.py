"""The table of ψ: the layers of a network, and how many synapses a spike of each neuron reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.io.tables import as_text
from picojoule.synapses.rules import Psi


@dataclass(frozen=True, eq=False)
class Target:
    """One layer of weights that spikes of a layer reach."""

    fan_out: Tensor
    """How many of its synapses a spike of each neuron reaches; over all targets they add up to ψ."""
    weights: int
    """How many weights it has, without those that were pruned."""
    outputs: int
    """How many values it puts out for one sample and step."""


@dataclass(frozen=True, eq=False)
class Layer:
    """One spiking layer, or one relay (a max pool that passes spikes on and has no neurons of its own)."""

    name: str
    fan_out: Tensor
    """ψ of each neuron, in the shape of the layer's map without the batch."""
    relay: bool = False
    targets: tuple[Target, ...] = ()
    """Where the spikes go: ψ apart by layers of weights. For a ψ written by hand, one target of unknown size."""

    def __post_init__(self) -> None:
        if not isinstance(self.fan_out, Tensor):
            raise PicojouleError(f"fan_out of the layer {self.name!r} is no tensor: give ψ of each neuron as one")
        if not self.targets and bool((self.fan_out != 0).any()):
            object.__setattr__(self, "targets", (Target(self.fan_out, weights=0, outputs=0),))

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.fan_out.shape)

    @property
    def neurons(self) -> int:
        return 0 if self.relay else self.fan_out.numel()

    @property
    def synapses(self) -> int:
        """Σ_i ψ_i, the layer's synaptic operations if everything fired once."""
        return round(self.fan_out.sum().item())


class Synapses(Mapping[str, Layer]):
    """The layers of one network with their ψ, in the order in which they fire."""

    def __init__(
        self,
        layers: dict[str, Layer],
        *,
        psi: Psi,
        input_shape: tuple[int, ...],
        steps: int,
        encoder_macs: int,
        dense_macs: int,
    ) -> None:
        if not isinstance(layers, Mapping) or not all(isinstance(layer, Layer) for layer in layers.values()):
            raise PicojouleError("the layers of Synapses are a dictionary of picojoule.Layer by name: give one")
        self._layers = layers
        self.psi = psi
        self.input_shape = input_shape
        self.steps = steps
        """Time steps in the traced forward pass."""
        self.encoder_macs = encoder_macs
        """Multiply-accumulates of the synapses that the input feeds, per sample and traced pass."""
        self.dense_macs = dense_macs
        """Multiply-accumulates of the dense ReLU twin: every synapse once, whatever feeds it."""

    def __getitem__(self, name: str) -> Layer:
        return self._layers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._layers)

    def __len__(self) -> int:
        return len(self._layers)

    @property
    def spiking(self) -> list[Layer]:
        """The layers with neurons, relays left out."""
        return [layer for layer in self._layers.values() if not layer.relay]

    @property
    def neurons(self) -> int:
        return sum(layer.neurons for layer in self._layers.values())

    @property
    def synapses(self) -> int:
        return sum(layer.synapses for layer in self._layers.values())

    def to_dict(self) -> dict[str, Any]:
        """Totals and layers as exact integers; `penalty_at_one` is Ω(1) for p = 1."""
        return {
            "input_shape": list(self.input_shape),
            "psi": self.psi,
            "neurons": self.neurons,
            "spiking_layers": len(self.spiking),
            "synapses": self.synapses,
            "encoder_macs": self.encoder_macs,
            "penalty_at_one": {"syn": self.synapses, "total": self.neurons, "balance": len(self.spiking)},
            "layers": [
                {
                    "name": layer.name,
                    "shape": list(layer.shape),
                    "neurons": layer.neurons,
                    "synapses": layer.synapses,
                    "psi_min": layer.fan_out.min().item(),
                    "psi_max": layer.fan_out.max().item(),
                }
                for layer in self._layers.values()
            ],
        }

    def table(self) -> Table:
        table = Table(
            title=f"ψ = {self.psi}, input {'×'.join(map(str, self.input_shape))}",
            caption=f"Ω(1), p = 1: syn {self.synapses:,}, total {self.neurons:,}, balance {len(self.spiking)}.   "
            f"Fed by the input, outside ψ: {self.encoder_macs:,} multiply-accumulates.",
        )
        for column in ("layer", "map", "neurons", "ψ", "synapses", "share"):
            table.add_column(column, justify="left" if column == "layer" else "right", overflow="fold")
        for layer in self._layers.values():
            low, high = layer.fan_out.min().item(), layer.fan_out.max().item()
            table.add_row(
                escape(layer.name) + (" (relay)" if layer.relay else ""),
                "×".join(map(str, layer.shape)),
                f"{layer.neurons:,}",
                f"{low:,.6g}" if low == high else f"{low:,.6g} … {high:,.6g}",
                f"{layer.synapses:,}",
                f"{layer.synapses / self.synapses:.1%}" if self.synapses else "–",
            )
        table.add_section()
        table.add_row("total", "", f"{self.neurons:,}", "", f"{self.synapses:,}", "100.0%" if self.synapses else "–")
        return table

    def __str__(self) -> str:
        return as_text(self.table())

    def __repr__(self) -> str:
        return f"Synapses({len(self)} layers, {self.neurons:,} neurons, {self.synapses:,} synapses, psi={self.psi!r})"
