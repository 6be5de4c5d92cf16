"""Pictures show any name: XML, which SVG is, has no control characters."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from picojoule.report import figures, pictures

ODD = {"a\x1b[31mb": r"a\x1b[31mb", "c\0d": r"c\x00d", "e\ud800": r"e\ud800", "f\uffff": r"f\uffff"}


@pytest.mark.parametrize(("name", "shown"), ODD.items(), ids=ascii)
def test_a_layer_with_an_odd_name(name: str, shown: str, tmp_path: Path) -> None:
    rows = [{"network": name, "layer": name, "energy": 1.0, "rate": 0.5}]
    files = pictures.save(figures.layers(rows, (name,)), tmp_path / "layers")
    assert [path.stat().st_size > 0 for path in files] == [True] * 3
    assert shown in "".join(ElementTree.parse(tmp_path / "layers.svg").getroot().itertext())
    assert pictures.png(figures.layers(rows, (name,))).startswith(b"\x89PNG")
