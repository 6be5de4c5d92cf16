"""Energy reports as a paper prints them: layer by layer, with all that is not spikes, for one chip or several.

What a price list does not cover is a dash, never a zero.
"""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

from rich.table import Table

from picojoule.energy.hardware import PriceList
from picojoule.errors import PicojouleError, unknown
from picojoule.io.tables import Cell, Column, Sheet, as_text

DASH = "–"
By = Literal["firing", "weights"]
BREAK_EVEN = (0.15, 1.38)
"""Synaptic operations per synapse and inference below which an SNN spends less than its dense twin, by the hardware's
assumptions (M. Dampfhoffer et al., Are SNNs really more energy-efficient than ANNs?, IEEE TETCI 2023)."""
_UNITS = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ"))


class Bill(Protocol):
    """What a table needs of an `EnergyReport`."""

    @property
    def layers(self) -> Sequence[Any]:
        """The energy of each layer."""

    @property
    def weights(self) -> Sequence[Any]:
        """The energy of each layer of weights."""

    @property
    def prices(self) -> PriceList:
        """The price list."""

    @property
    def steps(self) -> int:
        """Time steps."""

    @property
    def psi(self) -> str:
        """The convention of ψ."""

    @property
    def neurons(self) -> int:
        """Neurons of all layers."""

    @property
    def rate_mean(self) -> float:
        """Mean of the layers' firing rates."""

    @property
    def synops(self) -> float:
        """Synaptic operations."""

    @property
    def joules(self) -> float:
        """What the spikes cost."""

    @property
    def encoder_joules(self) -> float | None:
        """What the encoder costs."""

    @property
    def analog(self) -> Sequence[Any]:
        """What analog values feed."""

    @property
    def analog_joules(self) -> float | None:
        """What the synapses cost that analog values feed."""

    @property
    def update_joules(self) -> float | None:
        """What neuron updates cost."""

    @property
    def total_joules(self) -> float | None:
        """All of these together."""

    @property
    def ann_joules(self) -> float | None:
        """What the dense twin costs."""

    @property
    def ann_ratio(self) -> float | None:
        """The total as a multiple of the twin's."""

    def break_even(self) -> str:
        """Say how often a synapse is used, beside published bounds."""


_RATIO = "times the dense ReLU twin"


class EnergyColumn(Column):
    """A column in which what is not priced is a dash."""

    def show(self, cell: Cell) -> str:
        """Write a cell as people read it."""
        return DASH if cell is None else super().show(cell)

    def plain(self, value: float | None) -> str:
        """Write a number for a machine, with all its digits."""
        return DASH if value is None else super().plain(value)


@dataclass(frozen=True)
class SideBySide:
    """The reports of one network on several chips, side by side. `print` shows a table.

    Attributes:
        reports: One for each price list; all of the same counts.
    """

    reports: tuple[Bill, ...]

    def __iter__(self) -> Iterator[Bill]:
        return iter(self.reports)

    def __len__(self) -> int:
        return len(self.reports)

    def sheet(self, by: By = "firing") -> Sheet:
        """Return layers and totals as rows, and chips as columns.

        Args:
            by: "firing" for the layers that fire, or "weights" for the layers that their spikes or the input reach.

        Returns:
            Energies per sample, each column in its own unit.

        Raises:
            PicojouleError: `by` is neither, or the layers of weights are not known, for ψ was written by hand.
        """
        return _sheet(self.reports, _checked(self.reports[0], by))

    def latex(self, by: By = "firing") -> str:
        """Write the table as a LaTeX `tabular` of the package booktabs, with its title in a comment below.

        Args:
            by: As for `sheet`.
        """
        return as_latex(self.sheet(by))

    def csv(self, by: By = "firing") -> str:
        """Write the table as CSV with one header line, energies in the unit of the heading.

        Args:
            by: As for `sheet`.
        """
        return self.sheet(by).csv()

    def table(self) -> Table:
        """Make the table that `print` shows."""
        return self.sheet().table()

    def _repr_html_(self) -> str:
        return as_html(self.sheet())

    def __str__(self) -> str:
        return as_text(self.table())


def _checked(report: Bill, by: str) -> By:
    """Refuse a table that there is not."""
    if by not in get_args(By):
        raise unknown("table", str(by), get_args(By))
    if by == "weights" and not report.weights:
        raise PicojouleError(
            "the layers of weights are not known, for ψ was written by hand: take the synapses that picojoule.trace "
            "gives, or the table by firing layers"
        )
    return by  # type: ignore[return-value]  # one of them


def one_sheet(report: Bill, by: By = "firing") -> Sheet:
    """Return the table of one report.

    Args:
        report: The report.
        by: As `EnergyReport.sheet` takes it.

    Returns:
        Layers with neurons, rates and operations, and below them all that is not spikes; by weights, layers with what
        spikes, the input and the dense twin cost there.

    Raises:
        PicojouleError: `by` is neither, or the layers of weights are not known.
    """
    if _checked(report, by) == "weights":
        return _by_weights(report)
    column = _energy_column("energy", [report])
    numbers = (EnergyColumn("neurons"), EnergyColumn("rate [%]", scale=100))
    columns = (Column("layer"), *numbers, EnergyColumn("synaptic operations", digits=1), column)
    rows: list[tuple[Cell, ...]] = [
        (entry.layer.title, entry.neurons or None, entry.rate, entry.synops, entry.joules) for entry in report.layers
    ]
    rows.append(("spikes", report.neurons, report.rate_mean, report.synops, report.joules))
    rows += [(title, None, None, None, values[0]) for title, values in _apart([report])]
    rows.append((_RATIO, None, None, None, _ratio(report, columns[-1])))
    return Sheet(columns, tuple(rows), _title(report))


