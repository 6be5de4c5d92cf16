"""The comparison of two networks, one trained without and one with the penalty: their bills side by side."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
from rich.table import Table

from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError
from picojoule.io.files import make_folder, write_atomically
from picojoule.io.tables import Column, Sheet
from picojoule.report import figures
from picojoule.report.finding import saving
from picojoule.report.page import figure_place, page, table
from picojoule.report.pictures import png
from picojoule.report.rows import layer_rows
from picojoule.runs.result import SplitResult


@dataclass(frozen=True)
class Comparison:
    """The test results of a baseline and of a penalised network.

    Raises:
        PicojouleError: If one of them has no spikes, or the baseline spends nothing.
    """

    title: str
    """What was compared."""
    labels: tuple[str, str]
    """Names of the two networks."""
    results: tuple[SplitResult, SplitResult]
    """Theirs, `result.test` of each run."""

    def __post_init__(self) -> None:
        if not self._joules[0]:
            raise PicojouleError(
                f"{self.labels[0]!r} fires no spike, so nothing can be measured against it: train it longer"
            )

    @property
    def _joules(self) -> list[float]:
        for label, result in zip(self.labels, self.results, strict=True):
            if result.joules is None:
                raise PicojouleError(f"{label!r} has no spikes and so no bill to compare: compare spiking networks")
        return [result.joules for result in self.results if result.joules is not None]

    @property
    def energy_ratio(self) -> float:
        """Energy of the second network relative to the first."""
        before, after = self._joules
        return after / before

    @property
    def points_lost(self) -> float:
        """Percentage points of accuracy that the second network lacks; negative if it is better."""
        before, after = self.results
        return 100 * (before.accuracy - after.accuracy)

    @property
    def headline(self) -> str:
        """What was saved and what it cost, in a few words."""
        return saving(self.energy_ratio, self.points_lost / 100)

    def rows(self) -> list[tuple[str, str, str]]:
        """Give the two bills line by line.

        Returns:
            What the line is about, and the figure of each network in words.
        """
        before, after = self.results

        def both(what: str, show: Any) -> tuple[str, str, str]:
            return what, show(before), show(after)

        rows = [
            both("accuracy", lambda r: f"{r.accuracy:.2%}"),
            both("energy per image", lambda r: format_joules(r.joules)),
            both("synaptic operations", lambda r: f"{r.synops:,.0f}"),
            both("mean firing rate", lambda r: f"{r.rate_mean:.2%}"),
            both("dead neurons", lambda r: f"{r.dead_rate:.2%}"),
            both("encoder (apart)", lambda r: format_joules(r.encoder_joules)),
            both("everything together", lambda r: format_joules(r.total_joules)),
            both("dense ReLU twin (apart)", lambda r: format_joules(r.ann_joules)),
        ]
        for i, layer in enumerate(before.layers):
            rows.append(both(f"{layer.name} energy", lambda r, i=i: format_joules(r.layers[i].joules)))
        for i, layer in enumerate(before.layers):
            if layer.rate is not None:
                rows.append(both(f"{layer.name} rate", lambda r, i=i: f"{r.layers[i].rate:.2%}"))
        return rows

    @property
    def conventions(self) -> str:
        """What the figures mean."""
        result = self.results[0]
        return (
            f"Per image, mean over {result.samples:,} test images; T = {result.steps}, ψ {result.psi}, "
            f"{result.hardware}. Encoder and dense twin are not in the energy."
        )

    def table(self) -> Table:
        """Make a table for a terminal.

        Returns:
            The two bills.
        """
        table = Table(title=f"{self.title}: {self.headline}", caption=self.conventions)
        table.add_column("per image")
        for label in self.labels:
            table.add_column(label, justify="right")
        for number, row in enumerate(self.rows()):
            table.add_row(*row, end_section=number in (6, 6 + len(self.results[0].layers)))
        return table

    @property
    def sheet(self) -> Sheet:
        """The two bills as a sheet."""
        titles = ("per image", *self.labels)
        return Sheet(tuple(map(Column, titles)), tuple(self.rows()))

    def chart(self) -> alt.HConcatChart:
        """Draw energy and firing rate, layer by layer.

        Returns:
            Two charts side by side.
        """
        chart = figures.layers(self._layer_rows(), self.labels)
        return chart.properties(title=alt.Title(self.headline, subtitle=self.title, anchor="start", fontSize=16))

    def _layer_rows(self) -> list[dict[str, Any]]:
        return [
            row
            for label, result in zip(self.labels, self.results, strict=True)
            for row in layer_rows(label, result.layers)
        ]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write `report.html`, which can be read offline, and `report.png`.

        Args:
            folder: Where to; made if need be.

        Returns:
            The two paths.
        """
        home, picture = make_folder(folder) / "report.html", folder / "report.png"
        write_atomically(picture, png(self.chart()))
        write_atomically(home, self._page().encode())
        return home, picture

    def _page(self) -> str:
        rows = self._layer_rows()
        charts = {
            "energy": figures.energy_by_layer(rows, self.labels, width="container"),
            "rate": figures.rate_by_layer(rows, self.labels, width="container"),
        }
        body = (
            f"<h1>{html.escape(self.title)}</h1>\n"
            f'<p class="headline">{html.escape(self.headline)}</p>\n'
            f'<div class="cards">{figure_place("energy", "Energy by layer")}'
            f"{figure_place('rate', 'Firing rate by layer')}</div>\n"
            f"<h2>The two bills</h2>\n{table(self.sheet, 'The two bills')}\n"
            f'<p class="note">{html.escape(self.conventions)}</p>'
        )
        return page(self.title, body, charts)
