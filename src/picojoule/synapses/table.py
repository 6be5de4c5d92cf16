"""The table of ψ: the layers of a network, and the number of synapses that a spike of each neuron reaches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.io.tables import Cell, Column, Sheet, as_text
from picojoule.synapses.made_spikes import MadeSpikes
from picojoule.synapses.rules import ChainsOfLayers, Psi


@dataclass(frozen=True, eq=False)
class Target:
    """What the spikes of a layer reach: a layer of weights, the analog factor of a product, or neurons directly."""

    fan_out: Tensor
    """How many of its synapses a spike of each neuron reaches; over all targets they add up to ψ."""
    weights: int
    """How many weights it has, without those that were pruned; of a product, the values of the other factor."""
    outputs: int
    """How many values it puts out for one sample and step."""
    name: str = ""
    """The layer of weights, the product, or the neurons."""
    unit: bool = False
    """Whether spikes arrive there without a weight: unit synapses, an accumulate each."""


@dataclass(frozen=True)
class WeightLayer:
    """A layer of weights, as papers list them: a convolution or linear layer.

    Attributes:
        name: Its module's name.
        kind: The class of the module, or the operation.
        macs: Multiply-accumulates in the dense ReLU twin: every synapse once.
        encoder_macs: Multiply-accumulates of what the input feeds, per sample and traced pass.
    """

    name: str
    kind: str
    macs: int
    encoder_macs: int

    @property
    def title(self) -> str:
        """The name as tables show it."""
        return titled(self.name, self.kind)


def titled(name: str, kind: str) -> str:
    """Name a layer so that people can read it: the number of one in `nn.Sequential` says nothing without its class.

    Args:
        name: Its name in `model.named_modules()`.
        kind: Its class.

    Returns:
        The name, and the class behind a number.

    >>> titled("features.3", "Conv2d"), titled("conv1", "Conv2d")
    ('features.3 Conv2d', 'conv1')
    """
    return f"{name} {kind}" if kind and name.rpartition(".")[2].isdecimal() else name


@dataclass(frozen=True)
class AnalogSynapses:
    """A layer of weights, or a product, that analog values feed: multiply-accumulates, which no spike changes."""

    name: str
    macs: int
    """Multiply-accumulates per sample and traced pass."""


@dataclass(frozen=True, eq=False)
class StepKinds:
    """ψ that depends on the time step: a spike that is fed back reaches synapses of the next step, if there is one.

    Attributes:
        steps: Time steps in one call of the network, as it was traced.
        goes_on: Which of `kinds` each step of a call is, if the network is called again in the state that it leaves.
        ends: Which of them each step of the last call is, whose state is used no more.
        kinds: The layer as it is in each kind of step, with the ψ that holds there.
    """

    steps: int
    goes_on: tuple[int, ...]
    ends: tuple[int, ...]
    kinds: tuple[Layer, ...]

    def of(self, steps: int, network_calls: int | None = None, *, stream: bool = False) -> list[int]:
        """Name the kind of each step of a block.

        Args:
            steps: Time steps in the block.
            network_calls: How often the network was called in it, if that is known.
            stream: Whether the network's state goes on behind the block.

        Returns:
            Indices of `kinds`.

        Raises:
            PicojouleError: The block does not divide into calls as they were traced.
        """
        calls, rest = divmod(steps, self.steps)
        if rest or not calls or network_calls not in (None, calls):
            called = "" if network_calls is None else f" in {network_calls} calls"
            raise PicojouleError(
                f"ψ of {self.kinds[0].name!r} depends on the time step; it was traced with {self.steps} steps in a "
                f"call of the network and cannot be counted in {steps} steps{called}: trace and watch the model in "
                "the way in which it is called, as a whole, with as many steps in each call"
            )
        return [*self.goes_on * (calls if stream else calls - 1), *(() if stream else self.ends)]


@dataclass(frozen=True, eq=False)
class Layer:
    """A spiking layer, a relay (a max pool or gate that passes spikes on), or a product of spikes by spikes.

    Relays and products have no neurons of their own. What a product "emits" are the pairs of spikes that meet in it, as
    one number, each of which costs one accumulate: its ψ is 1.

    Attributes:
        name: Its name in `model.named_modules()`.
        fan_out: ψ of each neuron, in the shape of the layer's map without the batch: int64 for `psi="exact"`, else
            float64.
        relay: Whether it has no neurons of its own.
        targets: Where the spikes go: ψ apart by layers of weights. For a ψ written by hand, one target of unknown size.
        kind: The class of the module, if it is known.
        made: How its spikes are made of those of other layers, if no module emits them.
        by_step: Where ψ depends on the time step, as under recurrence: in which. `fan_out` is then of all the synapses
            that a spike reaches, now and in the next step.

    >>> import torch
    >>> layer = Layer("spike1", torch.full((2, 3, 3), 4))
    >>> layer.shape, layer.neurons, layer.synapses
    ((2, 3, 3), 18, 72)
    """

    name: str
    fan_out: Tensor
    relay: bool = False
    targets: tuple[Target, ...] = ()
    kind: str = ""
    made: MadeSpikes | None = None
    by_step: StepKinds | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.fan_out, Tensor):
            raise PicojouleError(f"fan_out of the layer {self.name!r} is not a tensor: give ψ of each neuron as one")
        if not self.targets and bool((self.fan_out != 0).any()):
            object.__setattr__(self, "targets", (Target(self.fan_out, weights=0, outputs=0),))

    @property
    def title(self) -> str:
        """The name as tables show it."""
        return titled(self.name, self.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the layer's map, without the batch."""
        return tuple(self.fan_out.shape)

    @property
    def neurons(self) -> int:
        """The number of neurons; a relay has none."""
        return 0 if self.relay else self.fan_out.numel()

    @property
    def kinds(self) -> tuple[Layer, ...]:
        """The layer as it is in each kind of time step: it alone, unless ψ depends on the step."""
        return (self,) if self.by_step is None else self.by_step.kinds

    def kinds_of(self, steps: int, network_calls: int | None = None, *, stream: bool = False) -> list[int]:
        """Tell which of `kinds` each time step of a block is.

        Args:
            steps: Time steps in the block.
            network_calls: How often the network was called in it, if that is known.
            stream: Whether the network's state goes on behind the block, so that the last step's spikes are fed back.

        Returns:
            An index for each step.

        Raises:
            PicojouleError: ψ depends on the step, and the block does not divide into calls as they were traced.
        """
        return [0] * steps if self.by_step is None else self.by_step.of(steps, network_calls, stream=stream)

    @property
    def product(self) -> bool:
        """Whether it is a product of spikes by spikes."""
        return self.made is not None and self.made.layout is None

    @property
    def at_one(self) -> int:
        """What each of its elements emits if everything fires once: 1, or the pairs that meet in a product."""
        return self.made.at_one if self.made is not None and self.product else 1

    @property
    def synapses(self) -> int:
        """Σ_i ψ_i, the layer's synaptic operations if everything fired once."""
        return round(self.fan_out.sum().item()) * self.at_one

    @property
    def unit_synapses(self) -> int:
        """Those of its synapses that have no weight."""
        return round(sum(target.fan_out.sum().item() for target in self.targets if target.unit))


