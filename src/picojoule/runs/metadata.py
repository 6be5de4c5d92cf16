"""Metadata of a run: what a reader needs to trust a result or to repeat it."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from picojoule.io.machine import machine
from picojoule.recipe import Recipe

if TYPE_CHECKING:
    from lightning_fabric import Fabric


def run_metadata(recipe: Recipe, fabric: Fabric) -> dict[str, Any]:
    """Collect recipe, code, versions, device, machine and conventions, as they stand in `result.json`.

    Args:
        recipe: What was trained.
        fabric: The device or devices that it was trained on.

    Returns:
        The fields of `RunResult` from `recipe` to `convention`.
    """
    packages = ("picojoule", "torch", "numpy", "kornia", "lightning-fabric")
    return {
        "recipe": recipe.to_dict(),
        "digest": recipe.digest,
        "commit": _commit(),
        "versions": {"python": platform.python_version(), **{p: importlib.metadata.version(p) for p in packages}},
        "device": str(fabric.device),
        "machine": machine(),
        "precision": "bf16-mixed" if "bf16" in str(fabric.strategy.precision.precision) else "32",
        "processes": fabric.world_size,
        "convention": {
            "per": "sample",
            "psi": recipe.energy.psi,
            "chains": recipe.energy.chains or "run",
            "hardware": recipe.energy.hardware,
            "encoder": "outside joules, priced as multiply-accumulates",
            "spikes": "before dropout",
            "evaluation_precision": "32",
        },
    }


def _commit() -> str | None:
    """Ask git for the commit of picojoule's own source, where it runs from a checkout."""
    git = partial(subprocess.run, cwd=Path(__file__).parent, capture_output=True, text=True, check=True, timeout=10)
    try:
        git(["git", "ls-files", "--error-unmatch", Path(__file__).name])  # not somebody's project around an environment
        return str(git(["git", "rev-parse", "HEAD"]).stdout).strip() or None
    except (OSError, subprocess.SubprocessError):
        return None
