"""Recipes: the files that ship, the paper's table, round trips, digests, and every mistake as one sentence."""

from __future__ import annotations

import copy
import math
import os
import pickle
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from picojoule import data, hardware, sweep, zoo
from picojoule.errors import PicojouleError
from picojoule.membrane import IF, LIF
from picojoule.neuron import Spike
from picojoule.quantized import QuantizedReLU
from picojoule.recipe import ZOO_SIDE, Recipe
from picojoule.surrogate import S3NN, SURROGATES, ScaledSigmoid, Triangle

RECIPES = Path(__file__).parents[1] / "recipes"
FILES = sorted(RECIPES.rglob("*.toml"))

BASE = 'model.name = "cnn7"\ndata.name = "fashion-mnist"\n'

# The whole of a recipe, by hand, with a second valid value for every key.
DEFAULTS_AND_OTHERS: dict[str, tuple[object, object]] = {
    "seed": (0, 1),
    "model.name": ("cnn7", "vgg11"),
    "data.name": ("fashion-mnist", "digits"),
    "data.limit": (None, 1000),
    "data.limit_validation": (None, 1000),
    "data.limit_test": (None, 1000),
    "data.augment": (False, True),
    "data.randaugment_n": (2, 3),
    "data.randaugment_m": (9, 10),
    "data.normalize": (True, False),
    "data.pad": (2, 3),
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
    "penalty.kind": ("syn", "total"),
    "penalty.p": (1.0, 2.0),
    "penalty.strength": (0.0, 64.0),
    "penalty.normalized": (True, False),
    "penalty.schedule": ("linear", "constant"),
    "penalty.target": (None, 0.5),
    "penalty.reference": (None, "another-run"),
    "penalty.budget": (None, 0.3),
    "penalty.rise_from": (None, 2.0),
    "penalty.guard": (None, True),
    "energy.psi": ("exact", "uniform"),
    "energy.hardware": ("horowitz-45nm-fp32", "loihi"),
    "training.epochs": (150, 5),
    "training.batch_size": (100, 50),
    "training.precision": ("auto", "32"),
    "training.threads": (2, 1),
    "training.start_from": (None, "another-run"),
}

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


# --- Files that ship --------------------------------------------------------------------------------------------------


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
    assert (small.data.limit, small.training.epochs, small.data.augment) == (10_000, 5, False)
    assert (small.energy.psi, small.penalty.strength) == ("exact", 32)
    assert small.override("data.name=digits", "data.limit=1000").input_shape == (1, 32, 32)
    smoke = Recipe.load(RECIPES / "smoke" / "digits.toml")
    assert (smoke.model.name, smoke.data.name, smoke.training.epochs) == ("cnn7", "digits", 2)
    baseline, *penalised = sweep.load(RECIPES / "smoke" / "digits-sweep.toml")
    assert baseline.penalty.strength == 0
    assert [(recipe.penalty.kind, recipe.penalty.strength) for recipe in penalised] == [
        (kind, strength) for kind in ("syn", "total") for strength in (8, 16, 32, 64)
    ]


# --- The value --------------------------------------------------------------------------------------------------------


def test_defaults_are_those_of_the_design_and_complete() -> None:
    assert flat(Recipe.loads(BASE).to_dict()) == {key: default for key, (default, _) in DEFAULTS_AND_OTHERS.items()}


@pytest.mark.parametrize("name", data.DATASETS)
def test_pad_is_filled_in_so_that_every_zoo_network_takes_every_data_set(name: str) -> None:
    for model in zoo.names():
        recipe = Recipe(model={"name": model}, data={"name": name})
        network = zoo.create(model, recipe.classes, recipe.input_shape[0], recipe.build_neuron())
        assert network.input_shape == recipe.input_shape
        assert recipe.input_shape[1:] == (ZOO_SIDE, ZOO_SIDE)
        assert f"pad = {recipe.data.pad}" in recipe.to_toml().splitlines()


def test_a_model_of_ones_own_takes_images_of_any_size() -> None:
    recipe = Recipe.loads(BASE, "model.name=my_package.nets:make_net", "data.pad=0")
    assert recipe.input_shape == (1, 28, 28)
    assert recipe.name.startswith("make-net-fashion-mnist-")


