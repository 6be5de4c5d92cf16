"""The notebooks run, and what they show is of the code that they have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import notebooks
import pytest

NOTEBOOKS = sorted(notebooks.FOLDER.glob("*.ipynb"))


def cells(notebook: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for cell in cells(notebook):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{notebook.name}, {cell['id']}", "exec"), names)


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_those_of_the_code(notebook: Path) -> None:
    kept = json.loads(notebook.read_text(encoding="utf-8"))["metadata"]["picojoule"]["code"]
    assert kept == notebooks.digest(cells(notebook)), "run python scripts/notebooks.py"
    assert any("image/png" in output.get("data", {}) for cell in cells(notebook) for output in cell.get("outputs", ()))
