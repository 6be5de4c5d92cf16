"""Overrides, and files that are not there or not recipes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from recipe_keys import BASE, FILES, RECIPES, flat, message


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


def test_an_override_into_something_that_is_no_section() -> None:
    assert "penalty = 3" in message(BASE + "penalty = 3", "penalty.p=2")


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