def test_it_is_frozen_comparable_and_can_be_sent_to_another_process() -> None:
    recipe = Recipe.loads(BASE, "penalty.strength=64")
    with pytest.raises(ValueError, match="frozen"):
        recipe.seed = 3
    assert pickle.loads(pickle.dumps(recipe)) == copy.deepcopy(recipe) == recipe
    assert len({recipe, Recipe.loads(BASE, "penalty.strength=64"), Recipe.loads(BASE)}) == 2


def test_surrogates_and_neurons_take_their_parameters() -> None:
    given_ = ("neuron.alpha=0.5", "neuron.tau=2", "neuron.threshold=0.75")
    expected = {"s3nn": S3NN(0.5, 2.0), "triangle": Triangle(), "sigmoid": ScaledSigmoid(0.5)}
    assert expected.keys() == SURROGATES.keys()
    for name, surrogate in expected.items():
        recipe = Recipe.loads(BASE, f"neuron.surrogate={name}", *given_)
        assert recipe.build_surrogate() == surrogate
        neuron = recipe.build_neuron()()
        assert isinstance(neuron, Spike)
        assert (neuron.threshold, neuron.surrogate) == (0.75, surrogate)
    assert isinstance(Recipe.loads(BASE, "neuron.kind=relu").build_neuron()(), nn.ReLU)
    assert isinstance(Recipe.loads(BASE, "neuron.kind=qrelu").build_neuron()(), QuantizedReLU)


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (("neuron.kind=if", "neuron.steps=4"), IF(steps=4)),
        (("neuron.kind=lif",), LIF(steps=1)),
        (
            ("neuron.kind=if", "neuron.reset=zero", "neuron.max_spikes=3", "neuron.floor=-2", "neuron.threshold=2"),
            IF(2.0, "zero", 3, -2.0, steps=1),
        ),
        (
            ("neuron.kind=lif", "neuron.leak=0.2", "neuron.surrogate=triangle", "neuron.floor=0", "neuron.steps=2"),
            LIF(leak=0.2, surrogate=Triangle(), floor=0.0, steps=2),
        ),
    ],
)
def test_neurons_with_a_membrane_take_their_parameters(overrides: tuple[str, ...], expected: IF | LIF) -> None:
    neuron = Recipe.loads(BASE, *overrides).build_neuron()()
    assert type(neuron) is type(expected)
    assert isinstance(neuron, IF | LIF)
    assert (neuron.membrane, neuron.steps) == (expected.membrane, expected.steps)


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("neuron.kind=if", "neuron.leak=0.5"), ("neuron.leak = 0.5", "'if'", "take neuron.kind = 'lif'")),
        (("neuron.kind=qrelu", "neuron.steps=2"), ("neuron.steps = 2", "'qrelu'", "no memory")),
        (("neuron.kind=qrelu", "neuron.floor=-1"), ("neuron.floor = -1", "'qrelu'")),
        (("neuron.kind=qrelu", "neuron.threshold=2"), ("neuron.threshold = 2", "'qrelu'", "neuron.threshold = 1")),
        (
            ("neuron.kind=lif", "neuron.threshold=0", "neuron.surrogate=triangle"),
            ("neuron.threshold = 0", "'lif'", "above 0"),
        ),
        (("penalty.kind=target", "penalty.target=3", "penalty.p=2"), ("penalty.p", "no meaning")),
        (("penalty.kind=target", "penalty.target=3", "penalty.normalized=false"), ("penalty.normalized", "no meaning")),
    ],
)
def test_what_does_not_go_together_is_refused(overrides: tuple[str, ...], words: tuple[str, ...]) -> None:
    said = message(BASE, *overrides)
    assert all(word in said for word in words), said


def test_a_recipe_names_the_runs_that_it_needs_first() -> None:
    assert Recipe.loads(BASE).needs == {}
    target = ("penalty.kind=target", "penalty.target=0.5", "penalty.reference=a-0.5")
    recipe = Recipe.loads(BASE, "training.start_from=12345", *target)
    assert recipe.needs == {"training.start_from": "12345", "penalty.reference": "a-0.5"}
    assert "-target0.5-0-" in recipe.name
    assert Recipe.loads(recipe.to_toml()) == recipe


@pytest.mark.parametrize("name", hardware.names())
def test_every_price_list_is_accepted(name: str) -> None:
    assert Recipe.loads(BASE, f"energy.hardware={name}").energy.hardware == name


