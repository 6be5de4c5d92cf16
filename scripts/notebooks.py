"""Run the notebooks of docs/notebooks and keep what they show; the tests run them too, but keep nothing.

pip install nbclient ipykernel; python scripts/notebooks.py [NAME …]
"""

from __future__ import annotations

import base64
import hashlib
import io
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "notebooks"


def digest(cells: list[dict[str, Any]]) -> str:
    """What the code of a notebook is; kept with its outputs, so that a change without a new run shows."""
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    return hashlib.sha256("\n".join(code).encode()).hexdigest()[:16]


def smaller(picture: str) -> str:
    """The same picture in 128 colours, which charts seldom exceed: a tenth of the bytes."""
    from PIL import Image

    into = io.BytesIO()
    Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").quantize(128).save(into, "PNG", optimize=True)
    return base64.b64encode(into.getvalue()).decode()


def run(path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(notebook, timeout=600, kernel_name="python3", coalesce_streams=True).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            if "image/png" in output.get("data", {}):
                output.data = {"image/png": smaller(output.data["image/png"])}
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
        "picojoule": {"code": digest(notebook.cells)},
    }
    nbformat.write(notebook, path)


if __name__ == "__main__":
    for name in sys.argv[1:] or sorted(path.stem for path in FOLDER.glob("*.ipynb")):
        run(FOLDER / f"{name}.ipynb")
        print(name)
