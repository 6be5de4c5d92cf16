"""The energy report: synaptic operations, joules, firing rates and dead neurons, by layer and in total."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from rich.markup import escape
from rich.table import Table

from picojoule.energy.hardware import PriceList
from picojoule.energy.hardware import get as price_list
from picojoule.energy.side_by_side import BREAK_EVEN, By, as_html, as_latex, one_sheet
from picojoule.energy.units import format_joules
from picojoule.io.tables import Sheet, as_text
from picojoule.synapses.table import Layer, WeightLayer


@dataclass(frozen=True)
class LayerEnergy:
    """The energy of one layer, per sample; a relay (max pool) has synaptic operations but no neurons and no rate."""

    name: str
    neurons: int
    synops: float
    """Σ_t Σ_i ψ_i s_{i,t}, the mean over the samples."""
    joules: float
    rate: float | None
    """Spikes per neuron and time step."""
    dead: int
    """Neurons that were silent in every step of every sample."""
    spikes: float
    synops_by_target: tuple[float, ...]
    """`synops` apart by the layers of weights that the spikes reach."""
    layer: Layer = field(repr=False, compare=False)

    @property
    def dead_rate(self) -> float | None:
        """The fraction of neurons that never fired; None for a relay."""
        return self.dead / self.neurons if self.neurons else None

    def to_dict(self) -> dict[str, Any]:
        """Return the layer's entry in `picojoule evaluate --json`."""
        return {
            "name": self.name,
            "neurons": self.neurons,
            "synops": self.synops,
            "joules": self.joules,
            "rate": self.rate,
            "dead_rate": self.dead_rate,
        }


@dataclass(frozen=True)
class WeightEnergy:
    """The energy of one layer of weights, per sample: what spikes bring to it, what the input does, and its twin's."""

    layer: WeightLayer
    synops: float
    joules: float
    """Of its synaptic operations; what a price list charges for a spike as such belongs to the layer that fires."""
    encoder_macs: float
    encoder_joules: float | None
    ann_joules: float | None
    """Of the same layer in the dense ReLU twin."""


@dataclass(frozen=True)
class AnalogEnergy:
    """A layer of weights, or a product, that analog values feed, per sample."""

    name: str
    macs: float
    joules: float | None


