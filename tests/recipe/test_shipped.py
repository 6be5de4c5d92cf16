"""The recipes that ship: they load, and those of the paper are the rows of its table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from picojoule.neurons.surrogate import SURROGATES
from picojoule.recipe import Recipe
from picojoule.search import sweep
from recipe_keys import FILES, RECIPES

PAPER = [  # model, data set, optimizer, surrogate, learning rate, weight decay, alpha, tau; all with B_BN = 0
    ("cnn7", "fashion-mnist", "adam", "s3nn", 1e-3, 1e-4, 0.25, 0.6),
    ("cnn7", "fashion-mnist", "adam", "triangle", 1e-3, 1e-6, None, None),
    ("cnn7", "fashion-mnist", "adam", "sigmoid", 1e-2, 1e-7, 0.45, None),
    ("cnn7", "fashion-mnist", "sgd", "s3nn", 1e-2, 1e-4, 0.35, 0.6),
    ("vgg11", "cifar-10", "adam", "s3nn", 1e-3, 1e-3, 0.25, 0.6),
    ("vgg11", "cifar-10", "sgd", "s3nn", 1e-2, 1e-3, 0.35, 0.8),
    ("resnet18", "cifar-10", "adam", "s3nn", 1e-3, 1e-4, 0.35, 1.0),
    ("resnet18", "cifar-10", "sgd", "s3nn", 1e-2, 1e-3, 0.35, 1.0),
]


def test_recipes_are_found() -> None:
    assert {file.parent.name for file in FILES} == {"paper", "small", "smoke"}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_every_file_loads_builds_and_survives_the_round_trip(file: Path) -> None:
    is_sweep = "[[axes]]" in file.read_text(encoding="utf-8")
    recipes = sweep.load(file) if is_sweep else (Recipe.load(file),)
    assert (len(recipes) > 1) == is_sweep
    for recipe in recipes:
        again = Recipe.loads(recipe.to_toml())
        assert again == recipe
        assert again.digest == recipe.digest
        neuron = recipe.build_neuron()
        assert neuron() is not neuron()


@pytest.mark.parametrize("row", PAPER, ids=lambda row: "-".join(row[:4]))
def test_paper_recipes_are_the_rows_of_the_papers_table(row: tuple[Any, ...]) -> None:
    model, dataset, optimizer, surrogate, lr, weight_decay, alpha, tau = row
    recipe = Recipe.load(RECIPES / "paper" / f"{model}-{dataset}-{optimizer}-{surrogate}.toml")
    assert (recipe.model.name, recipe.data.name) == (model, dataset)
    assert (recipe.optimizer.name, recipe.optimizer.lr) == (optimizer, lr)
    assert (recipe.optimizer.weight_decay, recipe.optimizer.decay_batch_norm) == (weight_decay, False)
    parameters = {name: value for name, value in (("alpha", alpha), ("tau", tau)) if value is not None}
    assert recipe.build_surrogate() == SURROGATES[surrogate](**parameters)
    assert recipe.neuron.threshold == 1
    assert (recipe.training.epochs, recipe.training.batch_size) == (150, 100)
    assert (recipe.data.augment, recipe.data.limit, recipe.energy.psi) == (True, None, "paper")
    assert (recipe.penalty.kind, recipe.penalty.p, recipe.penalty.strength) == ("syn", 1, 64)
    assert (recipe.penalty.normalized, recipe.penalty.schedule) == (True, "linear")


def test_the_paper_folder_holds_those_eight_and_no_others() -> None:
    expected = {"-".join(row[:4]) for row in PAPER}
    assert len(expected) == 8
    assert {file.stem for file in FILES if file.parent.name == "paper"} == expected


def test_small_and_smoke() -> None:
    small = Recipe.load(RECIPES / "small" / "cnn7-fashion-mnist.toml")
    assert (small.data.limit, small.training.epochs, small.data.augment) == (10_000, 6, False)
    assert (small.energy.psi, small.penalty.strength) == ("exact", 32)
    assert small.override("data.name=digits", "data.limit=1000").input_shape == (1, 32, 32)
    smoke = Recipe.load(RECIPES / "smoke" / "digits.toml")
    assert (smoke.model.name, smoke.data.name, smoke.training.epochs) == ("cnn7", "digits", 2)
    baseline, *penalised = sweep.load(RECIPES / "smoke" / "digits-sweep.toml")
    assert baseline.penalty.strength == 0
    assert [(recipe.penalty.kind, recipe.penalty.strength) for recipe in penalised] == [
        (kind, strength) for kind in ("syn", "total") for strength in (8, 16, 32, 64)
    ]
