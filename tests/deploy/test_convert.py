"""The converted network against the quantised one, against hand counts, and what is refused."""

from __future__ import annotations

import copy
import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import prune
from typer.testing import CliRunner

import picojoule as pj
import tiny
from networks import conv_ops
from paper_networks import SMALLEST_FIRST
from picojoule import cli, zoo
from picojoule.deploy.convert import Affine, convert
from picojoule.neurons.time_steps import present

SLOW = pytest.mark.slow
each_model = pytest.mark.parametrize("name", SMALLEST_FIRST)


def settle(net: nn.Module, images: Tensor) -> nn.Module:
    """Batch norms with all their parameters away from 0 and 1, and statistics of some images."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 2.0)
            nn.init.normal_(module.bias, 0.2, 0.5)
            module.momentum = 0.7
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(images)
    return net.eval()


def counts(net: nn.Module, images: Tensor, steps: int = 1) -> tuple[dict[str, Tensor], Tensor]:
    """The spikes of each layer, summed over time, and the logits."""
    with torch.no_grad(), pj.watch(net, steps=steps) as activity:
        logits = net(images)
    return {name: activity[name].sum(0) if steps > 1 else activity[name] for name in activity}, logits


def share_of_differences(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    different = sum((one[name] != other[name]).sum().item() for name in one)
    return different / sum(spikes.numel() for spikes in one.values())


# --- The same network ------------------------------------------------------------------------------------------------


@each_model
def test_every_zoo_network_in_one_step_is_the_quantised_one(name: str) -> None:
    """In float64, where folding rounds so little that no potential passes a threshold by it."""
    torch.manual_seed(0)
    net = zoo.create(name, neuron=pj.QuantizedReLU).double()
    images = torch.randn(3, *net.input_shape).double()
    settle(net, images)
    before = {key: value.clone() for key, value in net.state_dict().items()}
    converted = convert(net, steps=1)
    (expected, logits), (spikes, converted_logits) = counts(net, images), counts(converted, images)
    assert max(s.max().item() for s in expected.values()) > 1
    assert share_of_differences(expected, spikes) == 0
    torch.testing.assert_close(logits, converted_logits)
    assert all(torch.equal(before[key], value) for key, value in net.state_dict().items())
    assert not any(isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.Dropout) for m in converted.modules())


@pytest.mark.parametrize(
    ("name", "psi"),
    [("cnn7", "exact"), pytest.param("resnet18", "exact", marks=SLOW), pytest.param("vgg11", "paper", marks=SLOW)],
)
def test_psi_is_that_of_the_quantised_network(name: str, psi: Any) -> None:
    net = zoo.create(name, neuron=pj.QuantizedReLU)
    example = torch.zeros(1, *net.input_shape)
    expected, over_time = pj.trace(net, example, psi), pj.trace(convert(net, steps=2), example, psi, steps=2)
    assert list(over_time) == list(expected)
    assert all(torch.equal(over_time[layer].fan_out, expected[layer].fan_out) for layer in expected)


def test_where_batch_norm_follows_no_convolution_a_scale_and_a_shift_remain() -> None:
    converted = convert(zoo.create("resnet18", neuron=pj.QuantizedReLU), steps=2)
    left = {name for name, module in converted.named_modules() if isinstance(module, Affine)}
    blocks = {f"stage{i}.{j}.norm1" for i in (1, 2, 3, 4) for j in (0, 1)}
    assert left == blocks | {f"stage{i}.0.skip_norm" for i in (2, 3, 4)} | {"norm"}


def test_pools_add_up_whole_spikes() -> None:
    torch.manual_seed(0)
    net = zoo.create("vgg11", neuron=pj.QuantizedReLU)
    images = torch.randn(2, *net.input_shape)
    converted = convert(settle(net, images), steps=2)
    pooled: list[Tensor] = []
    for name in ("pool1", "pool3", "pool5", "pool6"):
        converted.get_submodule(name).register_forward_hook(lambda module, args, output: pooled.append(output))
    counts(converted, images, steps=2)
    assert len(pooled) == 4
    assert all(torch.equal(values, values.round()) for values in pooled)
    assert max(values.max().item() for values in pooled) > 1


# --- Over time -------------------------------------------------------------------------------------------------------


def mlp(scale: float = 1.0) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(20, 40),
        pj.QuantizedReLU(),
        nn.Linear(40, 40),
        pj.QuantizedReLU(),
        nn.Linear(40, 40),
        pj.QuantizedReLU(),
        nn.Linear(40, 5),
    )
    for layer in net[::2]:
        nn.init.kaiming_normal_(layer.weight)
        nn.init.normal_(layer.bias, 0, 0.3 * scale)
    net[0].weight.data.mul_(scale)
    return net


def test_the_output_approaches_that_of_the_quantised_network_as_time_grows() -> None:
    """With the same current in every step, so that what the quantised network computes grows with T."""
    images = torch.randn(50, 20)
    errors = []
    for steps in (4, 16, 64, 256):
        net = mlp(scale=steps)
        expected = net(images)
        errors.append(((convert(net, steps)(images) - expected).abs().mean() / expected.abs().mean()).item())
    assert all(later < 0.6 * earlier for earlier, later in itertools.pairwise(errors)), errors
    assert errors[-1] < 0.005


@pytest.mark.parametrize("steps", [5, 10])
def test_the_first_layer_fires_as_often_in_any_number_of_steps(steps: int) -> None:
    torch.manual_seed(0)
    net = zoo.create("cnn7", neuron=pj.QuantizedReLU).double()
    images = torch.randn(3, *net.input_shape).double()
    converted = convert(settle(net, images), steps)
    expected, spikes = counts(net, images)[0]["spike1"], counts(converted, images, steps)[0]["spike1"]
    assert expected.max() > 1
    assert torch.equal(expected, spikes)


def integers(net: nn.Sequential, low: int, high: int) -> nn.Sequential:
    for parameter in net.parameters():
        parameter.data = torch.randint(low, high, parameter.shape).float()
    return net


@pytest.mark.parametrize("steps", [1, 2, 4, 8])
def test_whole_numbers_without_inhibition_come_out_exactly_in_any_number_of_steps(steps: int) -> None:
    """Powers of two divide without rounding; without inhibition it does not matter when a spike comes."""
    net = integers(mlp(), 0, 3)
    images = torch.randint(0, 4, (10, 20)).float()
    (expected, logits), (spikes, converted_logits) = counts(net, images), counts(convert(net, steps), images, steps)
    assert share_of_differences(expected, spikes) == 0
    assert torch.equal(logits, converted_logits)
    assert logits.max() > 1000


def test_whole_numbers_come_out_exactly_in_one_step() -> None:
    net = integers(mlp(), -3, 4)
    images = torch.randint(-3, 4, (10, 20)).float()
    (expected, logits), (spikes, converted_logits) = counts(net, images), counts(convert(net), images)
    assert share_of_differences(expected, spikes) == 0
    assert torch.equal(logits, converted_logits)
    assert any((s == 0).any() for s in expected.values())


def small() -> nn.Sequential:
    torch.manual_seed(2)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.BatchNorm2d(3),
        pj.QuantizedReLU(),
        nn.AvgPool2d(2),
        nn.Dropout(0.5),
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4),
        pj.QuantizedReLU(),
        nn.Flatten(),
        nn.Linear(64, 5),
    )
    settle(net, torch.randn(20, 1, 8, 8) * 3)
    return net


def by_hand(net: nn.Sequential, images: Tensor, steps: int) -> tuple[dict[str, float], list[list[float]]]:
    """Every image and step one after the other, with neither folding nor sums in place of averages; the synaptic
    operations of all images by layer, and the logits."""
    conv1, norm1, _, pool, _, conv2, norm2, _, _, fc = net
    operations, logits = {"2": 0.0, "7": 0.0}, []

    def fire(v: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        spikes = np.zeros_like(v)
        for place in np.ndindex(v.shape):
            while v[place] >= 1:
                v[place] -= 1
                spikes[place] += 1
            v[place] = max(v[place], -1.0)
        return spikes

    def current(conv: Any, norm: Any, x: Tensor) -> np.ndarray[Any, Any]:
        """What the layer makes of a T-th of the charge: the constant part of it is a T-th of that too."""
        constant = norm(conv(torch.zeros_like(x)))
        values: np.ndarray[Any, Any] = (norm(conv(x)) - constant + constant / steps).numpy()
        return values

    for image in images.split(1):
        v1, v2, total = np.zeros((1, 3, 8, 8)), np.zeros((1, 4, 4, 4)), np.zeros(5)
        for _ in range(steps):
            v1 += current(conv1, norm1, image / steps)
            s1 = fire(v1)
            # A spike before the pool is one arrival behind it, whatever weight it has there.
            arrivals = s1[0].reshape(3, 4, 2, 4, 2).sum((2, 4))
            operations["2"] += conv_ops(arrivals, 4, 3, padding=1)
            v2 += current(conv2, norm2, pool(torch.from_numpy(s1)))
            s2 = fire(v2)
            operations["7"] += s2.sum() * 5
            total += F.linear(torch.from_numpy(s2).flatten(1), fc.weight).numpy()[0] + fc.bias.numpy() / steps
        logits.append(total.tolist())
    return operations, logits


@pytest.mark.parametrize("steps", [1, 3, 5])
def test_operations_and_logits_are_those_of_a_loop_over_images_steps_and_neurons(steps: int) -> None:
    net = small().double()
    images = torch.randn(6, 1, 8, 8).double() * 3
    with torch.no_grad():
        operations, logits = by_hand(net, images, steps)
    converted = convert(net, steps)
    meter = pj.EnergyMeter(pj.trace(converted, images[:1], steps=steps))
    with torch.no_grad(), pj.watch(converted, steps=steps) as activity:
        torch.testing.assert_close(converted(images), torch.tensor(logits, dtype=torch.float64))
    meter.update(activity)
    report = meter.compute()
    assert {layer.name: layer.synops * 6 for layer in report.layers} == pytest.approx(operations)
    assert report.joules == pytest.approx(sum(operations.values()) / 6 * 0.9e-12)
    assert report.encoder_macs == steps * conv_ops(np.ones((1, 8, 8)), 3, 3, padding=1)
    assert max(spikes.max().item() for spikes in activity.values()) > 1


def test_no_image_knows_of_the_one_before() -> None:
    net, images = convert(small(), steps=4), torch.randn(6, 1, 8, 8)
    with torch.no_grad():
        assert torch.equal(net(images), net(images))
        torch.testing.assert_close(net(images)[2:3], net(images[2:3]))


def test_the_wrong_number_of_steps_is_an_error() -> None:
    net, images = convert(small(), steps=4), torch.randn(2, 1, 8, 8)
    with pytest.raises(pj.PicojouleError, match="say steps=4"):
        pj.trace(net, images)
    with pytest.raises(pj.PicojouleError, match="say steps=4"), pj.watch(net, steps=2):
        net(images)


def test_channels_last_and_bfloat16() -> None:
    net, images = small(), torch.randn(4, 1, 8, 8)
    converted = convert(net, steps=2)
    laid_out = convert(net.to(memory_format=torch.channels_last), steps=2)
    with torch.no_grad():
        expected = converted(images)
        torch.testing.assert_close(laid_out(images.contiguous(memory_format=torch.channels_last)), expected)
        with torch.autocast("cpu", torch.bfloat16), pj.watch(converted, steps=2) as activity:
            logits = converted(images)
    assert logits.isfinite().all()
    assert all(torch.equal(spikes, spikes.round()) for spikes in activity.values())


class Skips(nn.Module):
    """Sums of currents, of spikes, and of both; parts joined."""

    def __init__(self) -> None:
        super().__init__()
        self.l1, self.l2, self.l3, self.l4 = nn.Linear(6, 5), nn.Linear(5, 5), nn.Linear(10, 5), nn.Linear(5, 3)
        self.s1, self.s2, self.s3 = pj.QuantizedReLU(), pj.QuantizedReLU(), pj.QuantizedReLU()

    def forward(self, x: Tensor) -> Tensor:
        first = self.s1(self.l1(x))
        second = self.s2(self.l2(first) + first)
        third = self.s3(self.l3(torch.cat([first, second], dim=1)))
        out: Tensor = self.l4(third + second)
        return out


@pytest.mark.parametrize("steps", [1, 4])
def test_skips_sums_and_joined_parts(steps: int) -> None:
    torch.manual_seed(0)
    net = Skips()
    for parameter in net.parameters():
        parameter.data = torch.randint(0, 3, parameter.shape).float()
    images = torch.randint(0, 4, (10, 6)).float()
    (expected, logits), (spikes, converted_logits) = counts(net, images), counts(convert(net, steps), images, steps)
    assert share_of_differences(expected, spikes) == 0
    assert torch.equal(logits, converted_logits)


# --- What is refused -------------------------------------------------------------------------------------------------


class Calls(nn.Module):
    """One layer of synapses, a neuron, and any function of the spikes."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.fc, self.spike, self.out = nn.Linear(4, 4), pj.QuantizedReLU(), nn.Linear(4, 2)
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, self.spike(self.fc(x)))


