"""Networks whose layers skip silence: same answers, gradients and state dict, and the dense path where it is due."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import picojoule as pj
from picojoule.errors import PicojouleError
from picojoule.kernels.event_driven import layers
from picojoule.kernels.event_driven.layers import choices

pytestmark = pytest.mark.usefixtures("known_costs")


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding="same"),
        nn.BatchNorm2d(24),
        pj.Spike(threshold=2),
        nn.AvgPool2d(2),
        nn.Conv2d(24, 40, (3, 2), stride=(1, 2), groups=2),
        nn.BatchNorm2d(40),
        pj.Spike(),
        nn.Dropout(0.0),
        nn.Flatten(2),
        nn.Conv1d(40, 16, 3, dilation=2),
        nn.BatchNorm1d(16),
        pj.Spike(),
        nn.Flatten(),
        nn.Linear(16 * 20, 5),
    )


def images() -> Tensor:
    return torch.randn(6, 1, 16, 16, generator=torch.Generator().manual_seed(1))


def spikes(*shape: int) -> Tensor:
    return (torch.rand(*shape, generator=torch.Generator().manual_seed(2)) < 0.1).float()


def gradients(net: nn.Module) -> dict[str, Tensor]:
    net.zero_grad()
    y = net(images())
    y.square().mean().backward()
    found = {name: p.grad.clone() for name, p in net.named_parameters() if p.grad is not None}
    return {"output": y.detach(), **found}


def event_calls(net: nn.Module) -> list[int]:
    return [choice.event_calls for choice in choices(net).values()]


# --- The same ---------------------------------------------------------------------------------------------------------


def test_the_same_gradients_and_state_dict() -> None:
    net = network()
    expected, state = gradients(copy.deepcopy(net)), copy.deepcopy(net.state_dict())
    assert pj.sparse(net) is net
    assert net.state_dict().keys() == state.keys()
    found = gradients(net)
    assert event_calls(net) == [0, 1, 1, 1]
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-5)
    net.load_state_dict(state)


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_bfloat16_under_autocast(kind: torch.dtype) -> None:
    layer = nn.Conv2d(24, 40, 3)
    x = spikes(6, 24, 9, 9).to(kind).requires_grad_()
    leaves = (x, layer.weight, layer.bias)

    def results() -> tuple[Tensor, ...]:
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(x)
        return y, *torch.autograd.grad(y.float().square().sum(), leaves)

    expected = results()
    pj.sparse(layer)
    for found, value in zip(results(), expected, strict=True):
        assert found.dtype == value.dtype
        assert (found - value).norm() <= 0.01 * value.norm()
    assert event_calls(layer) == [1]


def test_the_answer_lies_in_memory_as_the_dense_one() -> None:
    layer = nn.Conv2d(20, 30, 3)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = spikes(4, 20, 6, 6).contiguous(memory_format=layout)
        expected = pj.dense(layer.to(memory_format=layout))(x)  # type: ignore[call-overload]
        assert pj.sparse(layer)(x).stride() == expected.stride()


def test_dense_makes_them_what_they_were() -> None:
    net = network()
    before = {name: (type(m), dict(m.__dict__)) for name, m in net.named_modules()}
    pj.dense(pj.sparse(pj.sparse(net)))
    assert {name: (type(m), dict(m.__dict__)) for name, m in net.named_modules()} == before
    assert pj.dense(net) is net


def _pickled(net: nn.Module) -> nn.Module:
    result: nn.Module = pickle.loads(pickle.dumps(net))
    return result


@pytest.mark.parametrize("again", [copy.deepcopy, _pickled])
def test_a_copy_is_sparse_too_and_on_its_own(again: Callable[[nn.Module], nn.Module]) -> None:
    net = pj.sparse(network())
    other = again(net)
    gradients(other)
    assert event_calls(net) == [0, 0, 0, 0]
    assert event_calls(other) == [0, 1, 1, 1]
    assert choices(pj.dense(other)) == {}
    assert len(choices(net)) == 4


def test_weights_are_saved_and_loaded_without_any_code() -> None:
    net, file = pj.sparse(network()), io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    network().load_state_dict(torch.load(file, weights_only=True))


def test_only_modules_can_be_made_sparse_or_dense() -> None:
    for verb in (pj.sparse, pj.dense):
        with pytest.raises(PicojouleError, match=f"^{verb.__name__} needs an nn.Module, not int: pass"):
            verb(3)  # type: ignore[type-var]


# --- What else looks at a network ------------------------------------------------------------------------------------


def test_tracing_watching_and_metering_know_the_layers() -> None:
    net, x = network(), images()

    def measured() -> tuple[pj.Synapses, float, Any]:
        synapses = pj.trace(net, x[:1])
        meter, penalty = pj.EnergyMeter(synapses), pj.Penalty(synapses)
        with pj.watch(net) as activity:
            net(x)
        meter.update(activity)
        return synapses, penalty(activity).item(), meter.compute().to_dict()

    before, omega, bill = measured()
    pj.sparse(net)
    after, sparse_omega, sparse_bill = measured()
    assert sum(event_calls(net)) > 0
    assert all(torch.equal(before[name].fan_out, after[name].fan_out) for name in before)
    assert (sparse_omega, sparse_bill) == (pytest.approx(omega), bill)


def zoo_like() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3),
        nn.BatchNorm2d(8),
        pj.Spike(),
        nn.Conv2d(8, 8, 3),
        pj.Spike(),
        nn.Flatten(),
        nn.Linear(1152, 3),
    ).eval()


def test_the_event_engine_sees_plain_layers() -> None:
    net, x = zoo_like(), images()
    expected = pj.events.compile(net, x)(x)
    found = pj.events.compile(pj.sparse(net), x)(x)
    assert torch.equal(found.logits, expected.logits)
    assert torch.equal(found.synops, expected.synops)


@pytest.mark.slow
def test_exports_see_plain_layers() -> None:
    net, x = zoo_like(), images()
    onnx = pj.export.to_onnx(net, x)
    names = list(pj.export.to_nir(net, x).nodes)
    pj.sparse(net)
    assert pj.export.to_onnx(net, x) == onnx
    assert list(pj.export.to_nir(net, x).nodes) == names


def test_conversion_sees_plain_layers() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), pj.QuantizedReLU(), nn.Flatten(), nn.Linear(784, 3)).eval()
    converted = pj.convert(pj.sparse(net), steps=4)
    torch.testing.assert_close(converted(images()), pj.convert(pj.dense(net), steps=4)(images()))


def test_what_refuses_a_derived_layer_names_it_as_before() -> None:
    class Doubled(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    net = nn.Sequential(nn.Linear(4, 4), pj.Spike(), Doubled(4, 2)).eval()
    with pytest.raises(PicojouleError) as before:
        pj.events.compile(net, torch.zeros(1, 4))
    with pytest.raises(PicojouleError) as after:
        pj.events.compile(pj.sparse(net), torch.zeros(1, 4))
    assert str(after.value) == str(before.value)


def test_a_derived_class_keeps_what_it_adds() -> None:
    class Doubled(nn.Conv2d):
        def forward(self, input: Tensor) -> Tensor:
            return 2 * super().forward(input)

    class Own(nn.Linear):
        def forward(self, input: Tensor) -> Tensor:
            return input @ self.weight.T

    class OwnConvolution(nn.Conv2d):
        def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
            return super()._conv_forward(input, 3 * weight, bias)

    x = spikes(4, 20, 6, 6)
    for layer, calls in ((Doubled(20, 30, 3), [1]), (OwnConvolution(20, 30, 3), [])):
        expected = layer(x)
        torch.testing.assert_close(pj.sparse(layer)(x), expected)
        assert isinstance(layer, Doubled | OwnConvolution)
        assert event_calls(layer) == calls
    own = Own(20, 30)
    expected = own(spikes(5, 20))
    assert torch.equal(pj.sparse(own)(spikes(5, 20)), expected)
    assert event_calls(own) == [0]


# --- Where the dense path is due -------------------------------------------------------------------------------------


def test_evaluation_is_dense() -> None:
    net = network().eval()
    expected = net(images())
    assert torch.equal(pj.sparse(net)(images()), expected)
    with torch.no_grad():
        net.train()(images())
    assert sum(event_calls(net)) == 0


def linear(x: Tensor | None = None, **options: Any) -> tuple[nn.Linear, Tensor]:
    return pj.sparse(nn.Linear(300, 200, **options)), spikes(100, 300) if x is None else x


def test_other_dtypes_are_dense() -> None:
    layer, x = linear(dtype=torch.float64)
    layer(x.double()).sum().backward()
    half, x = linear()
    with torch.autocast("cpu", torch.float16):
        half(x).sum().backward()
    assert event_calls(layer) == event_calls(half) == [0]
    with pytest.raises(RuntimeError, match="dtype"):  # as without sparse
        half(x.bfloat16())


def test_another_device_is_dense() -> None:
    layer, x = linear(device="meta")
    assert layer(x.to("meta")).shape == (100, 200)
    assert event_calls(layer) == [0]


def test_transforms_are_dense() -> None:
    layer, x = linear()
    expected = nn.functional.linear(x, layer.weight, layer.bias)
    torch.testing.assert_close(torch.vmap(layer)(x[:, None])[:, 0], expected)
    parameters = {name: p.detach() for name, p in layer.named_parameters()}
    found = torch.func.grad(lambda p: torch.func.functional_call(layer, p, (x,)).sum())(parameters)
    torch.testing.assert_close(found["weight"], x.sum(0).expand(200, -1))
    assert event_calls(layer) == [0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_are_dense(reentrant: bool) -> None:
    layer, x = linear()
    checkpoint(layer, x.requires_grad_(), use_reentrant=reentrant).sum().backward()
    assert event_calls(layer) == [0]


def test_tensor_subclasses_are_dense() -> None:
    class Named(Tensor):
        pass

    layer, x = linear()
    assert isinstance(layer(x.as_subclass(Named)), Named)
    assert event_calls(layer) == [0]


def test_what_counts_operations_sees_them() -> None:
    layer, x = linear()
    with FlopCounterMode(display=False) as counter:
        layer(x)
    assert counter.get_total_flops() == 2 * 100 * 300 * 200
    assert event_calls(layer) == [0]


def test_a_compiled_network_is_dense() -> None:
    layer, x = linear()
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), nn.functional.linear(x, layer.weight, layer.bias))
    assert event_calls(layer) == [0]


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:DeprecationWarning")
def test_a_traced_network_is_dense() -> None:
    layer, x = linear()
    traced = torch.jit.trace(layer, x)
    assert torch.equal(traced(x[:7]), nn.functional.linear(x[:7], layer.weight, layer.bias))
    assert event_calls(layer) == [0]


def test_frozen_weights_and_single_samples_are_dense() -> None:
    layer, x = linear()
    layer(x[0])
    layer.weight.requires_grad_(False)
    layer(x)
    assert event_calls(layer) == [0]


def test_activity_above_the_break_even_is_dense() -> None:
    layer, x = linear()
    assert torch.equal(layer(1 - x), nn.functional.linear(1 - x, layer.weight, layer.bias))
    layer(torch.rand(100, 300))
    assert event_calls(layer) == [0]


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths:UserWarning")
def test_padding_of_other_kinds_is_dense() -> None:
    x = spikes(4, 20, 6, 6)
    for layer in (nn.Conv2d(20, 30, 3, padding=1, padding_mode="circular"), nn.Conv2d(20, 30, 2, padding="same")):
        expected = layer(x)
        assert torch.equal(pj.sparse(layer)(x), expected)
        assert sum(event_calls(layer)) == 0


def test_wrong_inputs_are_refused_as_ever() -> None:
    layer = pj.sparse(nn.Conv2d(20, 30, 3))
    for shape in ((4, 19, 6, 6), (4, 20, 2, 2), (4, 20)):
        with pytest.raises(RuntimeError):
            layer(spikes(*shape))


def test_the_environment_switches_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = linear()
    monkeypatch.setenv("PICOJOULE_SPARSE", "0")
    layer(x)
    assert event_calls(layer) == [0]
    monkeypatch.delenv("PICOJOULE_SPARSE")
    layer(x)
    assert event_calls(layer) == [1]


def test_pruned_weights_stay_pruned_by_events() -> None:
    layer, x = linear()
    prune.random_unstructured(layer, "weight", 0.5)
    y = layer(x)
    torch.testing.assert_close(y, nn.functional.linear(x, layer.weight, layer.bias))
    y.sum().backward()
    original: Any = layer.weight_orig
    assert torch.equal(original.grad == 0, (layer.weight_mask == 0) | (x.sum(0) == 0))
    assert event_calls(layer) == [1]


def test_parametrised_weights_are_computed_once_a_pass() -> None:
    twins = []
    for make in (lambda net: net, pj.sparse):
        torch.manual_seed(0)
        layer = parametrizations.spectral_norm(make(nn.Linear(30, 20)))  # changes its buffers whenever it is asked
        twins.append([layer(spikes(10, 30)) for _ in range(2)][-1])
    assert torch.equal(*twins)
    before = parametrizations.spectral_norm(nn.Linear(30, 20))
    assert choices(pj.sparse(before)) == {}
    after = parametrizations.spectral_norm(pj.sparse(nn.Linear(30, 20)))
    with pytest.raises(PicojouleError, match=r"^the class of the layer '' was changed after picojoule\.sparse, as "):
        pj.dense(after)


WITHOUT_NUMBA = """
import sys
for package in ("numba", "llvmlite"):
    sys.modules[package] = None
