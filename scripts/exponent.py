"""Why p = 1 saves more than p = 2: strength, or the neurons below the threshold?

On binary spikes ∂/∂s of (Ω/Ω(1)) is ψ/Σψ for p = 1, on every neuron, and p·ψs/Σψ for p > 1, on firing neurons only. So
p = 2 at half the strength is p = 1 with the sub-threshold part of its gradient switched off, and p = 2 at full strength
is that with twice the strength. Three arms at each strength: p = 1; p = 2 at half of it; p = 2.

picojoule sweep recipes/small/budgets.toml --into runs/mini              # has p = 1
picojoule sweep recipes/small/exponent.toml --into runs/mini
python scripts/exponent.py runs/mini                 # or a pack of it
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from finished import Finished, gather, on_the_curve, write

ARMS = {"p = 1": (1, 1.0), "p = 2 at half the strength": (2, 0.5), "p = 2": (2, 1.0)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/exponent.json"))
    options = parser.parse_args()
    runs = gather(options.folder, "budgets.toml", "exponent.toml")
    runs = [run for run in runs if run.recipe.penalty.budget is None]
    baseline = {run.recipe.seed: run for run in runs if not run.recipe.penalised}
    linear = [run for run in runs if run.recipe.penalty.p == 1]
    strengths = sorted({run.recipe.penalty.strength for run in linear if run.recipe.penalised})
    table = []
    for strength in strengths:
        for arm, (p, factor) in ARMS.items():
            wanted = (p, factor * strength)
            same = [run for run in runs if (run.recipe.penalty.p, run.recipe.penalty.strength) == wanted]
            if same:
                table.append({"strength": strength, "arm": arm, **_figures(same, baseline, linear)})
                print("  ".join(f"{key} {value}" for key, value in table[-1].items()))
    write(options.out, table)


def _figures(runs: list[Finished], baseline: dict[int, Finished], linear: list[Finished]) -> dict[str, Any]:
    energies = [run.joules / baseline[run.recipe.seed].joules for run in runs]
    gaps = [
        run.accuracy - on_the_curve(run.joules, [other for other in linear if other.recipe.seed == run.recipe.seed])
        for run in runs
    ]
    return {
        "seeds": len(runs),
        "energy": statistics.fmean(energies),
        "accuracy": statistics.fmean(run.accuracy for run in runs),
        "dead_rate": statistics.fmean(run.result.test.dead_rate for run in runs),
        "accuracy_minus_p1_at_equal_energy": statistics.fmean(gaps),
    }


if __name__ == "__main__":
    main()
