"""Finished runs, as the experiments beside this file read them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

from picojoule import Recipe
from picojoule.io.files import write_atomically
from picojoule.runs.folder import find_runs
from picojoule.runs.result import RunResult
from picojoule.search import sweep

RECIPES = Path(__file__).resolve().parents[1] / "recipes" / "small"


class Finished(NamedTuple):
    recipe: Recipe
    result: RunResult

    @property
    def accuracy(self) -> float:
        return self.result.test.accuracy

    @property
    def joules(self) -> float:
        return self.result.test.joules or 0.0


def gather(folder: Path, *files: str) -> list[Finished]:
    """The finished runs of a folder, those of the named sweeps alone if there are any: other sweeps may share it."""
    finished = [Finished(run.recipe, run.result) for run in find_runs(folder) if run.finished]
    wanted = {recipe for file in files for recipe in sweep.load(RECIPES / file)}
    return [run for run in finished if not files or run.recipe in wanted]


def on_the_curve(joules: float, runs: Iterable[Finished]) -> float:
    """The accuracy at that energy on straight lines, over log energy, between runs of one seed."""
    points = sorted((run.joules, run.accuracy) for run in runs)
    energies, accuracies = zip(*points, strict=True)
    return float(np.interp(math.log(joules), np.log(energies), accuracies))


def write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())
    print(path)
