"""What does not go together is refused in one sentence."""

from __future__ import annotations

import pytest

from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from recipe_keys import BASE, message


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
        (("energy.chains=merged", "energy.psi=paper"), ("energy.chains = 'merged'", "take energy.psi = 'exact'")),
        (("penalty.kind=target", "penalty.target=3", "penalty.p=2"), ("penalty.p", "no meaning")),
        (("penalty.kind=target", "penalty.target=3", "penalty.normalized=false"), ("penalty.normalized", "no meaning")),
    ],
)
def test_what_does_not_go_together_is_refused(overrides: tuple[str, ...], words: tuple[str, ...]) -> None:
    said = message(BASE, *overrides)
    assert all(word in said for word in words), said


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


@pytest.mark.parametrize("key", ["optimizer.lr", "optimizer.weight_decay", "neuron.threshold"])
def test_numbers_that_float32_cannot_hold_are_refused(key: str) -> None:
    text = 'model.name = "cnn7"\ndata.name = "digits"'
    with pytest.raises(
        PicojouleError, match=rf"{key} = 1e\+31 is not allowed, .*float32: take a number of size up to 1e\+30"
    ):
        Recipe.loads(text, f"{key}=1e31")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (("penalty.strength=4",), "finds the strength by itself"),
        (("penalty.strength=0", "neuron.kind=relu"), "has no spikes"),
        (("penalty.strength=0", "training.epochs=2"), "3 or more"),
        (("penalty.strength=0", "penalty.schedule=constant"), "has no meaning"),
        (("penalty.strength=0", "penalty.kind=target", "penalty.target=0.5"), "its own target"),
    ],
)
def test_what_a_budget_excludes(overrides: tuple[str, ...], words: str) -> None:
    with pytest.raises(PicojouleError, match=words):
        Recipe.loads(BASE, "penalty.budget=30%", *overrides)
