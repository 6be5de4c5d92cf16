"""The pages of the site in one folder, build/docs: docs, the lab reports of results/, and the notebooks as pages.

python scripts/site_pages.py
"""

from __future__ import annotations

import base64
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "build" / "docs"
PNG_SCALE = 2
"""Pixels of a notebook's picture for each that it takes on the page."""


def page_of(notebook: Path) -> None:
    """Set a notebook as a page beside it, with its pictures in a folder of its name."""
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    parts = [part for number, cell in enumerate(cells) for part in _parts(cell, notebook.with_suffix(""), number)]
    parts.insert(1, f"[The notebook]({notebook.name}): download it, and change what you like.")
    notebook.with_suffix(".md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _parts(cell: dict[str, Any], pictures: Path, number: int) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        # The line below the title belongs to it; the notebook's link goes between
        yield from text.split("\n\n", 1) if number == 0 else [text]
        return
    yield f"```py\n{text}\n```"
    for output in cell["outputs"]:
        if printed := "".join(output.get("text", output.get("data", {}).get("text/plain", ""))).rstrip():
            yield f"```text\n{printed}\n```"
        if encoded := output.get("data", {}).get("image/png"):
            picture = base64.b64decode(encoded)
            pictures.mkdir(exist_ok=True)
            (pictures / f"{number}.png").write_bytes(picture)
            width = int.from_bytes(picture[16:20], "big") // PNG_SCALE
            yield f'![What the lines above draw]({pictures.name}/{number}.png){{ width="{width}" }}'


def relink(page: Path) -> None:
    """Let links between docs/ and results/ lead to where the two are on the site."""
    up = "../" * (len(page.relative_to(PAGES).parts) - 1)
    text = page.read_text(encoding="utf-8")
    if page.is_relative_to(PAGES / "results"):
        text = text.replace(f"]({up}docs/", f"]({up}")
    else:
        text = text.replace(f"]({up}../results/", f"]({up}results/")
    text = re.sub(r"(\]\([^)]*notebooks/\w+)\.ipynb", r"\1.md", text)
    page.write_text(re.sub(r"(\]\([^)]*results/|\]\()README\.md", r"\1index.md", text), encoding="utf-8")


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    shutil.copytree(ROOT / "docs", PAGES)
    shutil.copytree(ROOT / "results", PAGES / "results", ignore=shutil.ignore_patterns("*.zip"))
    (PAGES / "results" / "README.md").rename(PAGES / "results" / "index.md")
    for notebook in sorted(PAGES.glob("notebooks/*.ipynb")):
        page_of(notebook)
    for page in sorted(PAGES.rglob("*.md")):
        relink(page)


if __name__ == "__main__":
    main()
