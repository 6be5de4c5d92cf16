"""A penalised training step's time over the share of active synapses: part of `benchmarks/training.py`.

The same network with β of its batch norms set for several firing rates: ours, our dense path and the dense ReLU twin.
"""

from __future__ import annotations

from pathlib import Path

import altair as alt
from silence import Row, measure
from timing import console

RATES = (0.005, 0.02, 0.05, 0.1, 0.2, 0.3, 0.45, 0.6)
NAMES = {"ours": "skips silence (pj.sparse)", "ours, dense": "dense layers", "relu twin": "the ReLU twin, dense"}


def report(model: str, precisions: list[str], batch: int, turns: int, target: Path | None) -> None:
    console.print("| active synapses | precision |" + "".join(f" {name} [s] |" for name in NAMES))
    console.print("|---:|---|" + "---:|" * len(NAMES))
    points = []
    for precision in precisions:
        for rate in RATES:
            row = Row(f"{model} at {rate:.1%}", model, rate)
            times, share, _ = measure(row, precision, batch, [], turns)
            seconds = {name: times.median(name) for name in NAMES}
            points += [
                {"share": share, "milliseconds": 1e3 * s, "network": NAMES[name], "precision": precision}
                for name, s in seconds.items()
            ]
            console.print(f"| {share:.1%} | {precision} |" + "".join(f" {s:.3f} |" for s in seconds.values()))
    if target is not None:
        draw(points, f"A training step of {model.upper()}, {batch} images", target)


def draw(points: list[dict[str, object]], title: str, target: Path) -> None:
    x = alt.X("share:Q", title="active synapses").axis(format="%")
    y = alt.Y("milliseconds:Q", title="milliseconds a step").scale(domainMin=0)
    colour = alt.Color("network:N", title=None, sort=list(NAMES.values())).legend(orient="top", labelLimit=300)
    chart = alt.Chart({"values": points}).mark_line(point=True).encode(x, y, colour).properties(width=330, height=240)
    chart.facet(alt.Facet("precision:N", title=None, sort=["fp32", "bf16"])).properties(title=title).save(
        str(target), ppi=160
    )
