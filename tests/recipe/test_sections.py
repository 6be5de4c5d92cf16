"""Keys by themselves: their defaults, and what is made of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from picojoule import data, zoo
from picojoule.data.datasets import RecordedSet
from picojoule.energy import hardware
from picojoule.errors import PicojouleError
from picojoule.neurons.lif import IF, LIF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike
from picojoule.neurons.surrogate import S3NN, SURROGATES, ScaledSigmoid, Triangle
from picojoule.recipe import Recipe
from picojoule.recipe.checks import ZOO_SIDE
from picojoule.runs.model import build_model, count_synapses
from recipe_keys import BASE, DEFAULTS_AND_OTHERS, flat, message


def test_defaults_are_those_of_the_design_and_complete() -> None:
    assert flat(Recipe.loads(BASE).to_dict()) == {key: default for key, (default, _) in DEFAULTS_AND_OTHERS.items()}


RECORDED = [name for name, known in data.DATASETS.items() if isinstance(known, RecordedSet)]


@pytest.mark.parametrize("name", RECORDED)
def test_networks_for_frames_take_every_data_set_of_recordings(name: str) -> None:
    known = data.DATASETS[name]
    for encoding in ("spikes", "currents"):
        shape = known.sample_shape(4, encoding)  # type: ignore[union-attr]
        for model in filter(zoo.takes_frames, zoo.names()):
            values = ("data.frames=4", f"data.encoding={encoding}", "neuron.kind=lif", "neuron.steps=4")
            recipe = Recipe.loads(f'model.name = "{model}"\ndata.name = "{name}"', *values)
            assert recipe.sample_shape == shape
            assert recipe.data.normalize is False
            network = build_model(recipe)
            assert ("input" in count_synapses(network, recipe)) is (encoding == "spikes")  # type: ignore[operator]
            assert network(recipe.example()).shape == (1, recipe.classes)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (("neuron.kind=lif",), "neuron.steps = 1 is not allowed with 'braille', whose samples have 76 frames"),
        (("neuron.kind=lif", "neuron.steps=76", "data.normalize=true"), "would make analog values of spikes"),
        (("neuron.kind=lif", "neuron.steps=76", "data.pad=1"), "data.pad = 1 is for images"),
        (("neuron.kind=lif", "neuron.steps=76", "data.augment=true"), "take false"),
        (("data.frames=80",), "frames = 80 is more than the 76 time steps"),
        (("model.name=cnn7", "neuron.kind=lif", "neuron.steps=76"), "takes images: take 'cnn4'"),
        (("data.name=digits", "data.frames=3"), "data.frames = 3 is for recordings over time, not for 'digits'"),
        (("data.name=digits", "data.encoding=spikes"), "data.encoding = 'spikes' is for recordings over time"),
    ],
)
def test_what_recordings_do_not_go_with_is_told(values: tuple[str, ...], told: str) -> None:
    assert told in message('model.name = "cnn4"\ndata.name = "braille"', *values)


@pytest.mark.parametrize("name", [name for name in data.DATASETS if name not in RECORDED])
def test_pad_is_filled_in_so_that_every_zoo_network_takes_every_data_set(name: str) -> None:
    for model in zoo.names():
        if zoo.takes_frames(model):
            continue
        recipe = Recipe(model={"name": model}, data={"name": name})
        with torch.device("meta"):  # its weights are of no interest
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
