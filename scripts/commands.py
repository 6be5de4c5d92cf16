"""picojoule's own commands, as the experiments beside this file call them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def picojoule(*arguments: str | Path) -> str:
    """Run a command, its progress on standard error, and return what it printed."""
    command = [sys.executable, "-m", "picojoule", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def train(recipe: Path, into: Path, *changes: str) -> dict[str, Any]:
    """The result of a run, trained unless it was before, with its folder under "run"."""
    folder = Path(picojoule("train", recipe, *changes, "--into", into).splitlines()[-1])
    return {"run": folder.name, **json.loads((folder / "result.json").read_text())}


def frontier(recipe: Path, into: Path, *options: str) -> dict[str, Any]:
    """The points of a frontier, cost and energies."""
    content: dict[str, Any] = json.loads(picojoule("frontier", recipe, "--into", into, "--json", *options))
    return content


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")
    print(path)