def test_augmentation_has_the_range_that_the_recipe_allows() -> None:
    for n, m in ((1, 1), (15, 29)):
        data.RandAugment(n, m)
        Recipe.loads(BASE, f"data.randaugment_n={n}", f"data.randaugment_m={m}")
    for n, m in ((0, 9), (16, 9), (2, 0), (2, 30)):
        with pytest.raises(PicojouleError):
            data.RandAugment(n, m)
        message(BASE, f"data.randaugment_n={n}", f"data.randaugment_m={m}")


# --- Overrides --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("penalty.kind=total", "total"),
        ('penalty.kind="total"', "total"),
        ("penalty.kind = 'total'", "total"),
        ("seed=3", 3),
        ("data.limit=10_000", 10_000),
        ("training.precision=32", "32"),
        ("penalty.strength=64", 64.0),
        ("optimizer.lr=1e-2", 0.01),
        ("data.augment=true", True),
        ("model.name=a.b:c", "a.b:c"),
        ("penalty.strength=-0.0", 0.0),
    ],
)
def test_overrides_are_toml_values_or_bare_words(override: str, value: object) -> None:
    found = flat(Recipe.loads(BASE, override).to_dict())[override.partition("=")[0].strip()]
    assert found == value
    assert type(found) is type(value)


def test_the_last_override_wins_and_the_file_loses(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(BASE + "seed = 1\n")
    assert Recipe.load(tmp_path / "a.toml").seed == 1
    assert Recipe.load(str(tmp_path / "a.toml"), "seed=2", "seed=3").seed == 3


def test_a_filled_in_pad_follows_the_data_set_but_a_given_one_stays() -> None:
    assert Recipe.loads(BASE).override("data.name=cifar-10").data.pad == 0
    with pytest.raises(PicojouleError, match=r"data\.pad = 2 .* 36×36.* take data\.pad = 0"):
        Recipe.loads(BASE, "data.pad=2").override("data.name=cifar-10")


# --- Digest and name --------------------------------------------------------------------------------------------------


def test_digest_is_what_it_was_in_earlier_versions() -> None:
    assert Recipe.loads(BASE).digest == "b4f437c383bb"
    assert Recipe.loads(BASE).name == "cnn7-fashion-mnist-syn1-0-s0-b4f437c383bb"


def test_digest_depends_on_the_values_and_not_on_the_spelling() -> None:
    text = 'penalty = {strength = 64.0, p = 1}\nseed = 0\n[data]\npad = 2\nname = "fashion-mnist"\n[model]\nname="cnn7"'
    assert Recipe.loads(text).digest == Recipe.loads(BASE, "penalty.strength=6.4e1").digest
    assert Recipe.loads(BASE, "penalty.strength=-0.0").digest == Recipe.loads(BASE).digest


def test_every_value_changes_the_digest() -> None:
    base = Recipe.loads(BASE)
    assert flat(base.to_dict()).keys() == DEFAULTS_AND_OTHERS.keys()
    digests = {base.digest}
    for key, (_, other) in DEFAULTS_AND_OTHERS.items():
        section, _, leaf = key.rpartition(".")
        # Around the checks on combinations, because some values are only possible together with others.
        part = getattr(base, section).model_copy(update={leaf: other}) if section else other
        changed = base.model_copy(update={section or leaf: part})
        assert flat(changed.to_dict())[key] == other
        digests.add(changed.digest)
    assert len(digests) == 1 + len(DEFAULTS_AND_OTHERS)


@given(
    kind=st.sampled_from(["syn", "total", "balance"]),
    p=st.floats(1, 1e300),
    strength=st.floats(0, 1e300),
    seed=st.integers(0, 2**32 - 1),
    model=st.one_of(
        st.sampled_from(zoo.names()), st.from_regex(r"\A[^\W\d]\w{0,50}:[^\W\d]\w{0,50}\Z").filter(str.isprintable)
    ),
)
@settings(max_examples=100)
def test_any_recipe_survives_the_round_trip_under_a_name_safe_for_a_folder(
    kind: str, p: float, strength: float, seed: int, model: str
) -> None:
    try:
        recipe = Recipe(
            seed=seed,
            model={"name": model},
            data={"name": "digits"},
            penalty={"kind": kind, "p": p, "strength": strength},
        )
    except PicojouleError:
        # \w allows a little more than Python's identifiers do.
        assert not all(part.isidentifier() for part in model.split(":"))
        return
    again = Recipe.loads(recipe.to_toml())
    assert again == recipe
    assert again.digest == recipe.digest
    assert set(recipe.name) <= set("abcdefghijklmnopqrstuvwxyz0123456789.-")
    assert recipe.name[0].isalnum()
    assert len(recipe.name) < 120


# --- Mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES: list[tuple[str, tuple[str, ...]]] = [  # an override, and what the sentence must contain
    # keys
    ("penalty.strenght=3", ("penalty.strenght", "did you mean penalty.strength?")),
    ("strength=3", ("strength", "penalty.strength")),
    ("Penalty.Strength=3", ("Penalty.Strength", "penalty.strength")),
    ("kind=syn", ("neuron.kind or penalty.kind",)),
    ("penalty.lmit=3", ("penalty.lmit", "did you mean data.limit?")),
    ("modle.nam=cnn7", ("modle.nam", "did you mean model.name?")),
    ("trainig.epochs=3", ("trainig.epochs", "training.epochs")),
    ("penalty.qqqq=3", ("penalty.qqqq", "penalty.kind")),
    ("qqqq=3", ("qqqq", "seed", "training")),
    ("penalty=3", ("penalty is a section", "penalty.strength")),
    ("nonsense", ("'nonsense'", "section.key=value")),
    # words
    ("model.name=cnn8", ("model.name", "'cnn8'", "did you mean 'cnn7'?", "package.module:factory")),
    ("model.name=my package:make", ("'my package:make'", "package.module:factory")),
    ("model.name=package:", ("'package:'",)),
    ("data.name=cifar10", ("data.name", "'cifar10'", "did you mean 'cifar-10'?")),
    ("neuron.kind=spkie", ("did you mean 'spike'?",)),
    ("neuron.kind=transformer", ("'transformer'", "'spike', 'relu', 'qrelu', 'if' or 'lif'")),
    ("neuron.reset=zeroo", ("neuron.reset", "did you mean 'zero'?")),
    ("training.start_from=../elsewhere", ("training.start_from = '../elsewhere'", "name of a finished run's folder")),
    ("training.start_from=", ("training.start_from = ''", "name of a finished run's folder")),
    ("penalty.budget=30", ("penalty.budget = 30", "a share of the unpenalised energy", "'2 uJ'")),
    ("penalty.rise_from=-1", ("penalty.rise_from = -1", "0 or more")),
    ("penalty.guard=perhaps", ("penalty.guard = 'perhaps'", "true or false")),
    ("penalty.reference=/tmp/run", ("penalty.reference = '/tmp/run'", "name of a finished run's folder")),
    ("neuron.surrogate=S3NN", ("'S3NN'", "did you mean 's3nn'?")),
    ("optimizer.name=adamw", ("did you mean 'adam'?",)),
    ("penalty.kind=sym", ("penalty.kind = 'sym'", "did you mean 'syn'?")),
    ("penalty.schedule=lin", ("did you mean 'linear'?",)),
    ("energy.psi=excat", ("did you mean 'exact'?",)),
    ("energy.hardware=lohi", ("energy.hardware = 'lohi'", "did you mean 'loihi'?")),
    ("training.precision=16", ("'16'", "'auto', '32' or 'bf16-mixed'")),
    # types
    ("seed=1.0", ("seed = 1.0", "whole number from 0 to 4294967295")),
    ("seed=true", ("seed = true", "whole number")),
    ("seed=", ("seed = ''", "whole number")),
    ("seed=1\nx = 2", ("seed = '1\\nx = 2'",)),
    ("seed=[1]", ("seed = [1]",)),
    ("seed={a = 1}", ("seed = a table",)),
    ("seed=1979-05-27", ("seed = 1979-05-27",)),
    ("data.augment=True", ("data.augment = 'True'", "true or false")),
    ("data.augment=1", ("data.augment = 1", "true or false")),
    ("optimizer.lr=fast", ("optimizer.lr = 'fast'", "finite number above 0")),
    ("optimizer.lr=true", ("optimizer.lr = true", "finite number above 0")),
    ("training.epochs=5.0", ("training.epochs = 5.0", "whole number from 1 to")),
    # numbers
    ("penalty.p=0.5", ("penalty.p = 0.5", "1 or more")),
    ("penalty.p=nan", ("penalty.p = nan", "finite")),
    ("penalty.strength=-1", ("penalty.strength = -1", "0 or more")),
    ("penalty.strength=inf", ("penalty.strength = inf", "finite")),
    ("neuron.threshold=-inf", ("neuron.threshold = -inf", "finite")),
    ("neuron.tau=0", ("neuron.tau = 0", "above 0")),
    ("neuron.alpha=0", ("neuron.alpha = 0", "above 0")),
    ("neuron.alpha=-1", ("neuron.alpha = -1", "above 0")),
    ("neuron.leak=1.5", ("neuron.leak = 1.5", "finite number from 0 to 1")),
    ("neuron.floor=0.5", ("neuron.floor = 0.5", "finite number of 0 or less")),
    ("neuron.max_spikes=0", ("neuron.max_spikes = 0", "whole number from 1")),
    ("penalty.target=0", ("penalty.target = 0", "finite number above 0")),
    ("optimizer.lr=0", ("optimizer.lr = 0", "above 0")),
    ("optimizer.lr=-1e-3", ("optimizer.lr = -0.001", "above 0")),
    ("optimizer.weight_decay=-1", ("optimizer.weight_decay = -1", "0 or more")),
    ("training.epochs=0", ("training.epochs = 0", "from 1")),
    ("training.batch_size=1", ("training.batch_size = 1", "from 2")),
    ("training.threads=0", ("training.threads = 0", "from 1")),
    ("data.randaugment_n=0", ("data.randaugment_n = 0", "from 1 to 15")),
    ("data.randaugment_m=30", ("data.randaugment_m = 30", "from 1 to 29")),
    ("data.randaugment_m=-1", ("data.randaugment_m = -1", "from 1 to 29")),
    ("data.pad=-1", ("data.pad = -1", "from 0")),
    ("seed=-1", ("seed = -1", "from 0")),
    ("seed=0x" + "f" * 5000, ("seed = a huge number", "4294967295")),
    ("optimizer.lr=0x" + "f" * 5000, ("optimizer.lr = a huge number", "finite")),
    ("optimizer.lr=0x" + "f" * 500, ("optimizer.lr = ", "...", "finite")),
    # combinations
    ("neuron.threshold=0", ("neuron.threshold = 0", "neuron.surrogate = 's3nn'", "above 0")),
    ("neuron.threshold=-1.5", ("neuron.threshold = -1.5", "'s3nn'")),
    ("neuron.steps=4", ("neuron.steps = 4", "neuron.kind = 'spike'", "neuron.steps = 1")),
    ("neuron.leak=0.5", ("neuron.leak = 0.5", "neuron.kind = 'spike'", "take neuron.kind = 'lif'")),
    ("neuron.reset=zero", ("neuron.reset = 'zero'", "neuron.kind = 'spike'", "take neuron.kind = 'if' or 'lif'")),
    ("penalty.kind=target", ("penalty.target is missing", "penalty.reference")),
    ("penalty.target=0.5", ("penalty.target = 0.5", "penalty.kind = 'syn'", "take penalty.kind = 'target'")),
    ("penalty.reference=run", ("penalty.reference = 'run'", "penalty.kind = 'syn'")),
    ("data.limit=9", ("data.limit = 9", "from 10", "to 54000")),
    ("data.limit=54001", ("data.limit = 54001", "to 54000")),
    ("data.limit_validation=6001", ("data.limit_validation = 6001", "from 10", "to 6000")),
    ("data.limit_test=9", ("data.limit_test = 9", "from 10", "to 10000")),
    ("data.pad=0", ("data.pad = 0", "28×28", "'cnn7'", "32×32", "data.pad = 2")),
    ("data.pad=4", ("data.pad = 4", "36×36", "data.pad = 2")),
]


