"""Networks that raise when something made of them is executed, or compared with them, end in one sentence."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import nir_reader
import picojoule as pj
from picojoule.deploy import events
from picojoule.deploy.convert import convert
from picojoule.deploy.export import to_nir, to_onnx

EXPORTS = (to_nir, to_onnx)


class Net(nn.Module):
    def __init__(self, head: Callable[[Any, Tensor], Tensor], neuron: Callable[[], nn.Module] = pj.Spike) -> None:
        super().__init__()
        self.first, self.fire, self.last, self.head = nn.Linear(4, 6), neuron(), nn.Linear(6, 3), head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self, self.fire(self.first(x)))


def trained_for_quantization() -> nn.Module:
    from torch.ao.nn import qat

    torch.manual_seed(0)
    inner = nn.Linear(6, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        inner.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
        layer = qat.Linear.from_float(inner)
        layer(torch.randn(3, 6))
    layer.apply(torch.ao.quantization.disable_observer)
    return nn.Sequential(nn.Linear(4, 6), pj.Spike(0.1), layer, pj.Spike(0.1), nn.Linear(5, 3)).eval()


def test_layers_trained_for_quantisation_reach_nir_with_their_rounded_weights() -> None:
    net, images = trained_for_quantization(), torch.randn(40, 4)
    answer = torch.from_numpy(nir_reader.execute(to_nir(net, images[:1]), images.numpy())["output"])
    off = (answer - net(images).detach()).abs() > 1e-4
    assert off.any(1).sum() <= 1, "more than a spike on its threshold"
    rounded = net[2].weight_fake_quant(net[2].weight).detach()
    assert not torch.equal(rounded, net[2].weight)
    torch.testing.assert_close(torch.from_numpy(to_nir(net, images).nodes["2"].weight), rounded, rtol=0, atol=0)


@pytest.mark.slow
def test_elsewhere_they_are_refused_by_name() -> None:
    net = trained_for_quantization()
    with pytest.raises(pj.PicojouleError, match=r"'aten._fused_moving_avg\w+', which has no counterpart in ONNX"):
        to_onnx(net, torch.zeros(1, 4))
    with pytest.raises(pj.PicojouleError, match=r"'2' \(Linear\), which has another forward pass"):
        events.compile(net, torch.zeros(1, 4))


def test_weights_are_computed_in_the_type_of_the_network() -> None:
    """In doubles these round to other steps, and some of PyTorch's operations take no doubles at all."""
    torch.manual_seed(0)
    net = Net(lambda n, z: F.linear(z, (n.last.weight * 0.7 / 0.1).round() * 0.1)).eval()
    with torch.no_grad():
        net.last.weight.copy_(torch.randint(-9, 9, (3, 6)) * 0.5 / 7)  # halves, but for rounding
        expected = (net.last.weight * 0.7 / 0.1).round() * 0.1
    graph = to_nir(net, torch.zeros(1, 4))
    (last,) = (node for name, node in graph.nodes.items() if getattr(node, "weight", torch.zeros(0)).shape == (3, 6))
    assert torch.equal(torch.from_numpy(last.weight), expected)


def fails_on_large_batches(n: Any, z: Tensor) -> Tensor:
    if not torch.compiler.is_compiling() and z.shape[0] > 3:
        raise KeyError("too\nmany")
    answer: Tensor = n.last(z)
    return answer


@pytest.mark.parametrize("way", EXPORTS)
def test_a_network_that_fails_where_it_is_compared(way: Callable[..., object]) -> None:
    with pytest.raises(
        pj.PicojouleError, match=r"fails in evaluation mode on a batch of 7 \(KeyError: .*\), so"
    ) as end:
        way(Net(fails_on_large_batches).eval(), torch.zeros(1, 4))
    assert "\n" not in str(end.value)


def test_an_operation_on_constants_that_fails() -> None:
    net = Net(lambda n, z: n.last(z) @ torch.linalg.cholesky(n.matrix)).eval()
    net.register_buffer("matrix", -torch.eye(3))
    with pytest.raises(pj.PicojouleError, match=r"'linalg_cholesky' .*, which fails outside of the network") as end:
        to_nir(net, torch.zeros(1, 4))
    assert "\n" not in str(end.value)


@pytest.mark.filterwarnings("ignore:Complex modules")
def test_complex_weights() -> None:
    with pytest.raises(pj.PicojouleError, match="cannot express the operation 'linear' in the layer 'first', which"):
        to_nir(Net(lambda n, z: n.last(z)).to(torch.complex64).eval(), torch.zeros(1, 4))


@pytest.mark.parametrize("way", [to_nir, events.compile])
def test_a_division_by_zero(way: Callable[..., object]) -> None:
    with pytest.raises(pj.PicojouleError, match=r"division by zero|values that are not numbers"):
        way(Net(lambda n, z: n.last(z / 0)).eval(), torch.zeros(1, 4))


def test_weights_that_are_not_numbers() -> None:
    net = Net(lambda n, z: n.last(z)).eval()
    with torch.no_grad():
        net.last.weight[0, 0] = torch.nan
    with pytest.raises(
        pj.PicojouleError, match=r"values that are not numbers \(nan\).*weights and statistics that are"
    ):
        events.compile(net, torch.zeros(1, 4))


@pytest.mark.parametrize("way", EXPORTS)
def test_nothing_but_the_sentence_is_printed(way: Callable[..., object], capfd: pytest.CaptureFixture[str]) -> None:
    net = Net(lambda n, z: n.last(z)).eval()
    net.last.weight.data = net.last.weight.data[:, :2]
    with pytest.raises(pj.PicojouleError, match="same reduction dim"):
        way(net, torch.zeros(1, 4))
    assert capfd.readouterr().err == ""


def test_a_network_that_cannot_be_copied_is_not_converted() -> None:
    net = Net(lambda n, z: n.last(z), pj.QuantizedReLU)
    net.twice = net.first.weight * 2
    with pytest.raises(pj.PicojouleError, match="Net cannot be copied"):
        convert(net)