def after(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), pj.QuantizedReLU(), *layers)


def pruned() -> nn.Sequential:
    net = after(nn.Flatten(), nn.Linear(8, 2))
    prune.l1_unstructured(net[3], "weight", 0.5)
    return net


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "spike": (after(nn.Flatten(), pj.Spike()), r"cannot take the layer '3' \(Spike\): .*neuron.kind = 'qrelu'"),
    "if": (after(nn.Flatten(), pj.IF(steps=1)), r"'3' \(IF\).*'qrelu'"),
    "relu": (after(nn.Conv2d(2, 2, 1), nn.ReLU()), r"'3' \(ReLU\).*'qrelu'"),
    "max pool": (after(nn.MaxPool2d(2)), r"'2' \(MaxPool2d\).*use nn.AvgPool2d"),
    "adaptive pool": (after(nn.AdaptiveAvgPool2d(1)), r"'2' \(AdaptiveAvgPool2d\).*use nn.AvgPool2d"),
    "uneven pool": (after(nn.AvgPool2d(2, ceil_mode=True)), r"'2' \(AvgPool2d\), whose windows have"),
    "border": (
        after(nn.AvgPool2d(3, padding=1, count_include_pad=False)),
        r"'2' \(AvgPool2d\), whose windows have",
    ),
    "layer norm": (after(nn.LayerNorm(4)), r"'2' \(LayerNorm\).*must be a convolution"),
    "norm of spikes": (
        after(nn.BatchNorm2d(2)),
        r"'2' \(.*\), a batch norm of spikes: put it before the neuron",
    ),
    "statistics": (
        nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False), pj.QuantizedReLU()),
        r"'1' \(BatchNorm1d\), whose statistics are those of the batch",
    ),
    "pruned": (pruned(), r"'3' \(Linear\), whose weights are computed from others.*prune.remove"),
    "pool into a neuron": (
        after(nn.AvgPool2d(2), pj.QuantizedReLU()),
        r"'3' \(.*\), which pooled spikes feed",
    ),
    "pool at the end": (after(nn.AvgPool2d(2)), "output, which is pooled spikes"),
    "flattened batch": (after(nn.Flatten(0)), r"'2' \(Flatten\), which goes along the batch"),
    "twice": (
        Calls(lambda net, s: net.out(s) + net.out(s)),
        r"'out' \(Linear\), which is used at two places",
    ),
    "constant": (Calls(lambda net, s: net.out(s) + 1), "'add' .*, which takes a constant: .*bias"),
    "product": (Calls(lambda net, s: net.out(s) * 2), "the operation 'mul'"),
    "function": (Calls(lambda net, s: F.softmax(net.out(s), 1)), "the operation 'softmax'"),
    "mean of spikes": (Calls(lambda net, s: s.mean(1)), "'mean' .*, which takes spikes: use nn.AvgPool2d"),
    "mean of all": (Calls(lambda net, s: net.out(s).mean()), "'mean' .*, which goes along the batch"),
    "batch": (Calls(lambda net, s: net.out(s).sum(0)), "'sum' .*, which goes along the batch"),
    "joined batch": (Calls(lambda net, s: torch.cat([net.out(s), s])), "'cat' .*, which goes along the batch"),
    "weights": (
        Calls(lambda net, s: net.out(s) + net.out.bias),
        "the tensor 'out.bias', which is used outside",
    ),
    "two outputs": (Calls(lambda net, s: (net.out(s), s)), "output, which is several things"),
    "decision": (Calls(lambda net, s: s if s.sum() > 0 else net.out(s)), "cannot follow the forward pass of Calls"),
    "norm of rows": (
        nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(3), pj.QuantizedReLU()),
        r"'1' \(BatchNorm1d\), a batch norm behind a linear layer that takes more than \[batch, features\]",
    ),
    "no neuron": (nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "Sequential has no quantised ReLU"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_converted_is_refused_by_name(case: str) -> None:
    net, sentence = REFUSED[case]
    with pytest.raises(pj.PicojouleError, match=sentence):
        convert(net, steps=2)


def test_a_norm_of_as_many_rows_as_features_is_refused_when_it_is_met() -> None:
    """By its size it could be the norm of the features, into which it would be folded."""
    net = nn.Sequential(nn.Linear(6, 3), nn.BatchNorm1d(3), pj.QuantizedReLU(), nn.Flatten(), nn.LazyLinear(2))
    rows, features = torch.randn(5, 3, 6), torch.randn(5, 6)
    for images, fits in ((rows, False), (features, True)):
        usual = settle(copy.deepcopy(net), images)
        converted = convert(usual, steps=1)
        if fits:
            torch.testing.assert_close(converted(images), usual(images))
            continue
        with pytest.raises(pj.PicojouleError, match=r"'1', a batch norm behind a linear layer that takes more than"):
            converted(images)


@pytest.mark.parametrize(
    "function",
    [
        lambda net, s: torch.mean(input=net.out(s), axis=1),
        lambda net, s: torch.sum(input=net.out(s), dim=(1,)),
        lambda net, s: net.out(torch.flatten(input=s, start_dim=1)),
        lambda net, s: torch.cat([net.out(s), s], axis=1),
        lambda net, s: torch.cat(tensors=(net.out(s), s), dim=1),
    ],
)
def test_arguments_may_be_named(function: Any) -> None:
    torch.manual_seed(0)
    net, images = Calls(function).eval(), 3 * torch.randn(5, 4)
    torch.testing.assert_close(convert(net, steps=1)(images), net(images))
    assert convert(net, steps=3)(images).shape == net(images).shape


def test_layers_that_leave_nothing_of_themselves_may_be_used_at_two_places() -> None:
    torch.manual_seed(0)
    drop, flat = nn.Dropout(0.5), nn.Flatten()
    layers = (nn.Linear(4, 6), pj.QuantizedReLU(), drop, flat, nn.Linear(6, 6), pj.QuantizedReLU(), drop, flat)
    net, images = nn.Sequential(*layers, nn.Linear(6, 2)).eval(), 3 * torch.randn(5, 4)
    torch.testing.assert_close(convert(net, steps=1)(images), net(images))


def test_a_norm_without_parameters_folds_into_a_linear_layer() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, affine=False), pj.QuantizedReLU(), nn.Linear(6, 2))
    images = 3 * torch.randn(5, 4)
    net.train()(images)
    torch.testing.assert_close(convert(net.eval(), steps=1)(images), net(images))


