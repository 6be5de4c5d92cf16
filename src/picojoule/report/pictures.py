"""Charts as pictures: SVG, and PNG and PDF made of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import altair as alt

from picojoule.io.files import make_folder, write_atomically
from picojoule.io.tables import visible

PNG_SCALE = 2
"""Pixels of a PNG for each of the chart's, so that print and fine screens have enough."""


def save(chart: alt.TopLevelMixin, path: str | os.PathLike[str]) -> list[Path]:
    """Save a chart as SVG, PDF and PNG, on white.

    Args:
        chart: The chart.
        path: Where to, without an ending; the folder is made if need be.

    Returns:
        The three files.

    >>> import tempfile
    >>> chart = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q")
    >>> [path.name for path in save(chart, f"{tempfile.mkdtemp()}/figure")]
    ['figure.svg', 'figure.pdf', 'figure.png']
    """
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(_specification(chart))
    pictures = {
        ".svg": svg.encode(),
        ".pdf": vl_convert.svg_to_pdf(svg),
        ".png": vl_convert.svg_to_png(svg, scale=PNG_SCALE),
    }
    path = Path(path)
    make_folder(path.parent)
    for ending, content in pictures.items():
        write_atomically(path.with_name(path.name + ending), content)
    return [path.with_name(path.name + ending) for ending in pictures]


def png(chart: alt.TopLevelMixin) -> bytes:
    """Draw a chart as PNG.

    Args:
        chart: The chart.

    Returns:
        The picture's bytes.
    """
    import vl_convert

    picture: bytes = vl_convert.vegalite_to_png(_specification(chart), scale=PNG_SCALE)
    return picture


def _specification(chart: alt.TopLevelMixin) -> dict[str, Any]:
    """Describe a chart for Vega-Lite, with control characters in names spelt out: XML, which SVG is, has none."""
    specification: dict[str, Any] = _spelt_out(chart.to_dict())
    return specification


def _spelt_out(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, list):
        return [_spelt_out(item) for item in value]
    if isinstance(value, dict):
        return {key: _spelt_out(item) for key, item in value.items()}
    return value
