"""Every network of the registry: the paper's integers, names, initialisation, the ReLU twin."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from paper_networks import PAPERS, SMALLEST_FIRST
from picojoule import zoo
from picojoule.errors import PicojouleError
from picojoule.neurons.lif import IF, LIF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike
from picojoule.spikes.watch import watch
from picojoule.synapses.trace import trace

# From the paper's table of penalties with every neuron firing.
NEURONS = {"cnn7": 59_688, "vgg11": 249_856, "resnet18": 671_744}
LAYERS = {"cnn7": 6, "vgg11": 10, "resnet18": 20}
MAPS: dict[str, list[tuple[int, ...]]] = {  # the shape of every spiking layer
    "cnn7": [(64, 15, 15), (128, 13, 13), (256, 8, 8), (128, 6, 6), (64, 6, 6), (10, 6, 6)],
    "vgg11": [
        *[(64, 32, 32), (128, 16, 16), (256, 16, 16), (512, 8, 8), (512, 8, 8)],
        *[(512, 4, 4), (512, 2, 2), (512, 2, 2), (4096,), (4096,)],
    ],
    "resnet18": [
        *[(64, 32, 32)] * 4,
        *[(64, 32, 32), (64, 32, 32), (128, 16, 16), (128, 16, 16), (128, 16, 16)],
        *[(128, 16, 16), (128, 16, 16), (256, 8, 8), (256, 8, 8), (256, 8, 8)],
        *[(256, 8, 8), (256, 8, 8), (512, 4, 4), (512, 4, 4), (512, 4, 4)],
        (512, 4, 4),
    ],
}
SPIKING = {
    "cnn7": {f"spike{i}" for i in range(1, 7)},
    "vgg11": {f"spike{i}" for i in range(1, 11)},
    "resnet18": {f"stage{i}.{j}.spike{k}" for i in (1, 2, 3, 4) for j in (0, 1) for k in (1, 2)}
    | {f"stage{i}.0.skip_spike" for i in (2, 3, 4)}
    | {"spike"},
}
DROPOUT: dict[str, dict[str, float]] = {
    "cnn7": {"drop1": 0.1, "drop2": 0.2, "drop3": 0.3, "drop4": 0.2, "drop5": 0.1},
    "vgg11": dict.fromkeys(("drop2", "drop4", "drop7", "drop9", "drop10"), 0.2),
    "resnet18": {},
}
POOLS: dict[str, set[str]] = {"cnn7": set(), "vgg11": {"pool1", "pool3", "pool5", "pool6"}, "resnet18": set()}

FURTHER = {"cnn4", "rsnn", "spikformer"}
"""Networks that are not the paper's, each with a test file of its own."""

each_model = pytest.mark.parametrize("name", PAPERS)


@pytest.fixture(scope="module", params=PAPERS)
def model(request: pytest.FixtureRequest) -> tuple[str, zoo.ZooModel]:
    torch.manual_seed(0)
    return request.param, zoo.create(request.param)


def modules(net: nn.Module, kind: type[nn.Module] | tuple[type[nn.Module], ...]) -> dict[str, Any]:
    return {name: module for name, module in net.named_modules() if isinstance(module, kind)}


def spike_maps(net: nn.Module, images: Tensor) -> dict[str, Tensor]:
    maps: dict[str, Tensor] = {}
    hooks = [
        module.register_forward_hook(lambda module, args, output, name=name: maps.update({name: output}))
        for name, module in modules(net, Spike).items()
    ]
    net.eval()
    with torch.no_grad():
        net(images)
    for hook in hooks:
        hook.remove()
    return maps


def test_every_model_is_checked_here() -> None:
    tables = (NEURONS, LAYERS, MAPS, SPIKING, DROPOUT, POOLS)
    assert all(set(table) == set(PAPERS) for table in tables)
    assert set(PAPERS) | FURTHER == set(zoo.names())


def test_neurons_and_layers_are_the_papers(model: tuple[str, zoo.ZooModel]) -> None:
    name, net = model
    maps = spike_maps(net, torch.randn(2, *net.input_shape))
    assert len(maps) == LAYERS[name]
    assert sum(spikes[0].numel() for spikes in maps.values()) == NEURONS[name]
    shapes = [tuple(spikes.shape[1:]) for spikes in maps.values()]
    assert sorted(shapes) == sorted(MAPS[name])
    for spikes in maps.values():
        assert ((spikes == 0) | (spikes == 1)).all()


