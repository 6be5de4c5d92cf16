"""Run folders made without training, as many as wanted, whose numbers follow a plausible trade-off curve."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import picojoule as pj

LAYERS = {"spike1": 7200, "spike2": 10816, "spike3": 16384, "spike4": 9216, "spike5": 9216, "spike6": 6912}
REACH = {"syn": 1.0, "total": 0.85, "balance": 0.65}
RECIPE = """
model.name = "cnn7"
data.name = "fashion-mnist"
training.epochs = {epochs}
"""


def recipes(
    kinds: Iterable[str] = ("syn", "total", "balance"),
    powers: Iterable[float] = (1, 2),
    strengths: Iterable[float] = (0, 1, 8, 64, 512),
    seeds: Iterable[int] = (0, 1),
    epochs: int = 12,
    overrides: Iterable[str] = (),
) -> list[pj.Recipe]:
    """One baseline a seed, and every other combination."""
    text = RECIPE.format(epochs=epochs)
    axes = {
        (f"penalty.strength={strength:g}", f"seed={seed}")
        + ((f"penalty.kind={kind}", f"penalty.p={p}") if strength else ())
        for kind in kinds
        for p in powers
        for strength in strengths
        for seed in seeds
    }
    return [pj.Recipe.loads(text, *overrides, *axis) for axis in sorted(axes)]


def write(into: Path, recipe: pj.Recipe, finished: bool = True, layers: dict[str, int] | None = None) -> pj.Run:
    """One run folder, with a checkpoint-free half of the epochs where it is unfinished."""
    layers = layers or LAYERS
    chance = random.Random(recipe.digest)
    penalty, epochs = recipe.penalty, recipe.training.epochs
    pull = math.log2(1 + penalty.strength) / 14
    kept = max(0.01, (1 - pull) ** (1.6 + 0.8 * (penalty.p - 1)))
    accuracy = 0.92 - 0.5 * max(0.0, pull - 0.3 * REACH[penalty.kind] / penalty.p) ** 2
    accuracy = round(accuracy + chance.gauss(0, 0.002), 4)

    def measured(share: float, right: float) -> dict[str, Any]:
        rates = [min(1.0, 0.16 * share * chance.uniform(0.9, 1.1) * (1 + 0.2 * i)) for i in range(len(layers))]
        dead = [min(1.0, (1 - share) * chance.uniform(0.4, 0.8)) for _ in layers]
        synops = [r * n * 1600 / (1 + i) for i, (r, n) in enumerate(zip(rates, layers.values(), strict=True))]
        rows = [
            {"name": name, "neurons": layers[name], "synops": s, "joules": s * 0.9e-12, "rate": r, "dead_rate": d}
            for name, s, r, d in zip(layers, synops, rates, dead, strict=True)
        ]
        return {
            "split": "test",
            "samples": 10000,
            "accuracy": right,
            "loss": 2.3 * (1 - right),
            "joules": sum(synops) * 0.9e-12,
            "synops": sum(synops),
            "encoder_macs": 194400,
            "encoder_joules": 8.9e-7,
            "ann_joules": 4.5e-4,
            "rate_mean": sum(rates) / len(rates),
            "rate_sum": sum(rates),
            "dead_rate": sum(dead) / len(dead),
            "steps": 1,
            "psi": recipe.energy.psi,
            "hardware": recipe.energy.hardware,
            "layers": rows,
        }

    run = pj.Run(into / recipe.name)
    run.path.mkdir(parents=True)
    (run.path / "recipe.toml").write_text(recipe.to_toml(), encoding="utf-8")
    lines = []
    for epoch in range(epochs if finished else epochs // 2):
        learned = 1 - math.exp(-4 * (epoch + 1) / epochs)
        now = measured(1 - (1 - kept) * (epoch + 1) / epochs, accuracy * learned)
        line = {"epoch": epoch, "train_loss": 0.25 + 2 * (1 - learned), "train_accuracy": accuracy * learned}
        line |= {f"validation_{key}": now[key] for key in ("loss", "accuracy")}
        line |= {key: now[key] for key in ("joules", "rate_mean", "dead_rate", "layers")}
        line |= {"strength": penalty.strength * (epoch + 1) / epochs}
        line |= {"target_joules": now["joules"] * 0.9 if penalty.budget is not None else None}
        lines.append(line | {"train_penalty": 0.16 * kept, "lr": 1e-3, "seconds": 9.0})
    (run.path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    if finished:
        test = measured(kept, accuracy)
        result = {"test": test, "validation": {**test, "split": "validation"}, "recipe": recipe.to_dict()}
        (run.path / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return run


def fill(into: Path, recipes: Iterable[pj.Recipe]) -> list[pj.Run]:
    return [write(into, recipe) for recipe in recipes]
