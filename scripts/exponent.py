"""Why p = 1 saves more than p = 2: strength, or the neurons below the threshold?

On binary spikes ∂/∂s of (Ω/Ω(1)) is ψ/Σψ for p = 1, on every neuron, and p·ψs/Σψ for p > 1, on firing neurons only. So
p = 2 at half the strength is p = 1 with the sub-threshold part of its gradient switched off, and p = 2 at full strength
is that with twice the strength. Three arms at each strength: p = 1; p = 2 at half of it; p = 2.

python scripts/exponent.py recipes/small/cnn7-fashion-mnist.toml training.epochs=10 --into runs/exponent \
    --out results/exponent.json
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from commands import train, write

from picojoule import tradeoff

ARMS = {"p = 1": (1, 1.0), "p = 2 at half the strength: firing neurons only": (2, 0.5), "p = 2": (2, 1.0)}
STRENGTHS = (8, 32, 128, 512, 2048)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("changes", nargs="*")
    parser.add_argument("--into", type=Path, default=Path("runs/exponent"))
    parser.add_argument("--out", type=Path, default=Path("results/exponent.json"))
    parser.add_argument("--strengths", type=float, nargs="+", default=STRENGTHS)
    parser.add_argument("--seeds", type=int, nargs="+", default=(0, 1, 2))
    options = parser.parse_args()

    def measured(p: float, strength: float) -> list[dict[str, Any]]:
        changes = (f"penalty.p={p:g}", f"penalty.strength={strength:g}")
        runs = [train(options.recipe, options.into, *options.changes, f"seed={s}", *changes) for s in options.seeds]
        return [{"run": run["run"], **{k: run["test"][k] for k in ("accuracy", "joules", "dead_rate")}} for run in runs]

    baseline = measured(1, 0)
    unit = statistics.fmean(run["joules"] for run in baseline)
    arms: dict[str, Any] = {}
    for name, (p, factor) in ARMS.items():
        points = [{"strength": s, "seeds": measured(p, factor * s)} for s in options.strengths]
        pooled = [run for point in points for run in point["seeds"]] + baseline
        energies, accuracies = [run["joules"] / unit for run in pooled], [run["accuracy"] for run in pooled]
        arms[name] = {
            "points": points,
            **{f"auc{cutoff}": tradeoff.auc(energies, accuracies, cutoff) for cutoff in (70, 50)},
            **{f"spearman{cutoff}": tradeoff.spearman(energies, accuracies, cutoff) for cutoff in (70, 50)},
        }
    write(
        options.out,
        {
            "recipe": str(options.recipe),
            "changes": options.changes,
            "seeds": list(options.seeds),
            "baseline": baseline,
            "arms": arms,
        },
    )


if __name__ == "__main__":
    main()