def test_kernels_of_cnn7_give_the_papers_synapses() -> None:
    # Every synapse of a convolution without padding is one weight at one place of its output map.
    net = zoo.create("cnn7")
    sides = {f"conv{i + 1}": shape[-1] for i, shape in enumerate(MAPS["cnn7"])} | {"conv7": 6}
    convs = modules(net, nn.Conv2d)
    assert sum(convs[name].weight.numel() * side**2 for name, side in sides.items() if name != "conv1") == 98_895_888
    assert [convs[f"conv{i}"].kernel_size[0] for i in range(1, 8)] == [3, 3, 6, 3, 1, 1, 1]
    assert all(conv.padding == (0, 0) for conv in convs.values())


def test_the_skip_of_resnet18_is_one_by_one_with_stride_two() -> None:
    convs = modules(zoo.create("resnet18"), nn.Conv2d)
    skips = [convs[f"stage{i}.0.skip_conv"] for i in (2, 3, 4)]
    assert all((c.kernel_size, c.stride, c.padding) == ((1, 1), (2, 2), (0, 0)) for c in skips)


def test_blocks_of_resnet18_add_their_path_to_the_stream() -> None:
    stage = zoo.create("resnet18").eval().get_submodule("stage2")
    blocks: dict[str, Any] = dict(stage.named_children())
    currents = torch.randn(2, 64, 32, 32)
    for block in blocks.values():
        nn.init.zeros_(block.conv2.weight)  # silences the path, leaves the skip
    skip = [getattr(blocks["0"], f"skip_{part}") for part in ("norm", "spike", "conv")]
    assert torch.equal(stage(currents), nn.Sequential(*skip)(currents))


def test_names_of_layers(model: tuple[str, zoo.ZooModel]) -> None:
    name, net = model
    assert set(modules(net, Spike)) == SPIKING[name]
    assert {key: drop.p for key, drop in modules(net, nn.Dropout).items()} == DROPOUT[name]
    assert set(modules(net, nn.AvgPool2d)) == POOLS[name]


def test_a_norm_stands_before_every_spiking_layer(model: tuple[str, zoo.ZooModel]) -> None:
    name, net = model
    norms = set(modules(net, (nn.BatchNorm1d, nn.BatchNorm2d)))
    assert norms == {spiking.replace("spike", "norm") for spiking in SPIKING[name]}


def test_no_synaptic_layer_has_a_bias(model: tuple[str, zoo.ZooModel]) -> None:
    synaptic = modules(model[1], (nn.Conv2d, nn.Linear))
    assert synaptic
    assert all(layer.bias is None for layer in synaptic.values())


def test_he_initialisation_for_relu(model: tuple[str, zoo.ZooModel]) -> None:
    for layer in modules(model[1], (nn.Conv2d, nn.Linear)).values():
        weight = layer.weight.detach().double()
        standardised = weight * math.sqrt(weight[0].numel() / 2)  # He: variance 2 / fan-in
        n = weight.numel()
        assert abs(standardised.mean()) < 5 / math.sqrt(n)
        assert abs(standardised.var() - 1) < 5 * math.sqrt(2 / n)
        # Normal, not uniform: the fourth moment of a normal is 3 (of a uniform 1.8), with variance 96 / n.
        assert abs((standardised**4).mean() - 3) < 5 * math.sqrt(96 / n)


@pytest.mark.parametrize("name", SMALLEST_FIRST)
def test_gradients_reach_every_parameter(name: str) -> None:
    torch.manual_seed(0)
    net = zoo.create(name).train()
    logits = net(torch.randn(4, *net.input_shape))
    loss = nn.functional.cross_entropy(logits, torch.tensor([0, 3, 5, 9]))
    parameters = dict(net.named_parameters())
    for key, grad in zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True):
        assert grad.isfinite().all(), key
        assert grad.abs().sum() > 0, key


def test_the_relu_twin_has_the_same_parameters(model: tuple[str, zoo.ZooModel]) -> None:
    name, net = model
    twin = zoo.create(name, neuron=nn.ReLU)
    assert set(modules(twin, nn.ReLU)) == SPIKING[name]
    assert not modules(twin, Spike)
    twin.load_state_dict(net.state_dict())
    shapes = {key: value.shape for key, value in net.state_dict().items()}
    assert {key: value.shape for key, value in twin.state_dict().items()} == shapes
    assert twin.eval()(torch.randn(2, *twin.input_shape)).shape == (2, 10)


@pytest.mark.parametrize("name", SMALLEST_FIRST)
@pytest.mark.parametrize(("classes", "in_channels"), [(1, 1), (100, 2)])
def test_other_classes_and_channels(name: str, classes: int, in_channels: int) -> None:
    net = zoo.create(name, classes=classes, in_channels=in_channels).eval()
    assert net.input_shape == (in_channels, 32, 32)
    images = torch.randn(2, *net.input_shape)
    assert net(images).shape == (2, classes)
    assert sum(spikes[0].numel() for spikes in spike_maps(net, images).values()) == NEURONS[name]


