"""Sweep files: products, joins, duplicates, overrides, and every mistake as one sentence."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import picojoule as pj
import tiny

BASE = 'model.name = "cnn7"\ndata.name = "digits"\n'


def keys(recipes: tuple[pj.Recipe, ...]) -> list[tuple[str, float, float, int]]:
    return [(r.penalty.kind, r.penalty.p, r.penalty.strength, r.seed) for r in recipes]


def test_the_axes_of_a_block_are_multiplied_the_first_slowest() -> None:
    text = BASE + '[[axes]]\npenalty.strength = [0, 1, 2]\n"penalty.kind" = ["total", "syn"]\nseed = [5, 3]\n'
    expected = [
        (kind, 1, strength, seed) for strength, kind, seed in itertools.product((0, 1, 2), ("total", "syn"), (5, 3))
    ]
    assert keys(pj.sweep.loads(text)) == expected


@pytest.mark.parametrize(
    "axes", ["penalty.strength = [1, 2]", '"penalty.strength" = [1, 2]', "penalty = { strength = [1, 2] }"]
)
def test_every_way_to_write_a_dotted_key(axes: str) -> None:
    assert [r.penalty.strength for r in pj.sweep.loads(f"{BASE}[[axes]]\n{axes}")] == [1, 2]
    assert [r.penalty.strength for r in pj.sweep.loads(f"{BASE}[[axes]]\n[axes.penalty]\nstrength = [1, 2]")] == [1, 2]


def test_blocks_are_joined_and_what_comes_again_is_dropped() -> None:
    text = BASE + "[[axes]]\nseed = [1, 0, 1]\n[[axes]]\npenalty.strength = [2, 0]\n[[axes]]\n"
    assert keys(pj.sweep.loads(text)) == [("syn", 1, 0, 1), ("syn", 1, 0, 0), ("syn", 1, 2, 0)]


def test_equal_values_spelt_differently_are_one_run() -> None:
    assert len(pj.sweep.loads(BASE + "[[axes]]\npenalty.strength = [2, 2.0, 0.0, -0.0]")) == 2


def test_a_plain_recipe_is_a_sweep_of_one(tmp_path: Path) -> None:
    (tmp_path / "recipe.toml").write_text(tiny.RECIPE)
    assert pj.sweep.load(tmp_path / "recipe.toml", "seed=4") == (tiny.recipe("seed=4"),)


def test_overrides_change_the_recipe_that_is_varied(tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(tiny.RECIPE + "[[axes]]\nseed = [0, 1]\n[[axes]]\npenalty.p = [2]\n")
    expected = (
        *(tiny.recipe("training.epochs=9", f"seed={s}") for s in (0, 1)),
        tiny.recipe("training.epochs=9", "penalty.p=2"),
    )
    assert pj.sweep.load(file, "training.epochs=9") == expected
    # An axis of one block may be overridden for the others.
    assert keys(pj.sweep.load(file, "seed=7")) == [("syn", 1, 0.5, 0), ("syn", 1, 0.5, 1), ("syn", 2, 0.5, 7)]


def test_what_the_recipe_leaves_out_is_filled_in_for_each_run() -> None:
    text = '[[axes]]\nmodel.name = ["cnn7", "vgg11"]\ndata.name = ["digits", "fashion-mnist"]\n'
    assert [(r.model.name, r.data.pad) for r in pj.sweep.loads(text)] == [
        *(("cnn7", 0), ("cnn7", 2)),
        *(("vgg11", 0), ("vgg11", 2)),
    ]


@pytest.mark.parametrize(
    ("axes", "parts"),
    [
        ("[[axes]]\npenalty.stregth = [1]", ["penalty.stregth", "did you mean penalty.strength"]),
        ("[[axes]]\npenalty = [1]", ["penalty is a section"]),
        ("[[axes]]\npenalty.strength = 1", ["axis penalty.strength", "not a list"]),
        ("[[axes]]\npenalty.strength = []", ["axis penalty.strength", "empty"]),
        ("[[axes]]\npenalty.strength = [1, -1]", ["penalty.strength = -1 is not allowed"]),
        ("[[axes]]\npenalty.strength = [[1]]", ["penalty.strength = [1] is not allowed"]),
        ('[[axes]]\npenalty.strength = [1]\n"penalty.strength" = [2]', ["penalty.strength twice"]),
        ("[axes]\npenalty.strength = [1]", ["[[axes]]"]),
        ("[[axes]]\nseed = [0]\n[[axes]]\naxes.seed = [0]", ["axes.seed"]),
    ],
)
def test_mistakes(axes: str, parts: list[str]) -> None:
    with pytest.raises(pj.PicojouleError) as caught:
        pj.sweep.loads(BASE + axes)
    assert "\n" not in str(caught.value)
    for part in parts:
        assert part in str(caught.value)


def test_axes_that_multiply_beyond_all_measure_are_refused_at_once() -> None:
    keys = ("penalty.strength", "penalty.rise_from", "optimizer.lr", "optimizer.weight_decay", "neuron.tau", "seed")
    axes = "".join(f"{key} = {list(range(1, 101))}\n" for key in keys)
    with pytest.raises(pj.PicojouleError, match=r"multiply to 1,000,000,000,002 runs.*\[\[axes\]\] of their own"):
        pj.sweep.loads(f"{BASE}[[axes]]\n{axes}[[axes]]\nseed = [0, 1]")


def test_axes_that_are_not_even_a_table() -> None:
    with pytest.raises(pj.PicojouleError, match=r"\[\[axes\]\]"):
        pj.sweep.loads("axes = 3\n" + BASE)


def test_an_override_without_effect_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(BASE + "[[axes]]\nseed = [0, 1]")
    with pytest.raises(pj.PicojouleError, match=r"sweep.toml with seed=3: seed=3 has no effect, .*axis"):
        pj.sweep.load(tmp_path / "sweep.toml", "seed=3")


def test_a_recipe_with_axes_is_no_single_run() -> None:
    with pytest.raises(pj.PicojouleError, match=r"run it with `picojoule sweep`"):
        pj.Recipe.loads(BASE + "[[axes]]\nseed = [0]")


def test_mistakes_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(pj.PicojouleError, match=r"there is no recipe .*nothing.toml"):
        pj.sweep.load(tmp_path / "nothing.toml")
    (tmp_path / "sweep.toml").write_text("[[axes]")
    with pytest.raises(pj.PicojouleError, match=r"sweep.toml: this is not valid TOML"):
        pj.sweep.load(tmp_path / "sweep.toml")