class Synapses(Mapping[str, Layer]):
    """The layers of a network with their ψ, by name and in the order in which they fire.

    What `picojoule.trace` returns and both `EnergyMeter` and `Penalty` read. `print(synapses)` shows a table.

    Args:
        layers: The layers by name.
        psi: The convention by which ψ was counted.
        input_shape: The shape of one sample.
        steps: Time steps in the traced forward pass.
        encoder_macs: Multiply-accumulates of the synapses that the input feeds, per sample and traced pass.
        dense_macs: Multiply-accumulates of the dense ReLU twin: every synapse once, whatever feeds it.
        weights: The layers of weights in the order in which they run; empty for a ψ that was written by hand.
        analog: Layers of weights and products that analog values feed, in the order in which they run.
        chains: How layers of weights without a neuron between them were billed.

    Raises:
        PicojouleError: `layers` is not a dictionary of `Layer`.

    >>> import torch, picojoule as pj
    >>> net = torch.nn.Sequential(pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(4, 3))
    >>> synapses = pj.trace(net, torch.zeros(1, 4))
    >>> synapses
    Synapses(1 layers, 4 neurons, 12 synapses, psi='exact')
    >>> synapses["0"].fan_out
    tensor([3, 3, 3, 3])
    """

    def __init__(
        self,
        layers: dict[str, Layer],
        *,
        psi: Psi,
        input_shape: tuple[int, ...],
        steps: int,
        encoder_macs: int,
        dense_macs: int,
        weights: tuple[WeightLayer, ...] = (),
        analog: tuple[AnalogSynapses, ...] = (),
        chains: ChainsOfLayers = "run",
    ) -> None:
        if not isinstance(layers, Mapping) or not all(isinstance(layer, Layer) for layer in layers.values()):
            raise PicojouleError("the layers of Synapses are a dictionary of picojoule.Layer by name: give one")
        self._layers = layers
        self.psi = psi
        self.input_shape = input_shape
        self.steps = steps
        self.encoder_macs = encoder_macs
        self.dense_macs = dense_macs
        self.weights = weights
        self.analog = analog
        self.chains = chains

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
    def products(self) -> list[Layer]:
        """The products of spikes by spikes."""
        return [layer for layer in self._layers.values() if layer.product]

    @property
    def made(self) -> dict[str, MadeSpikes]:
        """How the spikes of gates, functional max pools and products are made, by name."""
        return {name: layer.made for name, layer in self._layers.items() if layer.made is not None}

    @property
    def analog_macs(self) -> int:
        """Multiply-accumulates of the synapses that analog values feed, per sample and traced pass."""
        return sum(synapses.macs for synapses in self.analog)

    @property
    def unit_synapses(self) -> int:
        """Those of `synapses` by which spikes reach neurons without a weight."""
        return sum(layer.unit_synapses for layer in self._layers.values())

    @property
    def neurons(self) -> int:
        """The number of neurons of all layers: Ω_total(1) for p = 1."""
        return sum(layer.neurons for layer in self._layers.values())

    @property
    def synapses(self) -> int:
        """Σ_l Σ_i ψ_{l,i}, the synaptic operations if everything fired once: Ω_syn(1) for p = 1."""
        return sum(layer.synapses for layer in self._layers.values())

    def to_dict(self) -> dict[str, Any]:
        """Return totals and layers as `picojoule profile --json` prints them, in exact integers.

        Returns:
            A dictionary of numbers and strings; `penalty_at_one` is Ω(1) for p = 1.
        """
        return {
            "input_shape": list(self.input_shape),
            "psi": self.psi,
            "chains": self.chains,
            "steps": self.steps,
            "neurons": self.neurons,
            "spiking_layers": len(self.spiking),
            "synapses": self.synapses,
            "encoder_macs": self.encoder_macs,
            "analog_macs": self.analog_macs,
            "unit_synapses": self.unit_synapses,
            "analog": [{"name": synapses.name, "macs": synapses.macs} for synapses in self.analog],
            "penalty_at_one": {"syn": self.synapses, "total": self.neurons, "balance": len(self.spiking)},
            "layers": [
                {
                    "name": layer.name,
                    "shape": list(layer.shape),
                    "neurons": layer.neurons,
                    "synapses": layer.synapses,
                    "psi_min": layer.fan_out.min().item(),
                    "psi_max": layer.fan_out.max().item(),
                    "kind": "product" if layer.product else "relay" if layer.relay else "neurons",
                }
                for layer in self._layers.values()
            ],
        }

    def table(self) -> Table:
        """Make the table that `print(synapses)` shows.

        Returns:
            A table of Rich, a row for each layer.
        """
        table = Table(
            title=self._title(),
            caption=f"Ω(1), p = 1: syn {self.synapses:,}, total {self.neurons:,}, balance {len(self.spiking)}.   "
            f"Fed by the input, outside ψ: {self.encoder_macs:,} multiply-accumulates.{self._apart()}",
        )
        for column in ("layer", "map", "neurons", "ψ", "synapses", "share"):
            table.add_column(column, justify="left" if column == "layer" else "right")
        for layer in self._layers.values():
            table.add_row(
                escape(_shown(layer)),
                _map(layer),
                f"{layer.neurons:,}",
                _range(layer.fan_out),
                f"{layer.synapses:,}",
                f"{layer.synapses / self.synapses:.1%}" if self.synapses else "–",
            )
        table.add_section()
        table.add_row("total", "", f"{self.neurons:,}", "", f"{self.synapses:,}", "100.0%" if self.synapses else "–")
        return table

    def sheet(self) -> Sheet:
        """Return layers and what is counted apart as rows, for CSV and LaTeX.

        Returns:
            ψ and synapses of each layer, in one step; below, multiply-accumulates of all steps: those of the input
            (encoder) and those of each layer of weights or product that analog values feed.
        """
        columns = (*map(Column, ("layer", "map")), *map(_Counts, ("neurons", "ψ", "synapses", "MACs")))
        rows: list[tuple[Cell, ...]] = [
            (_shown(layer), _map(layer), layer.neurons or None, _range(layer.fan_out), layer.synapses, None)
            for layer in self._layers.values()
        ]
        rows.append(("encoder", "", None, None, None, self.encoder_macs))
        rows += [(f"{apart.name} (analog)", "", None, None, None, apart.macs) for apart in self.analog]
        rows.append(("total", "", self.neurons, None, self.synapses, self.encoder_macs + self.analog_macs))
        return Sheet(columns, tuple(rows), self._title())

    def latex(self) -> str:
        r"""Write the table as a LaTeX `tabular` of the package booktabs.

        Returns:
            Its text, to be put into a `table` of the author's own.

        >>> import torch, picojoule as pj
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), pj.Spike(), torch.nn.Linear(3, 4))
        >>> print(pj.trace(net, torch.zeros(1, 2)).latex())
        \begin{tabular}{llrlrr}
        \toprule
        layer & map & neurons & $\psi$ & synapses & MACs \\
        \midrule
        1 Spike & 3 & 3 & 4 & 12 & \textendash{} \\
        encoder &  & \textendash{} & \textendash{} & \textendash{} & 6 \\
        total &  & 3 & \textendash{} & 12 & 6 \\
        \bottomrule
        \end{tabular}
        <BLANKLINE>
        """
        return self.sheet().latex()

    def _title(self) -> str:
        steps = f", T = {self.steps}" if self.steps > 1 else ""
        merged = ", chains merged" if self.chains == "merged" else ""
        return f"ψ = {self.psi}{merged}, input {'×'.join(map(str, self.input_shape))}{steps}"

    def _apart(self) -> str:
        """Say what analog values feed, and what has no weight."""
        named = ", ".join(f"{escape(synapses.name)} {synapses.macs:,}" for synapses in self.analog)
        analog = f" Fed by analog values, outside ψ: {self.analog_macs:,} ({named})." if self.analog else ""
        unit = f" Unit synapses, within ψ: {self.unit_synapses:,}." if self.unit_synapses else ""
        fed_back = ", ".join(escape(name) for name, layer in self._layers.items() if layer.by_step is not None)
        by_step = f" ψ with what a spike reaches in the next step: {fed_back}." if fed_back else ""
        return analog + unit + by_step

    def __str__(self) -> str:
        return as_text(self.table())

    def __repr__(self) -> str:
        return f"Synapses({len(self)} layers, {self.neurons:,} neurons, {self.synapses:,} synapses, psi={self.psi!r})"


class _Counts(Column):
    """A column of whole numbers, in which what there is not is a dash."""

    def show(self, cell: Cell) -> str:
        """Write a cell as people read it."""
        return "–" if cell is None else f"{cell:,}" if isinstance(cell, int) else super().show(cell)


def _shown(layer: Layer) -> str:
    return layer.title + (" (product)" if layer.product else " (relay)" if layer.relay else "")


def _map(layer: Layer) -> str:
    return "×".join(map(str, layer.shape)) or "–"


def _range(psi: Tensor) -> str:
    low, high = psi.min().item(), psi.max().item()
    return f"{low:,.6g}" if low == high else f"{low:,.6g} … {high:,.6g}"