@pytest.mark.parametrize(("override", "words"), MISTAKES, ids=[override[:30] for override, _ in MISTAKES])
def test_a_mistake_is_one_sentence_that_names_key_value_and_remedy(override: str, words: tuple[str, ...]) -> None:
    said = message(BASE, override)
    for word in words:
        assert word in said


def test_every_key_has_a_mistake_in_the_table() -> None:
    untested = set(DEFAULTS_AND_OTHERS) - {override.partition("=")[0] for override, _ in MISTAKES}
    # The remaining ones are switches, like data.augment.
    assert untested == {"data.normalize", "optimizer.decay_batch_norm", "penalty.normalized"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ("model.name is missing", "'cnn7'")),
        ('model.name = "cnn7"', ("data.name is missing", "'fashion-mnist'")),
        ('model.name = "cnn7"\ndata.nam = "digits"', ("data.nam", "did you mean data.name?")),
        ('[modle]\nname = "cnn7"', ("modle", "did you mean model?")),
        (BASE + "strength = 3", ("strength", "penalty.strength")),
        (BASE + "penalty = 3", ("penalty = 3", "section", "penalty.kind")),
        (BASE + "training.precision = 32", ("training.precision = 32", "did you mean '32'?")),
        (BASE + "self = 1", ("no key self",)),
        (BASE + '"a\\nb" = 1', (r"'a\nb'",)),
        (BASE + '"" = 1', ("no key ''",)),
        (BASE + "[penalty]\nkind = syn", ("not valid TOML", "line 4")),
        (BASE + "seed =", ("not valid TOML", "line 3")),
        (BASE + "seed = 1\nseed = 2", ("not valid TOML", "line 4")),
        (BASE + "\nseed = [\n", ("not valid TOML", "line 5")),
        (BASE + "a = " + "[" * 5000, ("nested too deeply",)),
        (BASE + "seed = " + "9" * 5000, ("thousands of digits",)),
        (BASE + f'penalty.kind = "{"x" * 5000}"', ("penalty.kind = 'xxx", "...", "'syn'")),
    ],
)
def test_a_mistake_in_the_text_is_one_sentence(text: str, words: tuple[str, ...]) -> None:
    said = message(text)
    assert len(said) < 500
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("data.name=cifar-100", "data.limit=99"), ("data.limit = 99", "'cifar-100'", "from 100", "to 45000")),
        (("data.name=digits", "data.pad=2"), ("data.pad = 2", "36×36", "data.pad = 0")),
        (("neuron.kind=relu", "penalty.strength=3"), ("penalty.strength = 3", "'relu'", "penalty.strength = 0")),
    ],
)
def test_an_impossible_pair_is_one_sentence(overrides: tuple[str, ...], words: tuple[str, ...]) -> None:
    said = message(BASE, *overrides)
    for word in words:
        assert word in said


