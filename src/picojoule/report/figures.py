"""The figures, as Altair charts: they take rows and return a chart, for the page and for PNG, SVG and PDF alike.

Each has one set of rows, so that a page can put others in their place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import altair as alt

from picojoule.report.rows import BASELINE, Row

# Okabe and Ito's palette: told apart also by the colour-blind.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#F0E442"),
)
GREY = "#8C8C8C"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, YELLOW)
KIND_COLOURS = {"Ω_syn": BLUE, "Ω_total": ORANGE, "Ω_balance": GREEN}
_WAYS = {"Ω_syn budget": PURPLE, "Ω_syn frontier": SKY}
"""The other kinds of curves that a report often has; what is none of both takes what is left."""
SHAPES = ("circle", "triangle-up", "square", "diamond", "cross", "triangle-down")
DASHES = ([1, 0], [6, 3], [2, 2], [8, 2, 2, 2], [4, 4], [1, 3])

_BOTH = {"training": VERMILION, "validation": SKY}  # no penalty's colours
TRAINING = {
    "loss": ("cross-entropy", "", _BOTH),
    "accuracy": ("accuracy", "%", _BOTH),
    "energy": ("energy per image (µJ)", "", {"validation": SKY, "wanted by the budget": GREY}),
    "strength": ("strength λ'", "", {"strength": PURPLE}),
}
"""What is drawn of a training: the title of the axis, its format, and the lines with their colours."""

Width = int | Literal["container"]


def colours(kinds: Iterable[str]) -> dict[str, str]:
    """The same colour for a kind wherever it appears; new kinds take what is left of the palette.

    >>> colours(["Ω_syn", "conversion"])
    {'Ω_syn': '#0072B2', 'conversion': '#D55E00'}
    >>> frontiers = colours(["Ω_syn", *(f"Ω_syn frontier {folder}" for folder in "abcd")])
    >>> len({GREY, *frontiers.values()})
    6
    """
    known, kinds = {**KIND_COLOURS, **_WAYS}, list(dict.fromkeys(kinds))
    left = [colour for colour in PALETTE if colour not in known.values()]
    left += [colour for kind, colour in _WAYS.items() if kind not in kinds]  # grey would pass for the baseline
    free = iter(left)
    return {kind: known.get(kind) or next(free, GREY) for kind in kinds}


def tradeoff(
    rows: Sequence[Row],
    kinds: Sequence[str],
    variants: Sequence[str],
    seeds: Sequence[str] = (),
    width: Width = 520,
    height: int = 360,
    legend: bool = True,
) -> alt.LayerChart:
    """Accuracy over energy relative to the baseline: every run, and means over seeds ± sample standard deviation.

    The parameters `kinds`, `variants` and `seeds` hold what is shown, `lowest` the accuracy
    that the axis starts from, and `furthest` the energy at its end.
    """
    seeds = list(seeds) or sorted({str(row["seed"]) for row in rows})
    shown = [
        alt.param(name="kinds", value=list(kinds)),
        alt.param(name="variants", value=list(variants)),
        alt.param(name="seeds", value=list(seeds)),
        alt.param(name="lowest", value=_lowest(rows)),
        alt.param(name="furthest", value=1.04 * max([1.0, *(row["energy"] for row in rows)])),
    ]
    named = colours(kinds)
    look = alt.Legend() if legend else None
    if any(row["kind"] == BASELINE for row in rows):
        named = {BASELINE: GREY, **named}
    colour = alt.Color(
        "kind:N", title="penalty", legend=look, scale=alt.Scale(domain=list(named), range=list(named.values()))
    )
    shape = alt.Shape(
        "variant:N",
        title=None,
        legend=look,
        scale=alt.Scale(domain=list(variants), range=_cycled(SHAPES, len(variants))),
    )
    dash = alt.StrokeDash(
        "variant:N",
        title=None,
        legend=look,
        scale=alt.Scale(domain=list(variants), range=_cycled(DASHES, len(variants))),
    )
    percent = alt.Axis(format="%")
    energy_title, accuracy_title = "energy relative to the baseline", "accuracy"
    x_scale = alt.Scale(domainMin=0, domainMax=alt.ExprRef("furthest"), nice=False)
    y_scale = alt.Scale(domainMin=alt.ExprRef("lowest"), zero=False, nice=True)
    x = alt.X("energy:Q", title=energy_title, axis=percent, scale=x_scale)
    y = alt.Y("accuracy:Q", title=accuracy_title, axis=percent, scale=y_scale)
    base = alt.Chart({"values": list(rows)}).transform_filter("indexof(seeds, datum.seed) >= 0")
    without = base.transform_filter(f"datum.kind == '{BASELINE}'")
    penalised = base.transform_filter("indexof(kinds, datum.kind) >= 0").transform_filter(
        "indexof(variants, datum.variant) >= 0"
    )
    means = penalised.transform_aggregate(
        x="mean(energy)",
        y="mean(accuracy)",
        dx="stdev(energy)",
        dy="stdev(accuracy)",
        groupby=["kind", "variant", "strength", "rank"],
    ).transform_calculate(
        **{  # one seed has no deviation
            f"{axis}{end}": f"datum.{axis} {sign} (isFinite(datum.d{axis}) ? datum.d{axis} : 0)"
            for axis in "xy"
            for end, sign in ((1, "-"), (2, "+"))
        }
    )
    mean_x = alt.X("x:Q", title=energy_title, axis=percent, scale=x_scale)
    mean_y = alt.Y("y:Q", title=accuracy_title, axis=percent, scale=y_scale)
    tooltip = [
        *(alt.Tooltip("run:N"), alt.Tooltip("kind:N", title="penalty"), alt.Tooltip("variant:N", title="power")),
        *(alt.Tooltip("strength:N", title="λ' or budget"), alt.Tooltip("seed:N")),
        *(alt.Tooltip("accuracy:Q", format=".2%"), alt.Tooltip("energy:Q", format=".2%")),
    ]
    chart: alt.LayerChart = alt.LayerChart(
        layer=[
            means.mark_line(clip=True, strokeWidth=2).encode(
                x=mean_x, y=mean_y, color=colour, strokeDash=dash, order="rank:Q"
            ),
            means.mark_rule(clip=True, opacity=0.6).encode(x=mean_x, y=alt.Y("y1:Q"), y2="y2:Q", color=colour),
            means.mark_rule(clip=True, opacity=0.6).encode(x=alt.X("x1:Q"), x2="x2:Q", y=mean_y, color=colour),
            without.mark_point(clip=True, filled=True, size=70, color=GREY, shape="diamond", opacity=0.9).encode(
                x=x, y=y, tooltip=tooltip, **({"color": colour} if BASELINE in named else {})
            ),
            penalised.mark_point(clip=True, filled=True, size=45, opacity=0.75).encode(
                x=x, y=y, color=colour, shape=shape, tooltip=tooltip
            ),
        ],
        width=width,
        height=height,
    ).add_params(*shown)
    return chart


def energy_by_layer(rows: Sequence[Row], networks: Sequence[str], width: Width = 320, height: int = 230) -> alt.Chart:
    """Bars of `energy` (microjoules) for each `network`, side by side at each `layer`, in the order of the rows."""
    return _bars(rows, networks, alt.Y("energy:Q", title="energy per image (µJ)"), width, height)


def rate_by_layer(rows: Sequence[Row], networks: Sequence[str], width: Width = 320, height: int = 230) -> alt.Chart:
    """Bars of `rate` likewise; a relay has none."""
    return _bars(rows, networks, alt.Y("rate:Q", title="firing rate", axis=alt.Axis(format="%")), width, height)


def layers(rows: Sequence[Row], networks: Sequence[str]) -> alt.HConcatChart:
    """Energy and firing rate side by side."""
    return alt.hconcat(
        energy_by_layer(rows, networks).properties(title="Energy by layer"),
        rate_by_layer(rows, networks).properties(title="Firing rate by layer"),
    )


def penalty_by_layer(rows: Sequence[Row], width: Width = 480, height: int = 230, legend: bool = True) -> alt.Chart:
    """Each layer's `share` of the energy and of every penalty: Ω_syn stands as high as the energy, the others need not.

    `term` is "energy", "Ω_syn", "Ω_total" or "Ω_balance".
    """
    terms = {"energy": GREY, **KIND_COLOURS}
    chart: alt.Chart = (
        _chart(rows, width, height)
        .mark_bar()
        .encode(
            x=_layer_axis(),
            xOffset=alt.XOffset("term:N", sort=list(terms)),
            y=alt.Y("share:Q", title="share of the total", axis=alt.Axis(format="%")),
            color=alt.Color(
                "term:N",
                title=None,
                scale=alt.Scale(domain=list(terms), range=list(terms.values())),
                legend=alt.Legend(orient="top") if legend else None,
            ),
            tooltip=[alt.Tooltip("layer:N"), alt.Tooltip("term:N"), alt.Tooltip("share:Q", format=".2%")],
        )
    )
    return chart


def training(rows: Sequence[Row], key: str, width: Width = 300, height: int = 200) -> alt.Chart:
    """`value` over `epoch`, a line for each `series`; `key` is one of TRAINING."""
    what, unit, lines = TRAINING[key]
    there = {row["series"] for row in rows} or lines.keys()
    lines = {name: colour for name, colour in lines.items() if name in there}
    chart: alt.Chart = (
        _chart(rows, width, height)
        .mark_line(point=alt.OverlayMarkDef(size=20))
        .encode(
            x=alt.X("epoch:Q", title="epoch", axis=alt.Axis(tickMinStep=1), scale=alt.Scale(zero=False, nice=False)),
            y=alt.Y("value:Q", title=what, axis=alt.Axis(format=unit) if unit else alt.Axis()),
            color=alt.Color(
                "series:N",
                title=None,
                scale=alt.Scale(domain=list(lines), range=list(lines.values())),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                *(alt.Tooltip("series:N"), alt.Tooltip("epoch:Q")),
                alt.Tooltip("value:Q", title=what, format=unit or ".4"),
            ],
        )
    )
    return chart


def training_curves(rows: Mapping[str, Sequence[Row]]) -> alt.HConcatChart:
    """Loss, accuracy, energy and strength side by side, of `rows.training_rows`, as far as they are known."""
    charts = (training(rows[key], key) for key in TRAINING if rows[key])
    together: alt.HConcatChart = alt.hconcat(*charts).resolve_scale(color="independent")  # each has lines of its own
    return together


def _bars(rows: Sequence[Row], networks: Sequence[str], y: alt.Y, width: Width, height: int) -> alt.Chart:
    bars = [_network_colour(name, first=name == networks[0] and len(networks) > 1) for name in networks]
    chart: alt.Chart = (
        _chart(rows, width, height)
        .mark_bar()
        .encode(
            x=_layer_axis(),
            xOffset=alt.XOffset("network:N", sort=list(networks)),
            y=y,
            color=alt.Color(
                "network:N",
                title=None,
                scale=alt.Scale(domain=list(networks), range=bars),
                legend=alt.Legend(orient="top"),
            ),
            tooltip=[
                *(alt.Tooltip("network:N"), alt.Tooltip("layer:N")),
                *(alt.Tooltip("energy:Q", format=".4", title="µJ"), alt.Tooltip("rate:Q", format=".2%")),
            ],
        )
    )
    return chart


def _network_colour(name: str, first: bool) -> str:
    """That of its penalty; the first of several is what they are measured against."""
    kind = next((kind for kind in KIND_COLOURS if kind in name), None)
    return GREY if first else KIND_COLOURS[kind] if kind else SKY


def _chart(rows: Sequence[Row], width: Width, height: int) -> alt.Chart:
    return alt.Chart({"values": list(rows)}, width=width, height=height)


def _layer_axis() -> alt.X:
    return alt.X("layer:N", sort=None, title=None, axis=alt.Axis(labelAngle=-40, labelLimit=110))


def _lowest(rows: Sequence[Row]) -> float:
    """The axis starts at the last ten percent below the worst run."""
    return int(min((row["accuracy"] for row in rows), default=0.0) * 10) / 10


def _cycled(values: Sequence[Any], number: int) -> list[Any]:
    return [values[i % len(values)] for i in range(number)]
