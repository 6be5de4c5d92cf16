"""A penalised training step's time over the share of active synapses: part of `benchmarks/training.py`.

The same network with β of its batch norms set for several firing rates: ours, our dense path and the dense ReLU twin.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
from silence import Row, measure
from timing import Clock, console

RATES = (0.005, 0.02, 0.06, 0.12, 0.25, 0.4, 0.6)
NAMES = {"ours": "skips silence (pj.sparse)", "ours, dense": "dense layers", "relu twin": "the ReLU twin, dense"}


def table(model: str, precisions: list[str], batch: int, turns: int, clock: Clock, chart: Path | None) -> list[str]:
    """Time the network at every rate, draw the curve, and give the figures as a Markdown table."""
    lines = [
        "| active synapses | precision |" + "".join(f" {name} [ms] |" for name in NAMES.values()),
        "|---:|---|" + "---:|" * len(NAMES),
    ]
    points = []
    for precision in precisions:
        for rate in RATES:
            row = Row(f"{model} at {rate:.1%}", model, "", rate)
            times, share, _ = measure(row, precision, batch, [who for who in NAMES if who != "ours"], turns, clock)
            milliseconds = {name: 1e3 * times.median(name) for name in NAMES}
            points += [
                {"share": share, "milliseconds": ms, "network": NAMES[name], "precision": precision}
                for name, ms in milliseconds.items()
            ]
            lines.append(f"| {share:.1%} | {precision} |" + "".join(f" {ms:.0f} |" for ms in milliseconds.values()))
            console.print(lines[-1], highlight=False)
    if chart is not None:
        chart.parent.mkdir(parents=True, exist_ok=True)
        draw(points, f"A training step of {model.upper()}, {batch} images", chart)
    return lines


def draw(points: list[dict[str, object]], title: str, target: Path) -> None:
    x = alt.X("share:Q", title="active synapses").axis(format="%")
    y = alt.Y("milliseconds:Q", title="milliseconds a step").scale(domainMin=0)
    colour = alt.Color("network:N", title=None, sort=list(NAMES.values())).legend(orient="top", labelLimit=300)
    chart = alt.Chart({"values": points}).mark_line(point=True).encode(x, y, colour).properties(width=330, height=240)
    chart.facet(alt.Facet("precision:N", title=None, sort=["fp32", "bf16"])).properties(title=title).save(
        str(target), ppi=160
    )