def test_thresholds_that_a_surrogate_can_take_are_allowed() -> None:
    for surrogate in ("triangle", "sigmoid"):
        assert Recipe.loads(BASE, "neuron.threshold=0", f"neuron.surrogate={surrogate}").neuron.threshold == 0


def test_an_override_into_something_that_is_no_section() -> None:
    assert "penalty = 3" in message(BASE + "penalty = 3", "penalty.p=2")


def test_the_constructor_speaks_the_same_language() -> None:
    with pytest.raises(PicojouleError, match=r"penalty\.p = 0\.5 is not allowed: take a finite number of 1 or more"):
        Recipe(model={"name": "cnn7"}, data={"name": "digits"}, penalty={"p": 0.5})


# --- Files that are not there or not recipes --------------------------------------------------------------------------


def load_message(path: str | Path, *overrides: str) -> str:
    with pytest.raises(PicojouleError) as caught:
        Recipe.load(path, *overrides)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_missing_file_names_its_neighbours() -> None:
    said = load_message(RECIPES / "paper" / "cnn7-fashion-mnist-adam.toml")
    assert "cnn7-fashion-mnist-adam.toml: did you mean cnn7-fashion-mnist-" in said
    assert "small" not in said
    assert "digits.toml" in load_message(RECIPES / "smoke" / "qqqq")
    assert "is a folder" in load_message(RECIPES / "smoke")
    assert "digits.toml" in load_message(RECIPES / "smoke")


