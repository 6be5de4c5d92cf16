"""Keys by themselves: their defaults, and what is made of them."""

from __future__ import annotations

import pytest
from torch import nn

from picojoule import data, zoo
from picojoule.energy import hardware
from picojoule.errors import PicojouleError
from picojoule.neurons.lif import IF, LIF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike
from picojoule.neurons.surrogate import S3NN, SURROGATES, ScaledSigmoid, Triangle
from picojoule.recipe import Recipe
from picojoule.recipe.checks import ZOO_SIDE
from recipe_keys import BASE, DEFAULTS_AND_OTHERS, flat, message


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
