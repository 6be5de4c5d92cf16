"""The layers of `pyproject.toml` hold, and the check is one that can fail."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def lint_imports(project: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from importlinter.cli import lint_imports_command as lint; lint()", "--no-cache"],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_layers_hold(copy: Path) -> None:
    result = lint_imports(copy)
    assert result.returncode == 0, result.stdout + result.stderr


def test_imports_upwards_and_modules_without_a_layer_are_caught(copy: Path) -> None:
    upwards = {
        "errors": "neurons",
        "neurons.spike": "synapses.rules",
        "synapses.trace": "energy",
        "energy.meter": "penalty",
        "penalty": "zoo",
        "spikes.layout": "spikes.watch",
    }
    package = copy / "src" / "picojoule"
    for lower, upper in upwards.items():
        with (package / f"{lower.replace('.', '/')}.py").open("a") as module:
            module.write(f"\nimport picojoule.{upper}\n")
    (package / "homeless.py").write_text("")
    result = lint_imports(copy)
    assert result.returncode == 1
    missed = [f"{a} -> {b}" for a, b in upwards.items() if f"picojoule.{a} -> picojoule.{b}" not in result.stdout]
    assert not missed, result.stdout
    assert "picojoule.homeless" in result.stdout