def test_paths_that_cannot_be_read(tmp_path: Path) -> None:
    assert "holds no TOML file" in load_message(tmp_path / "a.toml")
    assert "check the path" in load_message(tmp_path / "nowhere" / "a.toml")
    assert "is not a path" in load_message("a\0b")
    assert "cannot be read" in load_message("x" * 5000)
    assert "cannot be read" in load_message(FILES[0] / "a.toml")
    (tmp_path / "latin.toml").write_bytes(b'seed = 1\n# caf\xe9\nmodel.name = "cnn7"\n')
    assert "not UTF-8 text (line 2)" in load_message(tmp_path / "latin.toml")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(BASE)
    path.chmod(0)
    assert "cannot be read (Permission denied)" in load_message(path)


def test_a_mistake_in_a_file_names_the_file_and_the_overrides(tmp_path: Path) -> None:
    path = tmp_path / "a.toml"
    path.write_text(BASE + "seed = -1\n")
    assert load_message(path) == f"{path}: seed = -1 is not allowed: take a whole number from 0 to 4294967295"
    assert load_message(path, "seed=-2").startswith(f"{path} with seed=-2: seed = -2 is not allowed")


# --- Nothing but PicojouleError ---------------------------------------------------------------------------------------

WORDS = [word for key in DEFAULTS_AND_OTHERS for word in (*key.split("."), key[:-1])]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.dates()
    | st.text(max_size=20)
    | st.sampled_from([other for _, other in DEFAULTS_AND_OTHERS.values()]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=4),
    max_leaves=8,
)
CONTENT = st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), VALUES, max_size=6)


