"""Every key of a recipe with its default and another value, and what a mistake in one says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe

RECIPES = Path(__file__).parents[2] / "recipes"
FILES = sorted(RECIPES.rglob("*.toml"))

BASE = 'model.name = "cnn7"\ndata.name = "fashion-mnist"\n'

# The whole of a recipe, by hand, with a second valid value for every key.
DEFAULTS_AND_OTHERS: dict[str, tuple[object, object]] = {
    "seed": (0, 1),
    "model.name": ("cnn7", "vgg11"),
    "model.args": (None, {"width": 8}),
    "data.name": ("fashion-mnist", "digits"),
    "data.limit": (None, 1000),
    "data.limit_validation": (None, 1000),
    "data.limit_test": (None, 1000),
    "data.augment": (False, True),
    "data.randaugment_n": (2, 3),
    "data.randaugment_m": (9, 10),
    "data.normalize": (True, False),
    "data.pad": (2, 3),
    "data.size": (None, 32),
    "data.frames": (None, 4),
    "data.encoding": (None, "spikes"),
    "data.threshold": (None, 2.0),
    "data.shape": (None, (1, 8, 8)),
    "data.classes": (None, 3),
    "data.content": (None, "0123456789abcdef"),
    "neuron.kind": ("spike", "relu"),
    "neuron.steps": (1, 2),
    "neuron.threshold": (1.0, 0.5),
    "neuron.surrogate": ("s3nn", "triangle"),
    "neuron.alpha": (0.25, 0.3),
    "neuron.tau": (0.6, 0.7),
    "neuron.leak": (None, 0.5),
    "neuron.reset": (None, "zero"),
    "neuron.max_spikes": (None, 1),
    "neuron.floor": (None, -1.0),
    "optimizer.name": ("adam", "sgd"),
    "optimizer.lr": (1e-3, 2e-3),
    "optimizer.weight_decay": (1e-4, 0.0),
    "optimizer.decay_batch_norm": (False, True),
    "optimizer.anneal": (None, "batches"),
    "penalty.kind": ("syn", "total"),
    "penalty.p": (1.0, 2.0),
    "penalty.strength": (0.0, 64.0),
    "penalty.normalized": (True, False),
    "penalty.schedule": ("linear", "constant"),
    "penalty.target": (None, 0.5),
    "penalty.reference": (None, "another-run"),
    "penalty.budget": (None, 0.3),
    "penalty.budget_on": (None, "total"),
    "penalty.strict": (None, True),
    "penalty.rise_from": (None, 2.0),
    "penalty.guard": (None, True),
    "energy.psi": ("exact", "uniform"),
    "energy.chains": (None, "merged"),
    "energy.hardware": ("horowitz-45nm-fp32", "loihi"),
    "training.epochs": (150, 5),
    "training.batch_size": (100, 50),
    "training.precision": ("auto", "32"),
    "training.threads": (2, 1),
    "training.start_from": (None, "another-run"),
    "training.kernels": (None, "dense"),
}


def flat(content: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in content.items():
        found |= {f"{key}.{leaf}": each for leaf, each in value.items()} if isinstance(value, dict) else {key: value}
    return found


def message(text: str, *overrides: str) -> str:
    with pytest.raises(PicojouleError) as caught:
        Recipe.loads(text, *overrides)
    said = str(caught.value)
    assert "\n" not in said
    assert "pydantic" not in said
    return said