import torch
import picojoule as pj
layer = torch.nn.Linear(300, 200)
x = (torch.rand(100, 300) < 0.1).float()
expected = layer(x)
assert torch.equal(pj.sparse(layer)(x), expected)
"""


@pytest.mark.slow
def test_without_numba_every_layer_is_dense() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA], env=environment, capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr


CASES: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (lambda: nn.Linear(20, 6), (5, 20)),
    (lambda: nn.Conv1d(3, 6, 3), (2, 3, 9)),
    (lambda: nn.Conv2d(3, 6, 3), (2, 3, 9, 9)),
]


@pytest.mark.parametrize(("build", "shape"), CASES)
@pytest.mark.parametrize("sparsely", [False, True])
@pytest.mark.parametrize("changed", ["weight", "input", "base of the input"])
def test_what_was_changed_in_place_gives_no_gradient(
    changed: str, sparsely: bool, build: Callable[[], nn.Module], shape: tuple[int, ...]
) -> None:
    layer: Any = pj.sparse(build()) if sparsely else build()
    for choice in choices(layer).values():
        choice.break_even, choice.by_events = 1.0, True
    base = spikes(*shape).requires_grad_() * 1
    x = base.view_as(base)
    y = layer(x)
    with torch.no_grad():
        {"weight": layer.weight, "input": x, "base of the input": base}[changed].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    assert all(choice.event_calls == 1 for choice in choices(layer).values())


def test_a_weight_that_no_gradient_reads_may_change() -> None:
    results = []
    for layer in (nn.Linear(20, 6), pj.sparse(nn.Linear(20, 6))):
        for choice in choices(layer).values():
            choice.break_even, choice.by_events = 1.0, True
        y = layer(spikes(5, 20))
        with torch.no_grad():
            layer.weight.mul_(2)
        y.sum().backward()
        results.append(layer.weight.grad)
    torch.testing.assert_close(results[0], results[1])


@pytest.mark.parametrize("build", [lambda: nn.Conv2d(8, 6, 3, padding=1), lambda: nn.Linear(8, 6)])
def test_dense_layers_keep_pooled_spikes_in_half_the_memory(build: Callable[[], nn.Module]) -> None:
    layer: Any = pj.sparse(build())
    plain = pj.dense(copy.deepcopy(layer))
    layer.event_choice.activity, layer.event_choice.calls = 0.5, 1  # known, and not looked at again
    found = []
    pooled = nn.AvgPool2d(2)(spikes(4, 8, 12, 12))
    for net in (layer, plain):
        x = (pooled if isinstance(net, nn.Conv2d) else pooled.reshape(-1, 8)).requires_grad_() * 1
        y = net(x)
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
        found.append([y, first, *torch.autograd.grad(first.square().sum(), [x, *net.parameters()], allow_unused=True)])
    assert layer.event_choice.event_calls == 0
    assert all(a is b is None or torch.equal(a, b) for a, b in zip(*found, strict=True))
    kinds = {kept.dtype for kept in _kept_by(layer, pooled)}
    assert torch.bfloat16 in kinds
    assert torch.bfloat16 not in {kept.dtype for kept in _kept_by(layer, pooled * 1.1)}  # which bfloat16 has not


def test_what_a_dense_layer_keeps_may_not_be_changed() -> None:
    layer: Any = pj.sparse(nn.Conv2d(8, 6, 3))
    layer.event_choice.activity, layer.event_choice.calls = 0.5, 1
    for changed in ("input", "weight"):
        x = nn.AvgPool2d(2)(spikes(4, 8, 12, 12)).requires_grad_() * 1
        y = layer(x)
        with torch.no_grad():
            {"input": x, "weight": layer.weight}[changed].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


def _kept_by(layer: Any, pooled: Tensor) -> list[Tensor]:
    """The tensors behind a call that are held by what autograd keeps."""
    made: list[Any] = []
    original = layers._Kept.__init__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layers._Kept, "__init__", lambda kept, x: (original(kept, x), made.append(kept))[0])
        x = pooled if isinstance(layer, nn.Conv2d) else pooled.reshape(-1, 8)
        layer(x.detach().requires_grad_() * 1)
    return [kept._tensor for kept in made]


def test_average_pools_keep_the_shape_of_their_inputs_alone() -> None:
    pools, found = [pj.sparse(nn.Sequential(nn.AvgPool2d(2)))[0], nn.AvgPool2d(2)], []
    for pool in pools:
        scale = torch.ones(8, 1, 1, requires_grad=True)
        x = spikes(3, 8, 6, 6) * scale
        gone = weakref.ref(x)
        y = pool(x)
        del x
        assert (gone() is None) is (pool is pools[0])
        (first,) = torch.autograd.grad(y.square().sum(), scale, create_graph=True)
        found.append([first.detach(), *torch.autograd.grad(first.square().sum(), scale)])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert type(pj.dense(nn.Sequential(pools[0]))[0]) is nn.AvgPool2d


def test_networks_over_time_steps_have_the_gradients_of_dense_ones() -> None:
    steps, x = 3, 4 * images()[:, :, :10, :10].repeat(3, 1, 1, 1)  # [T·B, …]
    found = []
    for change in (pj.dense, pj.sparse):
        torch.manual_seed(0)
        layers = (nn.Conv2d(1, 16, 3), pj.LIF(steps=steps), nn.Conv2d(16, 8, 3), pj.IF(steps=steps), nn.Flatten())
        net = change(nn.Sequential(*layers, nn.Linear(8 * 36, 5)))
        net(x).square().sum().backward()
        found.append([p.grad for p in net.parameters()])
    made = choices(net)
    assert [made[name].event_calls for name in ("2", "5")] == [1, 1]
    assert all(0 < (made[name].activity or 0) < 0.4 for name in ("2", "5"))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-4)
