"""Networks trained for a few minutes, and whole training runs by events and dense: part of `benchmarks/training.py`.

A folder keeps the trained networks; those that it has already are not trained again.

python benchmarks/trained.py FOLDER [--models cnn7 vgg11]     trains them and nothing else
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from timing import console, quartiles

import picojoule as pj

RECIPES = Path(__file__).parents[1] / "recipes"
SHORT = (
    *("data.augment=false", "data.limit_validation=1000", "data.limit_test=1000"),
    *("energy.psi=exact", "training.batch_size=25", "training.kernels=auto", "training.threads=1"),
)
"""Enough for real activity, not for the accuracy that the recipes are made for."""
CNN7 = ("small/cnn7-fashion-mnist.toml", "data.limit=5000", "training.epochs=3", *SHORT)
VGG11 = (
    *("paper/vgg11-cifar-10-adam-s3nn.toml", "data.limit=4000", "training.epochs=2"),
    *("optimizer.lr=5e-4", "optimizer.weight_decay=1e-4", *SHORT),
)
RESNET18 = (
    *("paper/resnet18-cifar-10-adam-s3nn.toml", "data.limit=3000", "training.epochs=2"),
    *("optimizer.lr=2e-3", "optimizer.weight_decay=1e-4", *SHORT),
)
NETWORKS = {"cnn7": (CNN7, (0, 64)), "vgg11": (VGG11, (0, 512)), "resnet18": (RESNET18, (0, 128))}
"""A recipe with its changes, and the strengths λ' of the baseline and of the penalised network."""

WHOLE_RUN = ("data.limit=4000", "training.epochs=2", "data.limit_test=2000", "penalty.strength=64")
"""What a whole run changes of CNN7's."""
SEEDS = (0, 1, 2)


def recipe(settings: tuple[str, ...], *changes: str) -> pj.Recipe:
    """A recipe of this repository, with changes."""
    file, *usual = settings
    return pj.Recipe.load(RECIPES / file, *usual, *changes)


def trained(models: list[str], into: Path) -> list[Path]:
    """The folders of the trained networks, baseline and penalised, in the order of the models."""
    found = []
    for model in models:
        settings, strengths = NETWORKS[model]
        for strength in strengths:
            run = pj.fit(recipe(settings, f"penalty.strength={strength}"), into)
            console.print(f"{run.path.name}: {run.result.test.accuracy:.1%}", highlight=False)
            found.append(run.path)
    return found


@dataclass(frozen=True)
class WholeRun:
    """One `picojoule train`: seconds of the command and of its epochs, and how good the network is."""

    command: float
    epochs: float
    accuracy: float
    joules: float

    @classmethod
    def of(cls, seed: int, kernels: str, threads: int) -> WholeRun:
        file, *usual = CNN7
        changes = [*usual, *WHOLE_RUN, f"seed={seed}", f"training.kernels={kernels}", f"training.threads={threads}"]
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "picojoule", "train", str(RECIPES / file), *changes, "--into", folder]
            start = time.perf_counter()
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            seconds = time.perf_counter() - start
            run = pj.Run.at(done.stdout.splitlines()[-1])
            test = run.result.test
            return cls(seconds, sum(epoch.seconds for epoch in run.metrics), test.accuracy, test.joules)


def whole_runs(threads: int, seeds: tuple[int, ...] = SEEDS) -> list[str]:
    """Train one recipe by events and dense in turns, and write down time, accuracy and energy as Markdown."""
    runs: dict[str, list[WholeRun]] = {"auto": [], "dense": []}
    for seed in seeds:
        for kernels, made in runs.items():
            made.append(WholeRun.of(seed, kernels, threads))
    lines = [
        "| `training.kernels` | command [s] | its epochs [s] | accuracy | energy [µJ] |",
        "|---|---:|---:|---:|---:|",
    ]
    for kernels, made in runs.items():
        cells = (
            f"{statistics.median(run.command for run in made):.1f}",
            f"{statistics.median(run.epochs for run in made):.1f}",
            _spread([100 * run.accuracy for run in made]) + " %",
            _spread([1e6 * run.joules for run in made]),
        )
        lines.append(f"| `{kernels}` | " + " | ".join(cells) + " |")
    pairs = list(zip(runs["auto"], runs["dense"], strict=True))
    by_command = quartiles([events.command / dense.command for events, dense in pairs])
    by_epochs = quartiles([events.epochs / dense.epochs for events, dense in pairs])
    lines.append(f"| `auto` : `dense` | {by_command} | {by_epochs} | | |")
    return lines


def _spread(values: list[float]) -> str:
    deviation = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):.2f} ± {deviation:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", type=Path, metavar="FOLDER")
    parser.add_argument("--models", nargs="+", default=[*NETWORKS], choices=[*NETWORKS])
    options = parser.parse_args()
    trained(options.models, options.into)


if __name__ == "__main__":
    main()