@dataclass(frozen=True)
class EnergyReport:
    """The energy of a network per sample, by layer and in total, priced by one price list.

    E_SNN = `joules` is what the spikes cost. Apart from it, and never part of it, stand the synapses that the input
    feeds (`encoder_joules`), those that other analog values feed (`analog_joules`), the dense ReLU twin (`ann_joules`)
    and what the neurons cost without a spike (`update_joules`). A price that the price list does not
    have is None, which is not the same as free.

    >>> import torch, picojoule as pj
    >>> net = torch.nn.Sequential(pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(4, 3))
    >>> meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, 4)))
    >>> with pj.watch(net) as activity:
    ...     _ = net(torch.tensor([[1.0, 0.0, 1.0, 0.0]]))
    >>> meter.update(activity)
    >>> report = meter.compute()
    >>> report.synops, report.rate_mean, report.dead_rate
    (6.0, 0.5, 0.5)
    >>> f"{report.priced('loihi').joules * 1e12:.1f} pJ"
    '162.6 pJ'
    """

    samples: int
    """Over which the means were taken."""
    steps: int
    """Time steps of each sample."""
    psi: str
    """The convention by which ψ was counted."""
    prices: PriceList
    """What each operation costs."""
    layers: tuple[LayerEnergy, ...]
    """In the order in which they fire, relays included."""
    encoder_macs: float
    """Multiply-accumulates of the synapses that the input feeds, per sample."""
    dense_macs: int
    """Multiply-accumulates of the dense ReLU twin, per sample."""
    weights: tuple[WeightEnergy, ...] = ()
    """The same counts by layers of weights, as papers list them."""
    analog: tuple[AnalogEnergy, ...] = ()
    """Layers of weights and products that analog values feed, in the order in which they run."""

    @property
    def neurons(self) -> int:
        """Neurons of all layers."""
        return sum(layer.neurons for layer in self.layers)

    @property
    def synops(self) -> float:
        """Synaptic operations of all layers: Σ_l Σ_t Σ_i ψ_{l,i} s_{l,i,t}, the mean over the samples."""
        return sum(layer.synops for layer in self.layers)

    @property
    def joules(self) -> float:
        """E_SNN: what the spikes cost, without the encoder and without what no spike changes."""
        return sum(layer.joules for layer in self.layers)

    @property
    def encoder_joules(self) -> float | None:
        """E_MAC · `encoder_macs`: what the synapses fed by the input cost."""
        return _priced(self.encoder_macs, self.prices.multiply_accumulate)

    @property
    def analog_macs(self) -> float:
        """Multiply-accumulates of the synapses that currents and other analog values feed, per sample."""
        return sum(entry.macs for entry in self.analog)

    @property
    def analog_joules(self) -> float | None:
        """E_MAC · `analog_macs`: what the synapses fed by currents and other analog values cost."""
        return _priced(self.analog_macs, self.prices.multiply_accumulate)

    @property
    def unit_synops(self) -> float:
        """Those of `synops` by which spikes reach neurons without a weight."""
        return sum(
            operations
            for entry in self.layers
            for target, operations in zip(entry.layer.targets, entry.synops_by_target, strict=True)
            if target.unit
        )

    @property
    def ann_joules(self) -> float | None:
        """E_MAC · `dense_macs`: what the dense ReLU twin costs."""
        return _priced(self.dense_macs, self.prices.multiply_accumulate)

    @property
    def update_joules(self) -> float | None:
        """T · Σ_l N_l · per_update(l): what the neurons cost without a spike, on hardware that charges each update."""
        prices = [self.prices.per_update(entry.layer) for entry in self.layers if not entry.layer.relay]
        neurons = [entry.neurons for entry in self.layers if not entry.layer.relay]
        if None in prices:
            return None
        return self.steps * sum(n * price for n, price in zip(neurons, prices, strict=True) if price is not None)

    @property
    def total_joules(self) -> float | None:
        """All that the network costs: spikes, encoder, analog synapses and neuron updates.

        None where the encoder or analog synapses have no price, for without it the total would hide them. Neuron
        updates that have no price, as on lists of arithmetic alone, are left out, and `unpriced` names them.
        """
        encoder, analog = self.encoder_joules, self.analog_joules
        if (encoder is None and self.encoder_macs) or (analog is None and self.analog_macs):
            return None
        return self.joules + (encoder or 0.0) + (analog or 0.0) + (self.update_joules or 0.0)

    @property
    def unpriced(self) -> tuple[str, ...]:
        """The parts of the network that the price list does not cover."""
        parts = (
            ("encoder", self.encoder_joules),
            ("analog synapses", self.analog_joules if self.analog else 0.0),
            ("updates of neurons", self.update_joules),
        )
        return tuple(name for name, joules in parts if joules is None)

    @property
    def shares(self) -> dict[str, float]:
        """The share of each priced part in `total_joules`; empty where there is no total, or it is zero."""
        total = self.total_joules
        parts = {
            "spikes": self.joules,
            "encoder": self.encoder_joules,
            **({"analog synapses": self.analog_joules} if self.analog else {}),
            "neuron updates": self.update_joules,
        }
        return {name: joules / total for name, joules in parts.items() if joules is not None} if total else {}

    @property
    def ann_ratio(self) -> float | None:
        """`total_joules` as a multiple of the dense ReLU twin's; None where one of them is not priced."""
        return self.total_joules / self.ann_joules if self.total_joules is not None and self.ann_joules else None

    @property
    def synops_per_synapse(self) -> float | None:
        """Synaptic operations per synapse and inference, all time steps together; None without synapses."""
        synapses = sum(entry.layer.synapses for entry in self.layers)
        return self.synops / synapses if synapses else None

    def break_even(self) -> str:
        """Say how often a synapse is used, beside the published bounds below which an SNN spends less than its twin.

        Returns:
            One clause; a dash where there are no synapses.
        """
        low, high = BREAK_EVEN
        used = self.synops_per_synapse
        return (
            f"{'–' if used is None else f'{used:.3g}'} synaptic operations per synapse and inference (an SNN pays "
            f"below {low} to {high}, by the hardware: Dampfhoffer et al. 2023)"
        )

    @property
    def rate_sum(self) -> float:
        """The sum of the layers' firing rates, as the paper reports it."""
        return sum(layer.rate for layer in self.layers if layer.rate is not None)

    @property
    def rate_mean(self) -> float:
        """The mean of the layers' firing rates, each layer counted once whatever its size."""
        return self.rate_sum / sum(layer.rate is not None for layer in self.layers)

    @property
    def dead_rate(self) -> float:
        """The fraction of all neurons that never fired."""
        return sum(layer.dead for layer in self.layers) / self.neurons

    def priced(self, prices: str | PriceList) -> EnergyReport:
        """Price the same counts by another price list.

        Args:
            prices: The name of a price list, or one of your own.

        Returns:
            A new report.

        Raises:
            PicojouleError: The price list is unknown.
        """
        prices = price_list(prices)
        layers = tuple(replace(entry, joules=_joules(prices, entry)) for entry in self.layers)
        weights = tuple(_weight_energy(prices, layers, entry) for entry in self.weights)
        analog = tuple(replace(entry, joules=_priced(entry.macs, prices.multiply_accumulate)) for entry in self.analog)
        return replace(self, prices=prices, layers=layers, weights=weights, analog=analog)

    def to_dict(self) -> dict[str, Any]:
        """Return totals and layers as numbers and strings, as `picojoule evaluate --json` prints them."""
        return {
            "samples": self.samples,
            "joules": self.joules,
            "synops": self.synops,
            "encoder_macs": self.encoder_macs,
            "encoder_joules": self.encoder_joules,
            "analog_macs": self.analog_macs,
            "analog_joules": self.analog_joules,
            "unit_synops": self.unit_synops,
            "ann_joules": self.ann_joules,
            "update_joules": self.update_joules,
            "total_joules": self.total_joules,
            "total_shares": self.shares,
            "ann_ratio": self.ann_ratio,
            "synops_per_synapse": self.synops_per_synapse,
            "rate_mean": self.rate_mean,
            "rate_sum": self.rate_sum,
            "dead_rate": self.dead_rate,
            "steps": self.steps,
            "psi": self.psi,
            "hardware": self.prices.name,
            "layers": [layer.to_dict() for layer in self.layers],
            "analog": [{"name": part.name, "macs": part.macs, "joules": part.joules} for part in self.analog],
        }

    def table(self) -> Table:
        """Make the table that `print(report)` shows.

        Returns:
            A table of Rich, a row for each layer.
        """
        apart = [
            f"encoder {self.encoder_macs:,.0f} MACs, {format_joules(self.encoder_joules)}",
            f"dense ReLU twin {self.dense_macs:,} MACs, {format_joules(self.ann_joules)}",
        ]
        if self.analog:
            apart.insert(
                1,
                f"analog synapses {self.analog_macs:,.0f} MACs, {format_joules(self.analog_joules)} "
                f"({', '.join(f'{escape(entry.name)} {entry.macs:,.0f}' for entry in self.analog)})",
            )
        if self.update_joules is not None:
            apart.append(f"neuron updates {format_joules(self.update_joules)}")
        table = Table(
            title=f"Energy per sample (mean of {self.samples:,}), T = {self.steps}, ψ {self.psi}, "
            f"{escape(self.prices.name)}",
            caption=f"Not in the total: {'; '.join(apart)}. Total rate: mean over layers (sum {self.rate_sum:.2%}). "
            f"{self._everything()} {self.break_even()}.{self._unit()}",
        )
        for column in ("layer", "neurons", "synaptic operations", "energy", "share", "rate", "dead"):
            table.add_column(column, justify="left" if column == "layer" else "right")
        for layer in self.layers:
            table.add_row(
                escape(layer.layer.title),
                f"{layer.neurons:,}" if layer.neurons else "product" if layer.layer.product else "relay",
                f"{layer.synops:,.1f}",
                format_joules(layer.joules),
                f"{layer.joules / self.joules:.1%}" if self.joules else "–",
                f"{layer.rate:.2%}" if layer.rate is not None else "",
                f"{layer.dead_rate:.2%}" if layer.dead_rate is not None else "",
            )
        table.add_section()
        table.add_row(
            "total",
            f"{self.neurons:,}",
            f"{self.synops:,.1f}",
            format_joules(self.joules),
            "100.0%" if self.joules else "–",
            f"{self.rate_mean:.2%}",
            f"{self.dead_rate:.2%}",
        )
        return table

    def _unit(self) -> str:
        """Say how much of the total goes to neurons without a weight."""
        if not any(target.unit for entry in self.layers for target in entry.layer.targets):
            return ""
        return f" Of the total, {self.unit_synops:,.1f} operations by unit synapses."

    def _everything(self) -> str:
        """Say what the network costs with all that is not spikes, beside its twin."""
        total, ratio = self.total_joules, self.ann_ratio
        if total is None:
            return f"Everything together: – ({', '.join(self.unpriced)} not priced)."
        parts = ", ".join(f"{name} {share:.1%}" for name, share in self.shares.items())
        without = [f"{name}: –" for name in self.unpriced]
        compared = "" if ratio is None else f", {ratio:.{2 if ratio < 0.1 else 3}g} times the dense ReLU twin's"
        return f"Everything together: {format_joules(total)} ({'; '.join(filter(None, [parts, *without]))}){compared}."

    def sheet(self, by: By = "firing") -> Sheet:
        """Return the report as a paper prints it: layers, spikes, encoder, neuron updates, total and dense twin.

        Args:
            by: "firing" for the layers that fire, or "weights" for the layers that their spikes reach, with the input's
                share and the dense twin's energy of the same layer beside each.

        Returns:
            A table; what the price list does not cover is a dash.

        Raises:
            PicojouleError: `by` is neither, or the layers of weights are not known, for ψ was written by hand.
        """
        return one_sheet(self, by)

    def latex(self, by: By = "firing") -> str:
        """Write the table of `sheet` as a LaTeX `tabular` of the package booktabs, with its title in a comment below.

        Args:
            by: As for `sheet`.

        Returns:
            The text of the table.
        """
        return as_latex(self.sheet(by))

    def csv(self, by: By = "firing") -> str:
        """Write the table of `sheet` as CSV with one header line.

        Args:
            by: As for `sheet`.

        Returns:
            The text, energies in the unit of the heading.
        """
        return self.sheet(by).csv()

    def _repr_html_(self) -> str:
        return as_html(self.sheet())

    def __str__(self) -> str:
        return as_text(self.table())


def _joules(prices: PriceList, entry: LayerEnergy) -> float:
    """Price the spikes of a layer: the same coefficients as the penalty's, on sums instead of single neurons."""
    targets = zip(entry.layer.targets, entry.synops_by_target, strict=True)
    return sum(prices.per_synop(t) * n for t, n in targets) + prices.per_spike(entry.layer) * entry.spikes


def _weight_energy(prices: PriceList, layers: tuple[LayerEnergy, ...], entry: WeightEnergy) -> WeightEnergy:
    """Price what reaches a layer of weights from all layers that fire."""
    reached = [
        (target, synops)
        for layer in layers
        for target, synops in zip(layer.layer.targets, layer.synops_by_target, strict=True)
        if target.name == entry.layer.name
    ]
    return replace(
        entry,
        synops=sum(synops for _, synops in reached),
        joules=sum(prices.per_synop(target) * synops for target, synops in reached),
        encoder_joules=_priced(entry.encoder_macs, prices.multiply_accumulate),
        ann_joules=_priced(entry.layer.macs, prices.multiply_accumulate),
    )


def _priced(operations: float, joules_each: float | None) -> float | None:
    return None if joules_each is None else operations * joules_each
