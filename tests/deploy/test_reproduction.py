"""Nothing is given out that does something else than the network: engines, exported files and conversions of layers
that do more than they show either do it too or are refused by name."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import nir_reader
import picojoule as pj
from against_pytorch import agree
from agreement import onnx_executor
from odd_layers import BEHAVED, COMPUTED, LAYER, NEURON, ODD, SHAPE, network
from picojoule.deploy import events
from picojoule.deploy.convert import convert
from picojoule.deploy.events import synapses
from picojoule.deploy.export import to_nir, to_onnx
from picojoule.deploy.export.nir import builder
from picojoule.deploy.reproduction import Executed, difference, probes

Answer = Callable[[nn.Module, Tensor], Tensor]


def by_events(net: nn.Module, images: Tensor) -> Tensor:
    return agree(net, images, flipped=0.0)(images).logits  # spikes and operations too


def by_nir(net: nn.Module, images: Tensor) -> Tensor:
    return torch.from_numpy(nir_reader.execute(to_nir(net, images), images.numpy())["output"])


def by_onnx(net: nn.Module, images: Tensor) -> Tensor:
    return torch.from_numpy(onnx_executor(to_onnx(net, images), [])(images.numpy(), None)["logits"])


def by_conversion(net: nn.Module, images: Tensor) -> Tensor:
    converted: Tensor = convert(net, steps=1)(images)
    return converted


WAYS: dict[str, Answer] = {"events": by_events, "nir": by_nir, "onnx": by_onnx, "convert": by_conversion}


def of(way: str) -> nn.Sequential:
    return network(pj.QuantizedReLU) if way == "convert" else network()


def answer_or_refusal(way: Answer, net: nn.Module, images: Tensor) -> Tensor | str:
    try:
        return way(net, images)
    except pj.PicojouleError as refusal:
        return str(refusal)


@pytest.mark.parametrize(
    "way", [pytest.param(way, marks=pytest.mark.slow if way in ("nir", "onnx") else ()) for way in WAYS]
)
@pytest.mark.parametrize("name", ODD)
def test_odd_layers_are_reproduced_or_refused(name: str, way: str) -> None:
    net, images = of(way), torch.randn(60, *SHAPE)
    with torch.no_grad():
        plain = net(images)
    with torch.no_grad(), ODD[name](net):
        expected = net(images)
        assert (name, way) == ("derived neuron", "convert") or not torch.allclose(plain, expected, atol=1e-2)
        answer = answer_or_refusal(WAYS[way], net, images)
    if isinstance(answer, Tensor):
        off = ((answer - expected).abs() > 1e-3).any(1)
        assert off.sum() <= 1, "more than a spike on its threshold"
    else:
        assert name not in COMPUTED or way == "convert", answer
        named = [f"'{LAYER}", f"'{NEURON}", "'2'", "'4'", "Sequential", "for all modules"]
        assert any(part in answer for part in named), answer
        assert not {"\n", "\x1b"} & set(answer)


@pytest.mark.parametrize("name", BEHAVED)
def test_what_is_not_in_weights_is_refused_by_the_engine(name: str) -> None:
    net = network()
    with BEHAVED[name](net), pytest.raises(pj.PicojouleError):
        events.compile(net, torch.zeros(1, *SHAPE))


def silent_at_first(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
    return torch.where(output > 1e6, 0.0, output)


def test_a_hook_that_acts_on_no_sample_is_refused_too() -> None:
    net = network()
    net[3].register_forward_hook(silent_at_first)
    with pytest.raises(pj.PicojouleError, match=r"'3' \(Linear\), which has forward hooks: remove them"):
        events.compile(net, torch.zeros(1, *SHAPE))


class Around(nn.Module):
    """The network with something around it."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.net, self.around, self.calls = network(), forward, 0

    def forward(self, x: Tensor) -> Tensor:
        return self.around(self, x)


