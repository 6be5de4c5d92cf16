"""The figures, as Altair charts: they take rows and return a chart, for the page and for PNG, SVG and PDF alike.

Each has one set of rows, so that a page can put others in their place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import altair as alt

from picojoule.report.rows import BASELINE, Row

# Okabe and Ito's palette without its yellow, which is lost on white paper, and two more that are as far from these and
# from each other for the colour-blind.
BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, VIOLET, BROWN = (
    *("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#9036E8", "#873C1E"),
)
GREY = "#8C8C8C"
PALETTE = (BLUE, ORANGE, GREEN, VERMILION, PURPLE, SKY, VIOLET, BROWN)
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

_EPOCHS = alt.Axis(format="d", labelExpr="datum.value % 1 ? '' : datum.label", grid=False, ticks=False)
"""Whole numbers only: with few epochs, ticks come in halves, whatever `tickMinStep` says."""

Width = int | Literal["container"]


def colours(kinds: Iterable[str]) -> dict[str, str]:
    """The same colour for a kind wherever it appears; new kinds take what is left of the palette.

    >>> colours(["Ω_syn", "conversion"])
    {'Ω_syn': '#0072B2', 'conversion': '#D55E00'}
    >>> frontiers = colours([*KIND_COLOURS, "Ω_syn budget", *(f"Ω_syn frontier {folder}" for folder in "abcd")])
    >>> len({GREY, *frontiers.values()})
    9
    """
    known, kinds = {**KIND_COLOURS, **_WAYS}, list(dict.fromkeys(kinds))
    left = [colour for colour in PALETTE if colour not in known.values()]
    left += [colour for kind, colour in _WAYS.items() if kind not in kinds]  # grey would pass for the baseline
    free = iter(left)
    return {kind: known.get(kind) or next(free, GREY) for kind in kinds}


def looks(variants: Sequence[str]) -> dict[str, tuple[str, list[int]]]:
    """The shape of the marks and the dashes of the line of each variant.

    >>> looks(["p = 1", "p = 2"])
    {'p = 1': ('circle', [1, 0]), 'p = 2': ('triangle-up', [6, 3])}
    """
    return {
        variant: (SHAPES[number % len(SHAPES)], DASHES[number % len(DASHES)]) for number, variant in enumerate(variants)
    }


def tradeoff(
    rows: Sequence[Row],
    kinds: Sequence[str],
    variants: Sequence[str],
    seeds: Sequence[str] = (),
    width: Width = 600,
    height: int = 400,
    legend: bool = True,
) -> alt.LayerChart:
    """Accuracy over energy relative to the baseline: every run, and means over seeds ± sample standard deviation.

    Where a level has several seeds, the mark is their mean and its runs are small ones around it. The baseline is a
    line across, in a band of its deviation. The parameters `kinds`, `variants` and `seeds` hold what is shown, `lowest`
    and `highest` the accuracies between which the axis runs, `furthest` the energy at its end, and `chosen` the name of
    the run that has a ring.
    """
    seeds = list(seeds) or sorted({str(row["seed"]) for row in rows})
    lowest, highest, furthest = extent(rows)
    shown = [
        alt.param(name="kinds", value=list(kinds)),
        alt.param(name="variants", value=list(variants)),
        alt.param(name="seeds", value=list(seeds)),
        alt.param(name="lowest", value=lowest),
        alt.param(name="highest", value=highest),
        alt.param(name="furthest", value=furthest),
        alt.param(name="chosen", value=""),
    ]
    named = {BASELINE: GREY, **colours(kinds)}
    told = [kind for kind in named if kind != BASELINE or any(row["kind"] == BASELINE for row in rows)]
    look = looks(variants)
    colour = alt.Color(
        "kind:N",
        title="penalty",
        legend=alt.Legend(symbolType="circle", symbolOpacity=1, values=told) if legend else None,
        scale=alt.Scale(domain=list(named), range=list(named.values())),
    )
    # Values and no scale: its legend would be merged with that of the dashes, which show only on lines.
    shape = alt.ShapeValue(
        SHAPES[0],
        condition=[{"test": f"datum.variant == {json.dumps(v)}", "value": form} for v, (form, _) in look.items()],
    )
    dash = alt.StrokeDash(
        "variant:N",
        title=None,
        legend=alt.Legend(symbolType="stroke", symbolSize=600, symbolStrokeWidth=2) if legend else None,
        scale=alt.Scale(domain=list(look), range=[dashes for _, dashes in look.values()]),
    )
    across = alt.Axis(format="%", tickCount=10, labelFlush=False)
    energy_title, accuracy_title = "energy relative to the baseline", "accuracy"
    # A little room to the left, so that the mark of a network that is nearly silent is whole.
    x_scale = alt.Scale(domain=alt.ExprRef("[-0.015 * furthest, furthest]"), nice=False)
    y_scale = alt.Scale(domain=alt.ExprRef("[lowest, highest]"), zero=False, nice=False)

    def x(field: str) -> alt.X:
        return alt.X(f"{field}:Q", title=energy_title, axis=across, scale=x_scale)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=accuracy_title, axis=alt.Axis(format="%"), scale=y_scale)

    base = alt.Chart({"values": list(rows)}).transform_filter("indexof(seeds, datum.seed) >= 0")
    without = base.transform_filter(f"datum.kind == '{BASELINE}'")
    on = "indexof(kinds, datum.kind) >= 0 && indexof(variants, datum.variant) >= 0"
    penalised = base.transform_filter(on)
    level: list[str | alt.FieldName] = ["kind", "variant", "strength", "rank"]
    means, plain = _means(penalised, level), _means(without, ["kind"])
    several = means.transform_filter("datum.n > 1")
    run = [
        *(alt.Tooltip("run:N"), alt.Tooltip("kind:N", title="penalty"), alt.Tooltip("variant:N", title="power")),
        *(alt.Tooltip("strength:N", title="λ' or budget"), alt.Tooltip("seed:N")),
        *(alt.Tooltip("accuracy:Q", format=".2%"), alt.Tooltip("energy:Q", format=".2%")),
    ]
    mean = [
        *(alt.Tooltip("several:N", title="mean of"), alt.Tooltip("kind:N", title="penalty")),
        *(alt.Tooltip("variant:N", title="power"), alt.Tooltip("strength:N", title="λ' or budget")),
        *(alt.Tooltip("accuracy:N"), alt.Tooltip("energy:N")),
    ]
    grown: Any = {"stroke": "transparent", "strokeWidth": 6}  # a small mark that a finger can hit
    chart: alt.LayerChart = alt.LayerChart(
        layer=[
            plain.transform_filter("datum.n > 1")
            .mark_rect(clip=True, opacity=0.16, color=GREY, aria=False)
            .encode(y=y("y1"), y2="y2:Q"),
            plain.mark_rule(clip=True, color=GREY, strokeDash=[3, 3], strokeWidth=1.5, aria=False).encode(y=y("y")),
            means.mark_line(clip=True, strokeWidth=2).encode(
                x=x("x"), y=y("y"), color=colour, strokeDash=dash, order="rank:Q"
            ),
            several.mark_rule(clip=True, opacity=0.7, strokeWidth=1.5).encode(
                x=x("x"), y=y("y1"), y2="y2:Q", color=colour
            ),
            several.mark_rule(clip=True, opacity=0.7, strokeWidth=1.5).encode(
                x=x("x1"), x2="x2:Q", y=y("y"), color=colour
            ),
            several.mark_point(clip=True, filled=True, size=75, opacity=1, **grown).encode(
                x=x("x"), y=y("y"), color=colour, shape=shape, tooltip=mean
            ),
            without.mark_point(clip=True, filled=True, size=70, shape="diamond", opacity=0.9, **grown).encode(
                x=x("energy"), y=y("accuracy"), color=colour, tooltip=run
            ),
            penalised.transform_joinaggregate(n="count()", groupby=level)
            .mark_point(clip=True, filled=True, **grown)
            .encode(
                x=x("energy"),
                y=y("accuracy"),
                color=colour,
                shape=shape,
                size=alt.condition("datum.n > 1", alt.value(16), alt.value(60)),
                opacity=alt.condition("datum.n > 1", alt.value(0.45), alt.value(0.9)),
                tooltip=run,
            ),
            base.transform_filter("chosen != '' && datum.run == chosen")
            .transform_filter(f"datum.kind == '{BASELINE}' || ({on})")
            .mark_point(clip=True, size=260, strokeWidth=2.5, shape="circle", aria=False)
            .encode(x=x("energy"), y=y("accuracy"), color=colour),
        ],
        width=width,
        height=height,
    ).add_params(*shown)
    return chart


def extent(rows: Sequence[Row]) -> tuple[float, float, float]:
    """The lowest and the highest accuracy and the furthest energy of the axes, with room for whole marks."""
    accuracies = [row["accuracy"] for row in rows] or [0.0, 1.0]
    low, high = min(accuracies), max(accuracies)
    room = 0.04 * max(high - low, 0.05)
    return low - room, high + room, 1.04 * max([1.0, *(row["energy"] for row in rows)])


def _means(runs: alt.Chart, groups: list[str | alt.FieldName]) -> alt.Chart:
    """Means `x` and `y` of energy and accuracy, one deviation to each side of them, and both in words."""

    def words(axis: str) -> str:
        spread = f"(datum.n > 1 ? ' ± ' + format(datum.d{axis}, '.2%') : '')"
        return f"format(datum.{axis}, '.2%') + {spread}"

    chart: alt.Chart = runs.transform_aggregate(
        n="count()",
        x="mean(energy)",
        y="mean(accuracy)",
        dx="stdev(energy)",
        dy="stdev(accuracy)",
        groupby=groups,
    ).transform_calculate(
        **{  # one seed has no deviation
            f"{axis}{end}": f"datum.{axis} {sign} (datum.n > 1 ? datum.d{axis} : 0)"
            for axis in "xy"
            for end, sign in ((1, "-"), (2, "+"))
        },
        several="datum.n + ' seeds'",
        energy=words("x"),
        accuracy=words("y"),
    )
    return chart


def energy_by_layer(rows: Sequence[Row], networks: Sequence[str], width: Width = 320, height: int = 230) -> alt.Chart:
    """Bars of `energy` (microjoules) for each `network`, side by side at each `layer`, in the order of the rows."""
    return _bars(rows, networks, alt.Y("energy:Q", title="energy per image (µJ)"), width, height)


def rate_by_layer(rows: Sequence[Row], networks: Sequence[str], width: Width = 320, height: int = 230) -> alt.Chart:
    """Bars of `rate` likewise; a relay has none."""
    return _bars(rows, networks, alt.Y("rate:Q", title="firing rate", axis=alt.Axis(format="%")), width, height)


def layers(rows: Sequence[Row], networks: Sequence[str]) -> alt.HConcatChart:
    """Energy and firing rate side by side; their axes say what they are."""
    return alt.hconcat(energy_by_layer(rows, networks), rate_by_layer(rows, networks))


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
            x=alt.X("epoch:Q", title="epoch", axis=_EPOCHS, scale=alt.Scale(zero=False, nice=False)),
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


def training_curves(rows: Mapping[str, Sequence[Row]]) -> alt.ConcatChart:
    """Loss, accuracy, energy and strength, two in a row, of `rows.training_rows`, as far as they are known."""
    charts = (training(rows[key], key) for key in TRAINING if rows[key])
    together: alt.ConcatChart = alt.concat(*charts, columns=2).resolve_scale(color="independent")  # each its own lines
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