def test_mixed_pools_and_several_inputs_are_refused() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.c1, self.spike, self.pool, self.c2 = (
                nn.Conv2d(1, 1, 1),
                pj.QuantizedReLU(),
                nn.AvgPool2d(2),
                nn.Conv2d(1, 1, 2, 2),
            )

        def forward(self, x: Tensor) -> Tensor:
            spikes = self.spike(self.c1(x))
            out: Tensor = self.pool(spikes) + self.c2(spikes)
            return out

    class Two(Calls):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:  # type: ignore[override]
            out: Tensor = self.out(self.spike(self.fc(x) + y))
            return out

    with pytest.raises(pj.PicojouleError, match=r"'add' .*, which takes pooled spikes and something else"):
        convert(Mixed())
    with pytest.raises(pj.PicojouleError, match="the input 'y', one of several inputs"):
        convert(Two(None))


@pytest.mark.parametrize("steps", [0, 1.5, True])
def test_steps_that_are_no_number_of_them_are_refused(steps: Any) -> None:
    with pytest.raises(pj.PicojouleError, match="not a valid number of time steps"):
        convert(small(), steps)


# --- Runs ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    recipe = tiny.recipe("neuron.kind=qrelu", "penalty.strength=0", "data.limit=600", "training.epochs=5")
    return pj.fit(recipe, tmp_path_factory.mktemp("runs"))


