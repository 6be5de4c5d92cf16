"""The value: frozen, with a digest and a name that depend on what it says and on nothing else."""

from __future__ import annotations

import copy
import pickle
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from picojoule import zoo
from picojoule.errors import PicojouleError
from picojoule.penalty import LARGEST_P
from picojoule.recipe import Recipe
from picojoule.recipe.phrases import shown
from recipe_keys import BASE, DEFAULTS_AND_OTHERS, flat


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


def test_a_recipe_names_the_runs_that_it_needs_first() -> None:
    assert Recipe.loads(BASE).needs == {}
    target = ("penalty.kind=target", "penalty.target=0.5", "penalty.reference=a-0.5")
    recipe = Recipe.loads(BASE, "training.start_from=12345", *target)
    assert recipe.needs == {"training.start_from": "12345", "penalty.reference": "a-0.5"}
    assert "-target0.5-0-" in recipe.name
    assert Recipe.loads(recipe.to_toml()) == recipe


def test_a_filled_in_pad_follows_the_data_set_but_a_given_one_stays() -> None:
    assert Recipe.loads(BASE).override("data.name=cifar-10").data.pad == 0
    with pytest.raises(PicojouleError, match=r"data\.pad = 2 .* 36×36.* take data\.pad = 0"):
        Recipe.loads(BASE, "data.pad=2").override("data.name=cifar-10")


@pytest.mark.parametrize(
    ("values", "overrides"),
    [
        ({"penalty": {"strength": 64}, "seed": 3}, ["penalty.strength=64", "seed=3"]),
        ({"penalty": {"strength": 0.1 + 0.2, "p": 2}}, [f"penalty.strength={0.1 + 0.2!r}", "penalty.p=2"]),
        ({"penalty": {"strength": 1e-7}, "data": {"augment": True}}, ["penalty.strength=1e-7", "data.augment=true"]),
        ({"penalty": {"budget": "30 %"}}, ["penalty.budget=30%"]),
        ({"penalty": {"budget": 0.3}}, ["penalty.budget=30%"]),
        ({"data": {"name": "cifar-10"}}, ["data.name=cifar-10"]),
        ({"training": {"start_from": "12345"}}, ["training.start_from=12345"]),
        (
            {"neuron": {"kind": "lif", "leak": 0.5, "steps": 4}},
            ["neuron.kind=lif", "neuron.leak=0.5", "neuron.steps=4"],
        ),
        ({"penalty": {}, "data": {"limit": None}}, []),
        ({}, []),
    ],
    ids=str,
)
def test_typed_values_give_the_recipe_that_override_strings_give(values: dict[str, Any], overrides: list[str]) -> None:
    base = Recipe.loads(BASE)
    typed, written = base.with_values(**values), base.override(*overrides)
    assert typed == written
    assert (typed.digest, typed.name) == (written.digest, written.name)
    assert Recipe.loads(typed.to_toml()).digest == typed.digest
    assert base == Recipe.loads(BASE)


def toml(value: object) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key} = {shown(each)}" for key, each in value.items()) + "}"
    return shown(value)


@pytest.mark.parametrize(("key", "other"), sorted((key, other) for key, (_, other) in DEFAULTS_AND_OTHERS.items()))
def test_every_key_can_be_given_as_a_typed_value(key: str, other: Any) -> None:
    section, _, leaf = key.rpartition(".")
    values = {section: {leaf: other}} if section else {leaf: other}
    try:
        written = Recipe.loads(BASE).override(f"{key}={other}" if isinstance(other, str) else f"{key}={toml(other)}")
    except PicojouleError as fault:  # keys that go with others only
        with pytest.raises(PicojouleError, match=re.escape(str(fault))):
            Recipe.loads(BASE).with_values(**values)
    else:
        assert Recipe.loads(BASE).with_values(**values).digest == written.digest


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"penalty": {"strenght": 64}}, r"there is no key penalty\.strenght: did you mean penalty\.strength\?"),
        (
            {"penalty": {"strength": "64"}},
            r"penalty\.strength = '64' is not allowed: take a finite number of 0 or more",
        ),
        ({"penalty": {"strength": None}}, r"penalty\.strength = None is not allowed: take"),
        ({"penalty": 64}, r"penalty = 64 is not allowed: penalty is a section with the keys penalty\.kind"),
        ({"penalties": {"strength": 64}}, r"there is no key penalties: did you mean penalty\?"),
        ({"penalty.strength": 64}, r"penalty\.strength is a key of the section penalty: write penalty={'strength': …}"),
        ({"penalty": {3: 64}}, r"there is no key penalty\.3: take"),
        ({"seed": {"seed": 1}}, r"seed = a table is not allowed: take a whole number"),
        ({"seed": 1.5}, r"seed = 1\.5 is not allowed: take a whole number"),
        ({"self": 1}, "there is no key self"),
        ({"neuron": {"kind": "relu"}, "penalty": {"strength": 1}}, r"penalty\.strength = 1 is not allowed with"),
    ],
    ids=str,
)
def test_a_typed_value_that_is_wrong_is_one_sentence(values: dict[str, Any], message: str) -> None:
    with pytest.raises(PicojouleError, match=f"^{message}"):
        Recipe.loads(BASE).with_values(**values)


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


def test_the_name_of_a_budget_run_says_so() -> None:
    assert "-syn1-30pct-s0-" in Recipe.loads(BASE, "penalty.budget=30%").name
    assert "-syn1-2uJ-s0-" in Recipe.loads(BASE, "penalty.budget=2 uJ").name


@given(
    kind=st.sampled_from(["syn", "total", "balance"]),
    p=st.floats(1, LARGEST_P),
    strength=st.floats(0, 1e300),
    seed=st.integers(0, 2**32 - 1),
    model=st.one_of(
        st.sampled_from(zoo.names()), st.from_regex(r"\A[^\W\d]\w{0,50}:[^\W\d]\w{0,50}\Z").filter(str.isprintable)
    ),
)
@settings(max_examples=40)
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


def test_recipes_with_arguments_of_a_model_are_keys() -> None:
    """A report groups runs by their recipes."""
    text = 'model.name = "a:b"\ndata.name = "digits"\nmodel.args = '
    one, same = (Recipe.loads(text + args) for args in ("{w = 3, l = [1, 2]}", "{l = [1, 2], w = 3}"))
    other = one.override("model.args.w=4")
    assert {one: 1, other: 2}[same] == 1
    assert len({one, same, other}) == 2
