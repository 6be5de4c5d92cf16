"""Whatever is given for a recipe, nothing is raised but a PicojouleError."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from recipe_keys import BASE, DEFAULTS_AND_OTHERS, flat

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
@settings(max_examples=100)
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
@settings(max_examples=100)
def test_any_override(overrides: list[str]) -> None:
    check(lambda: Recipe.loads(BASE, *overrides))


@pytest.mark.parametrize("key", DEFAULTS_AND_OTHERS)
def test_any_python_value_for_any_key(key: str) -> None:
    section, _, leaf = key.rpartition(".")
    for value in (math.nan, -math.inf, None, date(2020, 1, 1), b"bytes", object, {1: 2}, (1,)):
        content: dict[str, Any] = {"model": {"name": "cnn7"}, "data": {"name": "digits"}}
        (content.setdefault(section, {}) if section else content)[leaf] = value
        if DEFAULTS_AND_OTHERS[key][0] is None and value is None:
            assert flat(Recipe(**content).to_dict())[key] is None
            continue
        with pytest.raises(PicojouleError) as caught:
            Recipe(**content)
        assert str(caught.value).startswith(f"{key} = "), value
        assert "\n" not in str(caught.value)
