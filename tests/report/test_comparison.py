"""Two bills side by side: the words, the numbers, a page that needs no network, a picture that is one."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

import picojoule as pj
import tiny
from picojoule.report import Comparison
from picojoule.runs.result import SplitResult


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> tuple[SplitResult, SplitResult]:
    """With a relay, which has no rate."""
    into = tmp_path_factory.mktemp("runs")
    plain, frugal = (
        pj.fit(tiny.recipe("model.name=tiny:pooled", f"penalty.strength={s}"), into).result.test for s in (0, 4)
    )
    return plain, frugal


def comparison(results: tuple[SplitResult, SplitResult], **changes: Any) -> Comparison:
    before, after = results
    return Comparison("Tiny <on> digits", ("no penalty", "Ω_syn"), (before, after.model_copy(update=changes)))


@pytest.mark.parametrize(
    ("accuracy", "joules", "headline"),
    [
        (0.47, 0.25, "25 % of the energy, 3.0 points of accuracy less"),
        (0.5125, 0.5, "50 % of the energy, 1.2 points of accuracy more"),
        (0.5, 1.5, "150 % of the energy, the same accuracy"),
    ],
)
def test_the_headline(results: tuple[SplitResult, SplitResult], accuracy: float, joules: float, headline: str) -> None:
    before = results[0].model_copy(update={"accuracy": 0.5, "joules": 1.0})
    assert comparison((before, results[1]), accuracy=accuracy, joules=joules).headline == headline


def test_every_line_of_the_bill(results: tuple[SplitResult, SplitResult]) -> None:
    before, after = results
    rows = {name: cells for name, *cells in comparison(results).rows()}
    assert rows["accuracy"] == [f"{before.accuracy:.2%}", f"{after.accuracy:.2%}"]
    assert rows["dead neurons"] == [f"{before.dead_rate:.2%}", f"{after.dead_rate:.2%}"]
    assert rows["spike2 rate"] == [f"{r.layers[2].rate:.2%}" for r in results]
    assert "pool1 energy" in rows
    assert "pool1 rate" not in rows
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(comparison(results).table())
    for name, cells in rows.items():
        assert name in console.export_text(clear=False)
        assert all(cell in console.export_text(clear=False) for cell in cells)


def test_the_page_needs_no_network_and_the_picture_is_one(
    results: tuple[SplitResult, SplitResult], tmp_path: Path
) -> None:
    page, picture = comparison(results).write(tmp_path / "new" / "folder")
    assert sorted(path.name for path in page.parent.iterdir()) == ["report.html", "report.png"]
    text = page.read_text(encoding="utf-8")
    markup = re.sub(r"<script\b[^>]*>.*?</script>", "<script></script>", text, flags=re.DOTALL)
    assert len(markup) < len(text)
    tags = re.findall(r"<[a-zA-Z][^>]*>", markup)
    assert not [tag for tag in tags if re.search(r"\b(src|href)\s*=", tag)]
    assert not re.search(r"<script\b[^>]*\bsrc\s*=", text)
    assert not re.search(r"@import|url\(\s*['\"]?http", markup)
    assert not re.search(r"import\s*\(?\s*[\"']https?://", text)
    assert "<h1>Tiny &lt;on&gt; digits</h1>" in markup
    assert comparison(results).headline in markup
    assert "pool1 energy" in markup
    with Image.open(picture) as image:
        assert image.format == "PNG"
        image.load()
        assert image.width > 800
        assert len(image.convert("RGB").getcolors(2**24) or ()) > 10