def test_usual_input_shapes(model: tuple[str, zoo.ZooModel]) -> None:
    name, net = model
    assert net.input_shape == {"cnn7": (1, 32, 32)}.get(name, (3, 32, 32))


def test_the_factory_is_called_for_every_layer() -> None:
    neurons = modules(zoo.create("cnn7", neuron=partial(Spike, threshold=0.5)), Spike).values()
    assert len(set(neurons)) == 6
    assert all(neuron.threshold == 0.5 for neuron in neurons)


def test_the_same_module_for_every_layer_is_refused() -> None:
    shared = Spike()
    with pytest.raises(PicojouleError, match="pass a factory"):
        zoo.create("cnn7", neuron=shared)
    with pytest.raises(PicojouleError, match="same module twice"):
        zoo.create("cnn7", neuron=lambda: shared)


def test_an_unknown_name_lists_the_valid_ones_and_the_nearest() -> None:
    with pytest.raises(PicojouleError) as error:
        zoo.create("vgg1")
    assert "did you mean 'vgg11'" in str(error.value)
    assert all(name in str(error.value) for name in zoo.names())
    with pytest.raises(PicojouleError, match="unknown model 'zzz': choose one of"):
        zoo.create("zzz")


@each_model
@pytest.mark.parametrize("bad", [{"classes": 0}, {"classes": -1}, {"in_channels": 0}])
def test_fewer_than_one_class_or_channel_is_refused(name: str, bad: dict[str, Any]) -> None:
    ((label, value),) = bad.items()
    with pytest.raises(PicojouleError, match=f"{label} must be 1 or more, not {value}"):
        zoo.create(name, **bad)


# --- Over time -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "neuron", "steps"),
    [
        *(("cnn7", neuron, steps) for neuron, steps in ((IF, 3), (LIF, 2), (QuantizedReLU, 1))),
        pytest.param("vgg11", LIF, 2, marks=pytest.mark.slow),
        pytest.param("resnet18", IF, 3, marks=pytest.mark.slow),
    ],
)
def test_psi_is_the_same_for_every_neuron_and_number_of_steps(name: str, neuron: Any, steps: int) -> None:
    net = zoo.create(name, neuron=neuron, steps=steps)
    example = torch.zeros(1, *net.input_shape)
    reference, over_time = trace(zoo.create(name), example), trace(net, example, steps=steps)
    assert list(over_time) == list(reference)
    assert all(torch.equal(over_time[layer].fan_out, reference[layer].fan_out) for layer in reference)
    assert over_time.dense_macs == reference.dense_macs
    assert over_time.encoder_macs == steps * reference.encoder_macs


@pytest.mark.parametrize("name", SMALLEST_FIRST)
def test_over_time_is_one_step_after_the_other_with_the_mean_of_the_logits(name: str) -> None:
    """With neurons that forget everything, each step is the network of one step."""
    torch.manual_seed(0)
    net = zoo.create(name, neuron=partial(LIF, leak=1.0), steps=3).eval()
    single = zoo.create(name).eval()
    single.load_state_dict(net.state_dict())
    images = torch.randn(2, *net.input_shape)
    with torch.no_grad(), watch(net, steps=3) as activity:
        logits = net(images)
    with torch.no_grad(), watch(single) as three_times:
        expected = single(torch.cat([images, images, images]))
    torch.testing.assert_close(logits, (expected[:2] + expected[2:4] + expected[4:]) / 3)
    for layer in three_times:
        assert torch.equal(activity[layer].flatten(0, 1), three_times[layer])


def test_with_memory_the_steps_differ() -> None:
    torch.manual_seed(0)
    net = zoo.create("cnn7", neuron=IF, steps=3)
    with torch.no_grad(), watch(net, steps=3) as activity:
        net(torch.randn(2, *net.input_shape))
    assert not torch.equal(activity["spike1"][0], activity["spike1"][1])


@pytest.mark.parametrize("neuron", [Spike, nn.ReLU, partial(Spike, 0.5)])
def test_time_without_memory_is_refused(neuron: Any) -> None:
    with pytest.raises(PicojouleError, match="steps=2 needs a neuron with a membrane"):
        zoo.create("cnn7", neuron=neuron, steps=2)
    with pytest.raises(PicojouleError, match="steps must be 1 or more, not 0"):
        zoo.create("cnn7", neuron=IF, steps=0)


def test_a_model_of_ones_own_must_take_the_steps() -> None:
    with pytest.raises(PicojouleError, match=r"torch.nn:Identity does not take steps.*present.*readout"):
        zoo.imported.build("torch.nn:Identity", steps=2)
    assert isinstance(zoo.imported.build("torch.nn:Identity", steps=1), nn.Identity)
