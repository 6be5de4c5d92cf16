"""The curve in one run against separate runs from scratch: what each costs, and AUC(70) and AUC(50), seed by seed.

Each folder `frontier-…` is one curve; beside them stand the fixed strengths of budgets.toml, a run for each.
Energies are relative to the baseline of the seed; as in a report, the baseline is not among a curve's points.

picojoule sweep recipes/small/budgets.toml --into runs/mini/runs
picojoule frontier recipes/small/frontier.toml --points 10 --into runs/mini/frontier-restarts  # and other schedules
python scripts/frontiers.py runs/mini
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from finished import Finished, gather, write

from picojoule.search import tradeoff

CUTOFFS = (70, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/frontiers.json"))
    options = parser.parse_args()
    found = {folder.name: gather(folder) for folder in sorted(options.folder.glob("frontier-*"))}
    scratch = gather(options.folder / "runs", "budgets.toml")
    found["from scratch"] = [run for run in scratch if run.recipe.penalty.budget is None]
    baselines = {run.recipe.seed: run for run in found["from scratch"] if not run.recipe.penalised}
    curves = {name: _scored(runs, baselines) for name, runs in found.items()}
    for name, curve in curves.items():
        if not curve:
            print(f"{name}: no run is finished")
            continue
        aucs = [
            f"AUC({cutoff}) {statistics.fmean(values):.4f} ({', '.join(f'{value:.4f}' for value in values)})"
            for cutoff in CUTOFFS
            for values in [[seed[f"auc{cutoff}"] for seed in curve]]
        ]
        print(f"{name}: {statistics.fmean(seed['cost'] for seed in curve):.2f} runs, {', '.join(aucs)}")
    write(options.out, curves)


def _scored(runs: list[Finished], baselines: dict[int, Finished]) -> list[dict[str, Any]]:
    scored = []
    for seed, baseline in sorted(baselines.items()):
        points = sorted(
            (run for run in runs if run.recipe.seed == seed and run.recipe.penalised),
            key=lambda run: run.recipe.penalty.strength,
        )
        if not points:
            continue
        energies, accuracies = [p.joules / baseline.joules for p in points], [p.accuracy for p in points]
        epochs = sum(point.recipe.training.epochs for point in (baseline, *points))
        scored.append(
            {
                "seed": seed,
                "cost": epochs / baseline.recipe.training.epochs,
                "strengths": [point.recipe.penalty.strength for point in points],
                "energies": energies,
                "accuracies": accuracies,
                **{f"auc{cutoff}": tradeoff.auc(energies, accuracies, cutoff) for cutoff in CUTOFFS},
            }
        )
    return scored


if __name__ == "__main__":
    main()
