"""Charts as pictures: SVG, and PNG and PDF made of it."""

from __future__ import annotations

from pathlib import Path

import altair as alt

from picojoule.io.files import write_atomically

PNG_SCALE = 2
"""Pixels of a PNG for each of the chart's, so that print and fine screens have enough."""


def save(chart: alt.TopLevelMixin, path: Path) -> list[Path]:
    """Save a chart as SVG, PDF and PNG, on white.

    Args:
        chart: The chart.
        path: Where to, without an ending.

    Returns:
        The three files.

    >>> import tempfile
    >>> chart = alt.Chart(alt.Data(values=[{"x": 1}])).mark_point().encode(x="x:Q")
    >>> [path.name for path in save(chart, Path(tempfile.mkdtemp(), "figure"))]
    ['figure.svg', 'figure.pdf', 'figure.png']
    """
    import vl_convert

    svg: str = vl_convert.vegalite_to_svg(chart.to_json())
    pictures = {
        ".svg": svg.encode(),
        ".pdf": vl_convert.svg_to_pdf(svg),
        ".png": vl_convert.svg_to_png(svg, scale=PNG_SCALE),
    }
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

    picture: bytes = vl_convert.vegalite_to_png(chart.to_json(), scale=PNG_SCALE)
    return picture
