"""Two bills side by side: a network trained without and with the penalty."""

from __future__ import annotations

import html
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
from rich.table import Table

from picojoule.errors import PicojouleError
from picojoule.record import write_atomically
from picojoule.units import format_joules

# Okabe and Ito's palette: told apart also by the colour-blind, and in grey.
COLOURS = ("#8c8c8c", "#0072b2")


@dataclass(frozen=True)
class Comparison:
    """The test results of a baseline and of a penalised network, as in the `test` object of `result.json`."""

    title: str
    labels: tuple[str, str]
    results: tuple[dict[str, Any], dict[str, Any]]

    def __post_init__(self) -> None:
        for label, result in zip(self.labels, self.results, strict=True):
            if result["joules"] is None:
                raise PicojouleError(f"{label!r} has no spikes and so no bill to compare: compare spiking networks")
        if not self.results[0]["joules"]:
            raise PicojouleError(
                f"{self.labels[0]!r} fires no spike, so nothing can be measured against it: train it longer"
            )

    @property
    def energy_ratio(self) -> float:
        """Energy of the second network relative to the first."""
        before, after = self.results
        return float(after["joules"] / before["joules"])

    @property
    def points_lost(self) -> float:
        """Percentage points of accuracy that the second network lacks; negative if it is better."""
        before, after = self.results
        return 100 * float(before["accuracy"] - after["accuracy"])

    @property
    def headline(self) -> str:
        change = f"{abs(self.points_lost):.1f} points of accuracy {'less' if self.points_lost >= 0 else 'more'}"
        return f"{self.energy_ratio:.0%} of the energy, {change}"

    def rows(self) -> list[tuple[str, str, str]]:
        """The bill, line by line: what, without, with."""
        before, after = self.results

        def both(what: str, show: Any) -> tuple[str, str, str]:
            return what, show(before), show(after)

        rows = [
            both("accuracy", lambda r: f"{r['accuracy']:.2%}"),
            both("energy per image", lambda r: format_joules(r["joules"])),
            both("synaptic operations", lambda r: f"{r['synops']:,.0f}"),
            both("mean firing rate", lambda r: f"{r['rate_mean']:.2%}"),
            both("dead neurons", lambda r: f"{r['dead_rate']:.2%}"),
            both("encoder (apart)", lambda r: format_joules(r["encoder_joules"])),
            both("dense ReLU twin (apart)", lambda r: format_joules(r["ann_joules"])),
        ]
        for i, layer in enumerate(before["layers"]):
            rows.append(both(f"{layer['name']} energy", lambda r, i=i: format_joules(r["layers"][i]["joules"])))
        for i, layer in enumerate(before["layers"]):
            if layer["rate"] is not None:
                rows.append(both(f"{layer['name']} rate", lambda r, i=i: f"{r['layers'][i]['rate']:.2%}"))
        return rows

    @property
    def conventions(self) -> str:
        result = self.results[0]
        return (
            f"Per image, mean over {result['samples']:,} test images; T = {result['steps']}, ψ {result['psi']}, "
            f"{result['hardware']}. Encoder and dense twin are not in the energy."
        )

    def table(self) -> Table:
        table = Table(title=f"{self.title}: {self.headline}", caption=self.conventions)
        table.add_column("per image")
        for label in self.labels:
            table.add_column(label, justify="right")
        for number, row in enumerate(self.rows()):
            table.add_row(*row, end_section=number in (6, 6 + len(self.results[0]["layers"])))
        return table

    def chart(self) -> alt.HConcatChart:
        """Energy and firing rate, layer by layer."""
        records = [
            {
                "network": label,
                "layer": layer["name"],
                "energy": layer["joules"] * 1e6,
                "rate": layer["rate"],
            }
            for label, result in zip(self.labels, self.results, strict=True)
            for layer in result["layers"]
        ]
        layers = [layer["name"] for layer in self.results[0]["layers"]]
        colour = alt.Color("network:N", title=None, scale=alt.Scale(domain=list(self.labels), range=list(COLOURS)))
        base = alt.Chart({"values": records}).encode(
            x=alt.X("layer:N", sort=layers, title=None, axis=alt.Axis(labelAngle=-40)),
            xOffset=alt.XOffset("network:N", sort=list(self.labels)),
            color=colour.legend(orient="top"),
            tooltip=[
                alt.Tooltip("network:N"),
                alt.Tooltip("layer:N"),
                alt.Tooltip("energy:Q", format=".3f", title="µJ"),
                alt.Tooltip("rate:Q", format=".2%"),
            ],
        )
        energy = base.mark_bar().encode(y=alt.Y("energy:Q", title="energy per image (µJ)"))
        rate = base.mark_bar().encode(y=alt.Y("rate:Q", title="firing rate", axis=alt.Axis(format="%")))
        size = {"width": 300, "height": 230}
        return alt.hconcat(
            energy.properties(title="Energy by layer", **size), rate.properties(title="Firing rate by layer", **size)
        ).properties(title=alt.Title(f"{self.title}: {self.headline}", anchor="start", fontSize=16))

    def write(self, folder: Path) -> tuple[Path, Path]:
        """`report.html`, readable offline, and `report.png`."""
        folder.mkdir(parents=True, exist_ok=True)
        chart = self.chart()
        page, picture = folder / "report.html", folder / "report.png"
        write_atomically(picture, _png(chart))
        write_atomically(page, self._page(chart).encode())
        return page, picture

    def _page(self, chart: alt.HConcatChart) -> str:
        def cells(row: tuple[str, str, str], tag: str) -> str:
            return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in row)

        body = "".join(f"<tr>{cells(row, 'td')}</tr>" for row in self.rows())
        figure = chart.to_html(inline=True, fullhtml=False)
        return _PAGE.format(
            title=html.escape(self.title),
            headline=html.escape(self.headline),
            head=cells(("per image", *self.labels), "th"),
            body=body,
            conventions=html.escape(self.conventions),
            figure=figure,
        )


def _png(chart: alt.HConcatChart) -> bytes:
    import vl_convert

    picture: bytes = vl_convert.vegalite_to_png(chart.to_json(), scale=2)
    return picture


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
  table {{ border-collapse: collapse; margin: 1.5rem 0; }}
  th, td {{ padding: .25rem .9rem; text-align: right; border-bottom: 1px solid #8884; }}
  td {{ font-variant-numeric: tabular-nums; }}
  th:first-child, td:first-child {{ text-align: left; }}
  .figure {{ overflow-x: auto; background: #fff; border-radius: .5rem; padding: .5rem; }}
  .headline {{ font-size: 1.4rem; }}
  .note {{ opacity: .75; font-size: .9rem; }}
</style>
<h1>{title}</h1>
<p class="headline">{headline}</p>
<div class="figure">{figure}</div>
<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>
<p class="note">{conventions}</p>
</html>
"""