def in_autocast(self: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        answer: Tensor = self.net(x)
    return answer


LOW: dict[str, tuple[nn.Module, torch.dtype]] = {
    "bfloat16": (network().bfloat16(), torch.bfloat16),
    "half": (network().half(), torch.float16),
    "rounded input": (Around(lambda self, x: self.net(x.bfloat16().float())), torch.float32),
    "rounded output": (Around(lambda self, x: self.net(x).half()), torch.float32),
    "autocast": (Around(in_autocast), torch.float32),
}


@pytest.mark.parametrize("way", [events.compile, to_nir])
@pytest.mark.parametrize("name", LOW)
def test_fewer_digits_than_those_of_float32_are_refused(name: str, way: Callable[..., object]) -> None:
    """Where the rounding decides about spikes, float32 is another network."""
    net, dtype = LOW[name]
    with pytest.raises(pj.PicojouleError) as refusal:
        way(net.eval(), torch.randn(4, *SHAPE).to(dtype))
    if (name, way) != ("autocast", events.compile):  # which its graph does not show, so that it gives other numbers
        assert "in float32 and this network, or a part of it, in" in str(refusal.value)
        assert ".float()" in str(refusal.value)
    assert "\n" not in str(refusal.value)


def counting(self: Any, x: Tensor) -> Tensor:
    self.calls += 1
    answer: Tensor = self.net(x) * self.calls
    return answer


@pytest.mark.parametrize("way", [to_nir, pytest.param(to_onnx, marks=pytest.mark.slow)])
def test_what_is_no_function_of_its_input_is_not_exported(way: Callable[..., object]) -> None:
    with pytest.raises(pj.PicojouleError, match="its second forward pass gives another output than its first"):
        way(Around(counting).eval(), torch.zeros(1, *SHAPE))


@pytest.mark.parametrize("way", [to_nir, pytest.param(to_onnx, marks=pytest.mark.slow)])
def test_a_network_that_treats_a_single_image_otherwise_is_not_exported(way: Callable[..., object]) -> None:
    net = Around(lambda self, x: self.net(x) if x.shape[0] == 1 else 2 * self.net(x))
    with pytest.raises(pj.PicojouleError, match="for a batch of one, its output is off by"):
        way(net.eval(), torch.zeros(1, *SHAPE))


def test_weights_that_the_forward_pass_makes_are_those_of_the_nir_graph() -> None:
    images = torch.randn(9, *SHAPE)
    net = Around(lambda self, x: nn.functional.linear(self.net(x), torch.full((5, 3), 0.5), torch.ones(5))).eval()
    torch.testing.assert_close(by_nir(net, images), net(images).detach(), rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------- what is made is compared


def test_an_engine_with_other_weights_is_refused_by_the_first_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    real = synapses.floats

    def wrong(tensor: Tensor) -> Any:
        return real(tensor) * np.float32(0.9) if len(tensor) == 12 else real(tensor)

    monkeypatch.setattr(synapses, "floats", wrong)
    with pytest.raises(pj.PicojouleError, match=r"does not reproduce Sequential \(the layer '5' emits other spikes"):
        events.compile(network(), torch.zeros(1, *SHAPE))
    with pytest.raises(pj.PicojouleError, match="the layer '5' emits other spikes"):
        events.compile(network(), torch.zeros(1, *SHAPE), weights="int8")


@pytest.mark.parametrize("weights", ["float32", "int8"])
def test_an_engine_that_counts_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch, weights: Any) -> None:
    net = network()
    prune.random_unstructured(net[3], "weight", 0.5)
    real = synapses._fans
    monkeypatch.setattr(synapses, "_fans", lambda mask: [count + 1 for count in real(mask)])
    with pytest.raises(pj.PicojouleError, match=r"counts other synaptic operations than ψ"):
        events.compile(net, torch.zeros(1, *SHAPE), weights=weights)


@pytest.mark.slow
def test_a_file_of_another_network_is_not_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = tmp_path / "net.nir"
    old.write_text("before")
    real = builder.float32_array
    monkeypatch.setattr(builder, "float32_array", lambda tensor: real(tensor) * np.float32(0.8))
    with pytest.raises(pj.PicojouleError, match=r"NIR export does not reproduce Sequential \(the layer '1' emits"):
        pj.export.write(network(), torch.zeros(1, *SHAPE), "nir", old)
    with pytest.raises(pj.PicojouleError, match="the layer '1' emits"):
        to_nir(network(), torch.zeros(1, *SHAPE))
    export = torch.onnx.export

    def other(model: nn.Module, *arguments: Any, **settings: Any) -> Any:
        changed: Any = copy.deepcopy(model)
        nn.init.zeros_(changed[6].bias)
        return export(changed, *arguments, **settings)

    monkeypatch.setattr(torch.onnx, "export", other)
    with pytest.raises(pj.PicojouleError, match=r"ONNX export does not reproduce Sequential \(its output is off by"):
        pj.export.write(network(), torch.zeros(1, *SHAPE), "onnx", tmp_path / "net.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["net.nir"]
    assert old.read_text() == "before"


@pytest.mark.slow
def test_without_onnxruntime_the_reference_executes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    net = network()
    to_onnx(net, torch.zeros(1, *SHAPE))
    executed: list[Executed] = []
    monkeypatch.setattr(
        "picojoule.deploy.export.onnx.refuse_difference", lambda m, x, what, execute: executed.append(execute(x))
    )
    images = torch.randn(3, *SHAPE)
    to_onnx(net, images)
    torch.testing.assert_close(executed[0].output, net(images).detach())
    assert list(executed[0].spikes) == ["1", "5"]


@pytest.mark.slow
def test_a_layer_that_has_the_name_of_the_output() -> None:
    net = nn.Sequential()
    for name, part in {"first": nn.Linear(4, 3), "logits": pj.Spike(0.1), "images": nn.Linear(3, 2)}.items():
        net.add_module(name, part)
    images = torch.randn(7, 4)
    torch.testing.assert_close(by_onnx(net, images), net(images).detach())


# --------------------------------------------------------------------------------------------------------- the measure


def chain() -> nn.Sequential:
    """Potentials are what comes in; the second layer sees twice the first one's spikes."""
    net = nn.Sequential(nn.Linear(4, 4, bias=False), pj.Spike(1.0), nn.Linear(4, 4, bias=False), pj.Spike(1.0))
    for layer, size in ((net[0], 1.0), (net[2], 2.0)):
        with torch.no_grad():
            layer.weight.copy_(size * torch.eye(4))
    return net.eval()


def other_than(changes: dict[str, tuple[int, ...]]) -> Callable[[Tensor], Executed]:
    """A program that runs the chain, but flips some neurons of the first sample, and what follows from them."""
    net = chain()

    def execute(images: Tensor) -> Executed:
        spikes, x = {}, images
        for name, layer in net.named_children():
            x = layer(x).detach().clone()
            if name in changes:
                x[0, list(changes[name])] = 1 - x[0, list(changes[name])]
            if isinstance(layer, pj.Spike):
                spikes[name] = [x]
        return Executed(x, spikes)

    return execute


def test_only_on_the_threshold_a_spike_may_differ() -> None:
    images = torch.tensor([[1.0, 0.99999, 0.5, 2.0]])
    assert difference(chain(), images, other_than({})) is None
    assert difference(chain(), images, other_than({"1": (0,)})) is None, "and what follows from it is right"
    assert difference(chain(), images, other_than({"1": (1,)})) is None
    for far in (2, 3):
        found = difference(chain(), images, other_than({"1": (far,)}))
        assert found == "the layer '1' emits other spikes (1 of 4)"
    assert difference(chain(), images, other_than({"1": (0,), "3": (2,)})) == (
        "the layer '3' emits other spikes (1 of 4)"
    )


@pytest.mark.parametrize("shift", [1e-2, -1e-2, torch.nan, torch.inf])
def test_outputs_are_compared(shift: float) -> None:
    def execute(images: Tensor) -> Executed:
        return Executed(net(images).detach() + shift, {})

    net = nn.Sequential(nn.Linear(4, 2))
    found = difference(net, torch.ones(3, 4), execute)
    assert found is not None
    assert found.startswith("its output is off by")


def test_shapes_and_calls_are_compared() -> None:
    net, images = chain(), torch.ones(2, 4)
    output = net(images).detach()
    cases: dict[str, Executed] = {
        "emits (2, 3) instead of (2, 4)": Executed(output, {"1": [torch.zeros(2, 3)]}),
        "fires 2 times instead of 1": Executed(output, {"1": [output, output]}),
        "shape (2, 5) instead of (2, 4)": Executed(torch.zeros(2, 5), {}),
    }
    for sentence, executed in cases.items():
        found = difference(net, images, lambda x, executed=executed: executed)
        assert found is not None
        assert sentence in found


def test_values_that_move_with_the_potential_are_not_taken_for_ties() -> None:
    """A hook makes spikes analog: each moves a little with its potential, and none is what the program emits."""
    net = chain()
    net[1].register_forward_hook(lambda module, inputs, output: output + 0.1 * inputs[0])
    found = difference(net, torch.tensor([[0.3, 0.5, 2.0, 3.0]]), other_than({}))
    assert found == "the layer '1' emits other spikes (4 of 4)"


def test_samples_are_noise_and_the_example() -> None:
    example = torch.rand(9, 3)
    images = probes(example)
    assert torch.equal(images[-4:], example[:4])
    assert torch.equal(images, probes(example))
    assert images[:-4].std() > 1
    assert probes(torch.ones(1, 3, dtype=torch.long)).dtype == torch.long


@pytest.mark.parametrize("way", ["events", "nir", pytest.param("onnx", marks=pytest.mark.slow)])
def test_the_network_is_left_as_it_was(way: str) -> None:
    net = network().train()
    with COMPUTED["weight norm, old"](net):
        before = {name: value.clone() for name, value in net.state_dict().items()}
        stale, value = net[3].weight, net[3].weight.detach().clone()
        hooks = [dict(module._forward_hooks) | dict(module._forward_pre_hooks) for module in net.modules()]
        randomness = torch.get_rng_state()
        example = torch.zeros(1, *SHAPE)
        {"events": events.compile, "nir": to_nir, "onnx": to_onnx}[way](net, example)  # type: ignore[operator]
        assert torch.equal(torch.get_rng_state(), randomness)
        assert all(module.training for module in net.modules())
        assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())
        assert net[3].weight is stale
        assert torch.equal(stale, value)
        after = [dict(module._forward_hooks) | dict(module._forward_pre_hooks) for module in net.modules()]
        assert after == hooks
