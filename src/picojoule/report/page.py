"""HTML pages: one file each, which holds its style, its charts, its data and the library that draws them."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import altair as alt

from picojoule.io.tables import Sheet

# Nothing may be loaded from anywhere; Vega compiles its expressions, hence eval.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline' 'unsafe-eval'; img-src data: blob:"

_NEGATIVE = re.compile(r"^-(?=\d)")

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
</main>
{data}
<script>{library}</script>
<script>
{script}</script>
</body>
</html>
"""


def page(
    title: str,
    body: str,
    charts: Mapping[str, alt.TopLevelMixin],
    data: Mapping[str, str] | None = None,
    scripts: Iterable[str] = (),
) -> str:
    """Make a whole HTML document that needs no other file.

    Args:
        title: The document's title.
        body: HTML with a `figure_place` for every chart.
        charts: The charts by the names of their places.
        data: Blocks of JSON by name, to be read by the scripts.
        scripts: Names of scripts in `assets/`; without any, every chart is drawn as it is.

    Returns:
        HTML.
    """
    blocks = {"charts": json.dumps({name: chart.to_dict() for name, chart in charts.items()}), **(data or {})}
    code = "\n".join(asset(f"{name}.js") for name in ("page", *scripts)) + ("" if scripts else "picojoule.all();\n")
    return _PAGE.format(
        policy=_POLICY,
        title=html.escape(title),
        style=asset("page.css"),
        body=body,
        data="\n".join(
            f'<script type="application/json" id="{name}">{_inert(text)}</script>' for name, text in blocks.items()
        ),
        library=_library(),
        script=code,
    )


def figure_place(name: str, title: str, wide: bool = False) -> str:
    """Make a place for a chart, with its title above.

    Args:
        name: The chart's name.
        title: Its title.
        wide: Whether it takes the whole width.

    Returns:
        HTML.
    """
    return f'<div class="card{" wide" if wide else ""}"><h3>{html.escape(title)}</h3>{chart_place(name, title)}</div>'


def chart_place(name: str, title: str) -> str:
    """Make a place for a chart.

    Args:
        name: The chart's name.
        title: Its title, for those who cannot see it.

    Returns:
        HTML.
    """
    return f'<div class="chart" id="{name}" role="figure" aria-label="{html.escape(title)}"></div>'


def table(sheet: Sheet, title: str) -> str:
    """Make a table that scrolls by itself where the screen is narrow, also by the keyboard.

    Args:
        sheet: The table's content.
        title: Its title, for those who cannot see it.

    Returns:
        HTML.
    """

    def row(cells: Iterable[str], tag: str) -> str:
        classes = (' class="word"' if sheet.is_text(index) else "" for index in range(len(sheet.columns)))
        marked = zip(cells, classes, strict=True)
        return "<tr>" + "".join(f"<{tag}{word}>{unbroken(cell)}</{tag}>" for cell, word in marked) + "</tr>"

    body = "".join(row((_NEGATIVE.sub("−", cell) for cell in cells), "td") for cells in sheet.shown())
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{html.escape(title)}"><table>'
        f"<thead>{row(sheet.titles, 'th')}</thead><tbody>{body}</tbody></table></div>"
    )


def unbroken(text: str) -> str:
    """Write text as HTML in which no line ends within an equation or before a unit.

    Args:
        text: Plain text.

    Returns:
        HTML.

    Example:
        >>> unbroken("Ω_syn (p = 1), 78.0 ± 2.4 % accurate")
        'Ω_syn (p&nbsp;=&nbsp;1), 78.0&nbsp;±&nbsp;2.4&nbsp;% accurate'
    """
    return re.sub(r" ([=±]) ", r"&nbsp;\1&nbsp;", html.escape(text)).replace(" %", "&nbsp;%")


def compact(value: Any) -> str:
    """Write JSON without spaces.

    Args:
        value: Plain values, none of them infinite or NaN.

    Returns:
        JSON.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


@cache
def asset(name: str) -> str:
    """Read a file of the page's style, scripts and markup.

    Args:
        name: Its name in `assets/`.

    Returns:
        Its text.
    """
    return (files("picojoule.report") / "assets" / name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    import vl_convert

    bundle: str = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    return bundle.replace("</script", "<\\/script")


def _inert(text: str) -> str:
    """Write JSON so that no tag can begin or end in it."""
    return text.replace("<", "\\u003c")
