"""Do budget runs end where they were told, and is their accuracy that of fixed strengths at that energy?

The runs are those of one sweep. The accuracy that a fixed strength would have had at a budget run's
energy is read off the line between the fixed runs of the same seed around it; on average over seeds a budget may fall
short of it by max(0.5 points, two standard errors of that difference).

picojoule sweep recipes/small/budgets.toml --into runs/mini
python scripts/budgets.py runs/mini                  # or a pack of it
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

from finished import Finished, gather, on_the_curve, write

from picojoule.training.budget.control_law import tolerance


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/budgets.json"))
    options = parser.parse_args()
    runs = gather(options.folder, "budgets.toml")
    by_budget: dict[Any, list[Finished]] = {}
    for run in runs:
        if run.recipe.penalty.budget is not None:
            by_budget.setdefault(run.recipe.penalty.budget, []).append(run)
    fixed = [run for run in runs if run.recipe.penalty.budget is None]
    judged = [_judged(same, fixed) for _, same in sorted(by_budget.items(), reverse=True)]
    for entry in judged:
        shares = ", ".join(f"{share:.2%}" for share in entry["shares"])
        gap = f"{100 * entry['accuracy_minus_fixed']:+.2f} ± {100 * entry['standard_error']:.2f} points"
        print(f"{entry['budget']:.0%}: {shares} (within: {entry['within']}); {gap} (no worse: {entry['no_worse']})")
    write(options.out, judged)


def _judged(runs: list[Finished], fixed: list[Finished]) -> dict[str, Any]:
    references = [run.result.reference_joules for run in runs]
    targets = [run.result.budget.target_joules for run in runs]
    spent = [run.result.validation.joules for run in runs]
    gaps = [
        run.accuracy - on_the_curve(run.joules, [other for other in fixed if other.recipe.seed == run.recipe.seed])
        for run in runs
    ]
    error = statistics.stdev(gaps) / math.sqrt(len(gaps)) if len(gaps) > 1 else math.nan
    allowed = max(0.005, 2 * error) if len(gaps) > 1 else 0.005
    return {
        "budget": runs[0].recipe.penalty.budget,
        "runs": [run.recipe.name for run in runs],
        "shares": [j / reference for j, reference in zip(spent, references, strict=True)],
        "within": all(abs(j - t) <= tolerance(t, r) for j, t, r in zip(spent, targets, references, strict=True)),
        "baseline_shares": [
            j / run.result.budget.baseline_joules if run.result.budget.baseline_joules else None
            for j, run in zip(spent, runs, strict=True)
        ],
        "test_accuracy": [run.accuracy for run in runs],
        "accuracy_minus_fixed": statistics.fmean(gaps),
        "standard_error": error if len(gaps) > 1 else None,
        "no_worse": statistics.fmean(gaps) >= -allowed,
    }


if __name__ == "__main__":
    main()