@pytest.mark.slow
def test_a_run_is_measured_as_the_network_that_it_converts_to(run: pj.Run) -> None:
    quantised = pj.evaluate(run)
    assert quantised.to_dict() == run.result.test.to_dict()
    once, five = (pj.evaluate(run, convert_steps=steps) for steps in (1, 5))
    assert once.energy is not None
    assert quantised.energy is not None
    assert five.energy is not None
    assert once.energy.synops == pytest.approx(quantised.energy.synops, rel=1e-3)
    assert once.accuracy == pytest.approx(quantised.accuracy, abs=0.01)
    assert five.to_dict()["steps"] == five.energy.steps == 5
    assert five.to_dict().keys() == quantised.to_dict().keys()
    assert five.energy.encoder_macs == 5 * quantised.energy.encoder_macs
    assert five.ann_joules == quantised.ann_joules
    assert five.accuracy > 0.5

    converted = convert(pj.load_model(run), steps=5)
    data = pj.data.load("digits", limit=600)
    images = torch.cat([batch for batch, _ in pj.data.Batches(data.test, 64, data.normalization)])
    spikes, _ = counts(converted, images, steps=5)
    operations = sum(conv_ops(image.numpy(), 8, 3, stride=2) for image in spikes["spike1"])
    operations += spikes["spike2"].sum().item() * 10
    assert five.energy.synops == pytest.approx(operations / len(images))


def test_the_command_line_measures_it_too(run: pj.Run) -> None:
    result = CliRunner().invoke(cli.app, ["evaluate", str(run.path), "--trust", "--convert-steps", "5", "--json"])
    document, expected = json.loads(result.stdout), pj.evaluate(run, convert_steps=5).to_dict()
    assert {key: document[key] for key in expected} == expected
    assert document.keys() - expected.keys() == {"parameters", "weight_bytes", "peak_activation_bytes"}


def test_a_run_without_quantised_relus_is_refused(tmp_path: Path) -> None:
    spiking = pj.fit(tiny.recipe("training.epochs=1"), tmp_path)
    with pytest.raises(pj.PicojouleError, match=r"no quantised ReLU.*neuron.kind = 'qrelu'"):
        pj.evaluate(spiking, convert_steps=5)


def test_the_steps_share_the_image() -> None:
    """The network's own input: its first layer must see a fifth of every image in each of five steps."""
    net, images = small(), torch.randn(3, 1, 8, 8)
    converted = convert(net, steps=5)
    seen: list[Tensor] = []
    converted.get_submodule("0").register_forward_pre_hook(lambda module, args: seen.append(args[0]))
    converted(images)
    assert torch.equal(seen[0], present(images, 5, shared=True))
