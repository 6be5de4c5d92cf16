"""The curve in one run against separate runs from scratch: what each costs, and AUC(70) and AUC(50) of each.

For each seed: one frontier by each schedule; from scratch at the same strengths, once with the epochs of one run and
once with as many as each point of the frontier has seen in all.

python scripts/frontiers.py recipes/small/cnn7-fashion-mnist.toml training.epochs=10 --into runs/frontiers \
    --out results/frontiers.json
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from commands import frontier, train, write

from picojoule import tradeoff
from picojoule.recipe import Recipe

SCHEDULES = ("steps", "restarts", "ramp")
CUTOFFS = (70, 50)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--into", type=Path, default=Path("runs/frontiers"))
    parser.add_argument("--out", type=Path, default=Path("results/frontiers.json"))
    parser.add_argument("--schedules", nargs="+", default=SCHEDULES, choices=SCHEDULES)
    parser.add_argument("--points", type=int, default=11)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0,))
    parser.add_argument("--no-longer", action="store_true", help="leave out the runs with cumulative epochs")
    options = parser.parse_args()
    epochs = Recipe.load(options.recipe, *options.changes).training.epochs
    curves: dict[str, list[dict[str, Any]]] = {}
    for seed in options.seeds:
        changes = (*options.changes, f"seed={seed}")
        walked: dict[str, dict[str, Any]] = {}
        for schedule in options.schedules:
            walked[schedule] = frontier(
                options.recipe, options.into, *changes, "--schedule", schedule, "--points", str(options.points)
            )
            points = [{**point["test"], "strength": point["strength"]} for point in walked[schedule]["points"]]
            curves.setdefault(f"frontier, {schedule}", []).append({"cost": walked[schedule]["cost"], "points": points})
        # Separate runs in a folder of their own: a report then shows two curves side by side.
        lengths = {"from scratch": None} | ({} if options.no_longer else {"from scratch, cumulative epochs": True})
        planned = max((walk["points"] for walk in walked.values()), key=len)
        for name, cumulative in lengths.items():
            points, spent = [], 0
            for point in planned:
                length = point["epochs"] if cumulative else epochs
                spent += length
                result = train(
                    options.recipe,
                    options.into / "scratch",
                    *changes,
                    f"penalty.strength={point['strength']:g}",
                    f"training.epochs={length}",
                )
                points.append({"strength": point["strength"], **{k: result["test"][k] for k in ("accuracy", "joules")}})
            for point in points:
                point["energy"] = point["joules"] / points[0]["joules"]
            curves.setdefault(name, []).append({"cost": spent / epochs, "points": points})
    write(
        options.out,
        {
            "recipe": str(options.recipe),
            "changes": options.changes,
            "seeds": list(options.seeds),
            "curves": {name: _scored(seeds) for name, seeds in curves.items()},
        },
    )


def _scored(seeds: list[dict[str, Any]]) -> dict[str, Any]:
    scores = {
        f"auc{cutoff}": [
            tradeoff.auc([p["energy"] for p in seed["points"]], [p["accuracy"] for p in seed["points"]], cutoff)
            for seed in seeds
        ]
        for cutoff in CUTOFFS
    }
    return {"cost": statistics.fmean(seed["cost"] for seed in seeds), **scores, "seeds": seeds}


if __name__ == "__main__":
    main()