def check(attempt: Callable[[], Recipe]) -> None:
    """Either a recipe that survives the round trip, or one printable sentence; any other exception passes through."""
    complaint: PicojouleError | None = None
    try:
        recipe = attempt()
    except PicojouleError as fault:
        complaint = fault
    if complaint is None:
        assert Recipe.loads(recipe.to_toml()) == recipe
    else:
        assert str(complaint).isprintable()


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda junk: BASE.encode() + junk))
@settings(max_examples=150)
def test_any_bytes_in_a_file(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.toml"
        path.write_bytes(content)
        check(lambda: Recipe.load(path))


@given(st.text(max_size=100), st.booleans())
@settings(max_examples=150)
def test_any_text(junk: str, after_a_recipe: bool) -> None:
    check(lambda: Recipe.loads(BASE + junk if after_a_recipe else junk))


def without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_none(each) for key, each in value.items() if each is not None}
    return [without_none(each) for each in value if each is not None] if isinstance(value, list) else value


@given(CONTENT)
@settings(max_examples=300)
def test_any_toml(content: dict[str, Any]) -> None:
    usable = {key: value for key, value in without_none(content).items() if value is not None}
    text = tomli_w.dumps({"model": {"name": "cnn7"}, "data": {"name": "digits"}} | usable)
    check(lambda: Recipe.loads(text))


@given(
    st.lists(
        st.text(max_size=30)
        | st.tuples(st.sampled_from([*DEFAULTS_AND_OTHERS, "penalty", "x.y.z"]), st.text(max_size=20)).map("=".join),
        max_size=3,
    )
)
@settings(max_examples=300)
def test_any_override(overrides: list[str]) -> None:
    check(lambda: Recipe.loads(BASE, *overrides))


@pytest.mark.parametrize("value", [math.nan, -math.inf, None, date(2020, 1, 1), b"bytes", object, {1: 2}, (1,)])
@pytest.mark.parametrize("key", DEFAULTS_AND_OTHERS)
def test_any_python_value_for_any_key(key: str, value: object) -> None:
    section, _, leaf = key.rpartition(".")
    content: dict[str, Any] = {"model": {"name": "cnn7"}, "data": {"name": "digits"}}
    (content.setdefault(section, {}) if section else content)[leaf] = value
    if DEFAULTS_AND_OTHERS[key][0] is None and value is None:
        assert flat(Recipe(**content).to_dict())[key] is None
        return
    with pytest.raises(PicojouleError) as caught:
        Recipe(**content)
    assert str(caught.value).startswith(f"{key} = ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["optimizer.lr", "optimizer.weight_decay", "neuron.threshold"])
def test_numbers_that_float32_cannot_hold_are_refused(key: str) -> None:
    text = 'model.name = "cnn7"\ndata.name = "digits"'
    with pytest.raises(
        PicojouleError, match=rf"{key} = 1e\+31 is not allowed, .*float32: take a number of size up to 1e\+30"
    ):
        Recipe.loads(text, f"{key}=1e31")
