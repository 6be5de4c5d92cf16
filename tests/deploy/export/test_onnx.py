"""ONNX files, executed by onnxruntime, do what the network does, for any batch size."""

from __future__ import annotations

import io
from pathlib import Path

import onnx
import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
import tiny
from agreement import compare, lived_in, onnx_executor
from networks import CASES
from picojoule.deploy.export import to_nir, to_onnx
from picojoule.runs.model import build_model

SLOW = pytest.mark.slow  # an export takes a second


def layers_of(net: nn.Module) -> list[str]:
    return [name for name, module in net.named_modules() if isinstance(module, pj.Spike)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "samples"), [("cnn7", 100), ("vgg11", 8), ("resnet18", 10)])
def test_every_network_of_the_zoo(name: str, samples: int) -> None:
    net = pj.zoo.create(name)
    images = torch.randn(samples, *net.input_shape)
    lived_in(net, images)
    found = compare(net, onnx_executor(to_onnx(net, images[:1]), layers_of(net)), images)
    print(name, found)
    assert found.wrong == 0
    assert found.flipped <= found.near / 20


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name == "residual" else SLOW) for name in CASES])
def test_the_networks_of_the_other_tests(name: str) -> None:
    case = CASES[name]
    net, images = case.build().eval(), case.inputs(40)
    execute = onnx_executor(to_onnx(net, images[:1]), layers_of(net))
    found = compare(net, execute, images)
    assert (found.wrong, found.same_class) == (0, 40)
    for samples in (1, 2, 7):
        part = images[:samples]
        torch.testing.assert_close(torch.from_numpy(execute(part.numpy(), None)["logits"]), net(part).detach())


@pytest.mark.slow
def test_nothing_of_the_machine_is_in_the_file() -> None:
    net = CASES["pooled"].build()
    content = to_onnx(net, torch.zeros(1, *CASES["pooled"].input_shape))
    assert content == to_onnx(net, torch.zeros(1, *CASES["pooled"].input_shape))
    for trace_of in (str(Path(pj.__file__).parents[1]), str(Path(torch.__file__).parent), "stack_trace", ".py"):
        assert trace_of.encode() not in content
    model = onnx.load_model(io.BytesIO(content))
    onnx.checker.check_model(model, full_check=True)
    (images,), (logits,) = model.graph.input, model.graph.output
    assert (images.name, logits.name) == ("images", "logits")
    assert images.type.tensor_type.shape.dim[0].dim_param == "batch"


def test_the_spikes_at_the_end_keep_the_name_of_the_output() -> None:
    net = nn.Sequential(nn.Linear(3, 4), pj.Spike(0.1))
    model = onnx.load_model(io.BytesIO(to_onnx(net, torch.zeros(1, 3))))
    assert [out.name for out in model.graph.output] == ["logits"]


class Fickle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.spike = pj.Spike()

    def forward(self, x: Tensor) -> Tensor:
        s: Tensor = self.spike(x)
        return s if x.sum() > 0 else x


def test_what_cannot_be_followed_is_refused() -> None:
    with pytest.raises(pj.PicojouleError, match=r"torch\.export cannot follow the forward pass of Fickle"):
        to_onnx(Fickle(), torch.zeros(1, 3))


class FixesItsBatch(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)
        return y * len(x)


@pytest.mark.slow
def test_a_fixed_batch_size_is_refused() -> None:
    with pytest.raises(pj.PicojouleError, match="FixesItsBatch fixes the size of the batch"):
        to_onnx(FixesItsBatch(nn.Linear(3, 3), pj.Spike()), torch.zeros(1, 3))


@pytest.mark.parametrize(
    "kind", [pytest.param("if", marks=SLOW), "lif", pytest.param("qrelu", marks=SLOW), pytest.param("relu", marks=SLOW)]
)
def test_other_neurons(kind: str) -> None:
    """What NIR has no node for: neurons over time, and networks that do not spike."""
    over_time = ["model.name=tiny:over_time", "neuron.steps=3"] if kind in ("if", "lif") else []
    net = build_model(tiny.recipe(f"neuron.kind={kind}", "penalty.strength=0", *over_time), trust=True)
    images = torch.rand(5, 1, 32, 32)
    lived_in(net, images)
    with torch.no_grad():
        expected = net(images)
    logits = onnx_executor(to_onnx(net, images[:1]), [])(images.numpy(), None)["logits"]
    torch.testing.assert_close(torch.from_numpy(logits), expected)
    with pytest.raises(pj.PicojouleError, match="or export to ONNX"):
        to_nir(net, images[:1])


@pytest.mark.slow
def test_two_outputs_are_refused() -> None:
    class Two(nn.Sequential):
        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            y = super().forward(x)
            return y, x + y

    with pytest.raises(pj.PicojouleError, match="one tensor"):
        to_onnx(Two(nn.Linear(3, 3), pj.Spike()), torch.zeros(1, 3))
