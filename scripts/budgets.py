"""Do budget runs end where they were told, and is their accuracy that of fixed strengths at that energy?

For each seed: the baseline, fixed strengths with the same epochs, and one run for each target. The accuracy that a
fixed strength would have had at a budget run's energy is read off the straight line (over log energy) between the two
fixed runs around it, mean over seeds; a budget run may fall short of it by max(0.5 points, two standard errors).

python scripts/budgets.py recipes/small/cnn7-fashion-mnist.toml training.epochs=10 --into runs/budgets \
    --out results/budgets.json
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from commands import train, write

TARGETS = (0.5, 0.3, 0.2, 0.1, 0.05)
STRENGTHS = (2, 8, 32, 128, 512)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--into", type=Path, default=Path("runs/budgets"))
    parser.add_argument("--out", type=Path, default=Path("results/budgets.json"))
    parser.add_argument("--targets", type=float, nargs="+", default=TARGETS)
    parser.add_argument("--strengths", type=float, nargs="+", default=STRENGTHS)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    options = parser.parse_args()

    def run(seed: int, *changes: str) -> dict[str, Any]:
        return train(options.recipe, options.into, *options.changes, f"seed={seed}", *changes)

    fixed = {
        strength: [run(seed, f"penalty.strength={strength:g}") for seed in options.seeds]
        for strength in (0, *options.strengths)
    }
    budgets = {
        target: [run(seed, "penalty.strength=0", f"penalty.budget={target:g}") for seed in options.seeds]
        for target in options.targets
    }
    curve = [(_mean(runs, "joules"), _mean(runs, "accuracy")) for runs in fixed.values()]
    write(
        options.out,
        {
            "recipe": str(options.recipe),
            "changes": options.changes,
            "seeds": list(options.seeds),
            "fixed": [{"strength": strength, **_figures(runs)} for strength, runs in fixed.items()],
            "budgets": [_judged(target, runs, curve) for target, runs in budgets.items()],
        },
    )


def _judged(target: float, runs: list[dict[str, Any]], curve: list[tuple[float, float]]) -> dict[str, Any]:
    shares = [run["validation"]["joules"] / run["reference_joules"] for run in runs]
    allowed = max(0.03 * target, 0.006)
    gaps = [run["test"]["accuracy"] - _on_the_curve(run["test"]["joules"], curve) for run in runs]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    return {
        "target": target,
        "shares": shares,
        "within": all(abs(share - target) <= allowed for share in shares),
        "accuracy_minus_fixed": statistics.fmean(gaps),
        "standard_error": error,
        "no_worse": statistics.fmean(gaps) >= -max(0.005, 2 * error),
        **_figures(runs),
    }


def _on_the_curve(joules: float, curve: list[tuple[float, float]]) -> float:
    energies, accuracies = zip(*sorted(curve), strict=True)
    return float(np.interp(math.log(joules), np.log(energies), accuracies))


def _mean(runs: list[dict[str, Any]], key: str) -> float:
    return statistics.fmean(run["test"][key] for run in runs)


def _figures(runs: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "runs": [run["run"] for run in runs],
        "test_accuracy": [run["test"]["accuracy"] for run in runs],
        "test_joules": [run["test"]["joules"] for run in runs],
    }


if __name__ == "__main__":
    main()
