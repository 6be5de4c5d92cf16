"""The curve in one run against separate runs from scratch: what each costs, and AUC(70) and AUC(50), seed by seed.

Each folder given is one curve: frontiers, fixed strengths with the epochs of one run, fixed strengths with as many
epochs as each point of the frontier has seen in all. Energies are relative to the baseline of the seed, which is looked
for in all folders; as in a report, the baseline is not among a curve's points.

python scripts/frontiers.py runs/frontier-steps runs/frontier-ramp runs/trade-off runs/longer \
    --out results/frontiers.json
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from finished import Finished, gather, write

from picojoule import tradeoff

CUTOFFS = (70, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("results/frontiers.json"))
    options = parser.parse_args()
    found = {folder.name: gather(folder) for folder in options.folders}
    baselines = {run.recipe.seed: run for runs in found.values() for run in runs if not run.recipe.penalised}
    curves = {name: _scored(runs, baselines) for name, runs in found.items()}
    for name, curve in curves.items():
        cost = statistics.fmean(seed["cost"] for seed in curve)
        aucs = " ".join(f"AUC({c}) {statistics.fmean(seed[f'auc{c}'] for seed in curve):.4f}" for c in CUTOFFS)
        print(f"{name}: {len(curve)} seeds, {cost:.2f} runs, {aucs}")
    write(options.out, curves)


def _scored(runs: list[Finished], baselines: dict[int, Finished]) -> list[dict[str, Any]]:
    scored = []
    for seed, baseline in sorted(baselines.items()):
        fixed = [run for run in runs if run.recipe.penalty.budget is None and run.recipe.penalty.p == 1]
        points = sorted(
            (run for run in fixed if run.recipe.seed == seed and run.recipe.penalised),
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