def _by_weights(report: Bill) -> Sheet:
    """Return the table by layers of weights: accumulates of spikes, multiply-accumulates of the input, and the twin."""
    energies = tuple(_energy_column(title, [report]) for title in ("energy", "dense ReLU twin"))
    operations = (EnergyColumn("synaptic operations", digits=1), EnergyColumn("MACs of the input", digits=1))
    columns = (Column("layer"), *operations, *energies)
    rows: list[tuple[Cell, ...]] = [
        (each.layer.title, each.synops or None, each.encoder_macs or None, _of_weights(each), each.ann_joules)
        for each in report.weights
    ]
    spikes = report.joules - sum(each.joules for each in report.weights)
    if spikes > 1e-9 * report.joules:  # what a list charges for a spike beside its synapses
        rows.append(("spikes as such", None, None, spikes, None))
    rows.append(("neuron updates", None, None, report.update_joules, None))
    rows.append(("all together", report.synops, _macs(report), report.total_joules, report.ann_joules))
    rows.append((_RATIO, None, None, _ratio(report, columns[-2]), None))
    return Sheet(columns, tuple(rows), _title(report))


def _macs(report: Bill) -> float | None:
    return sum(each.encoder_macs for each in report.weights) or None


def _of_weights(each: Any) -> float | None:
    """Price what spikes and the input bring to a layer of weights; None where the input's part has no price."""
    if each.encoder_macs and each.encoder_joules is None:
        return None
    priced: float = each.joules + (each.encoder_joules or 0.0)
    return priced


def _sheet(reports: Sequence[Bill], by: By) -> Sheet:
    columns = (Column("layer"), *(_energy_column(report.prices.name, [report]) for report in reports))
    rows: list[tuple[Cell, ...]] = []
    if by == "weights":
        for number, each in enumerate(reports[0].weights):
            rows.append((each.layer.title, *(_of_weights(report.weights[number]) for report in reports)))
    else:
        for number, entry in enumerate(reports[0].layers):
            rows.append((entry.layer.title, *(report.layers[number].joules for report in reports)))
    rows.append(("spikes", *(report.joules for report in reports)))
    rows += [(title, *values) for title, values in _apart(reports)]
    rows.append((_RATIO, *(_ratio(report, column) for report, column in zip(reports, columns[1:], strict=True))))
    return Sheet(columns, tuple(rows), _title(reports[0]))


def _apart(reports: Sequence[Bill]) -> list[tuple[str, list[float | None]]]:
    """Give the rows of what is not spikes."""
    analog = [("analog synapses", [report.analog_joules for report in reports])] if reports[0].analog else []
    return [
        ("encoder", [report.encoder_joules for report in reports]),
        *analog,
        ("neuron updates", [report.update_joules for report in reports]),
        ("all together", [report.total_joules for report in reports]),
        ("dense ReLU twin", [report.ann_joules for report in reports]),
    ]


def _ratio(report: Bill, column: Column) -> Cell:
    """Return the ratio to the twin as a number that the column's unit leaves as it is."""
    return None if report.ann_ratio is None else report.ann_ratio / column.scale


def _title(report: Bill) -> str:
    return f"energy per sample, T = {report.steps}, ψ {report.psi}, {report.break_even()}"


def _energy_column(title: str, reports: Sequence[Bill]) -> EnergyColumn:
    largest = max(max(report.joules, report.total_joules or 0.0, report.ann_joules or 0.0) for report in reports)
    scale, unit = next(((s, u) for s, u in _UNITS if largest >= s), _UNITS[-1])
    return EnergyColumn(f"{title} [{unit}]", digits=3, scale=1 / scale)


def as_latex(sheet: Sheet) -> str:
    """Write a table as LaTeX, and below it in a comment what its caption should say.

    Args:
        sheet: The table.

    Returns:
        A `tabular` and a line that LaTeX passes over: steps, ψ, and synaptic operations beside their bounds.
    """
    return f"{sheet.latex()}% {sheet.title}\n"


def as_html(sheet: Sheet) -> str:
    """Write a table as HTML, as a notebook shows it.

    Args:
        sheet: The table.

    Returns:
        A `table` element.
    """

    def row(cells: Sequence[str], kind: str) -> str:
        return f"<tr>{''.join(f'<{kind}>{html.escape(cell)}</{kind}>' for cell in cells)}</tr>"

    body = "".join(row(cells, "td") for cells in sheet.shown())
    return f"<table><caption>{html.escape(sheet.title)}</caption>{row(sheet.titles, 'th')}{body}</table>"
