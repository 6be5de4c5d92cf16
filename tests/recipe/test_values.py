"""What keys take beyond plain types."""

from __future__ import annotations

import pytest

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from recipe_keys import BASE


def test_spellings_of_a_budget() -> None:
    def stored(text: str) -> object:
        return Recipe.loads(BASE, f"penalty.budget={text}").penalty.budget

    assert stored("30%") == stored("0.3") == stored("30 %") == 0.3
    assert stored("2 uJ") == stored("2µJ") == stored("2000 nJ") == stored('"0.002 mJ"') == "2 µJ"
    for wrong in ("0", "130%", "2", "0 uJ", "2 kJ", "true", "-3%", "%", "nan", "[1]"):
        with pytest.raises(PicojouleError, match=r"penalty\.budget = .* is not allowed: take a share"):
            stored(wrong)
