"""What a `watch` block records, in every layout of time, and that nothing stays on the model."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
from networks import CASES, LAYOUTS, Chain, Network, Residual, laid_out, linear, relayed, spike
from picojoule.errors import PicojouleError
from picojoule.spikes.layout import TimeLayout
from picojoule.spikes.spiking import spiking_modules
from picojoule.spikes.sums import summed_over_batch

each_case = pytest.mark.parametrize("name", CASES)


def hooks(model: nn.Module) -> list[dict[str, list[int]]]:
    return [
        {key: list(value) for key, value in vars(module).items() if "hook" in key and isinstance(value, dict)}
        for module in model.modules()
    ]


# ----------------------------------------------------------------------------------------------------------- recording


def test_the_spikes_are_those_that_the_layers_emit() -> None:
    net, x = Residual(), torch.randn(7, 6)
    with pj.watch(net) as activity:
        net(x)
    first = (x @ net.l1.weight.T + net.l1.bias >= 0.1).float()
    second = (first @ net.l2.weight.T + net.l2.bias >= 0.1).float()
    assert list(activity) == ["s1", "s2"]
    assert len(activity) == 2
    assert torch.equal(activity["s1"], first)
    assert torch.equal(activity["s2"], second)
    assert 0 < first.mean() < 1
    assert 0 < second.mean() < 1
    assert activity["s1"].requires_grad


@each_case
def test_names_are_those_of_the_traced_model(name: str) -> None:
    case = CASES[name]
    net = case.build()
    with pj.watch(net) as activity:
        net(case.inputs(2))
    assert set(activity) == set(case.trace(net))
    with pytest.raises(KeyError):
        activity["no such layer"]


class Pair(NamedTuple):
    spikes: Tensor
    potential: Tensor


@pytest.mark.parametrize("wrap", [lambda s, u: (s, u), lambda s, u: [s, u], Pair, lambda s, u: s])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_element_0_of_what_a_layer_returns_is_the_spikes(wrap: Callable[..., Any], mode: Callable[[], Any]) -> None:
    class Neuron(nn.Module):
        def forward(self, u: Tensor) -> Any:
            return wrap((u >= 0).float(), u)

    neuron = pj.declare_spiking(Neuron())
    u = torch.randn(4, 3)
    with mode():
        plain = neuron(u)
        with pj.watch(neuron) as activity:
            returned = neuron(u)
    assert torch.equal(activity[""], (u >= 0).float())
    assert type(returned) is type(plain)
    assert all(torch.equal(a, b) for a, b in zip(returned, plain, strict=True))


@pytest.mark.parametrize("output", [None, {"spikes": 1}, (), ("spikes",)])
def test_a_layer_that_returns_no_tensor_is_named(output: Any) -> None:
    class Neuron(nn.Module):
        def forward(self, u: Tensor) -> Any:
            return output

    net = nn.Sequential(pj.declare_spiking(Neuron()))
    before = hooks(net)
    with pytest.raises(PicojouleError, match="'0' returned"), pj.watch(net):
        net(torch.zeros(1))
    assert hooks(net) == before


def test_parts_of_a_spiking_layer_belong_to_it() -> None:
    @pj.declare_spiking
    class Population(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = pj.Spike()
            self.pool = nn.MaxPool1d(2)

        def forward(self, u: Tensor) -> Tensor:
            out: Tensor = self.pool(self.inner(u))
            return out

    net = nn.Sequential(nn.Identity(), Population())
    with pj.watch(net) as activity:
        net(torch.ones(2, 3, 4))
    assert list(activity) == ["1"]
    assert activity["1"].shape == (2, 3, 2)
    assert list(spiking_modules(net)) == ["1"]


def test_a_max_pool_is_recorded_beside_the_neurons() -> None:
    net = relayed()
    with pj.watch(net) as activity:
        net(torch.randn(3, 1, 6, 6))
    s = activity["s1"].detach().numpy()
    blocks = s.reshape(3, 3, 2, 2, 2, 2).max((3, 5))
    assert activity["pool"].detach().numpy().tolist() == blocks.tolist()


def test_a_pool_of_pixels_is_no_concern_of_meter_and_penalty() -> None:
    net = Chain(pool=nn.MaxPool2d(2), flat=nn.Flatten(), l1=nn.Linear(4, 3), s1=spike(), l2=nn.Linear(3, 2))
    synapses = pj.trace(net, torch.zeros(1, 1, 4, 4))
    with pj.watch(net) as activity:
        net(-torch.rand(5, 1, 4, 4))
    meter = pj.EnergyMeter(synapses)
    meter.update(activity)
    assert list(synapses) == ["s1"]
    assert meter.compute().synops == activity["s1"].sum().item() * 2 / 5


def test_nested_blocks_both_record() -> None:
    net, x = linear(), torch.randn(2, 3, 6)
    with pj.watch(net, steps=2) as outer:
        net(x[0])
        with pj.watch(net) as inner:
            net(x[1])
    assert torch.equal(outer["s1"][1], inner["s1"])
    assert outer["s1"].shape == (2, 3, 5)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_nothing_is_left_on_the_model(mode: Callable[[], Any]) -> None:
    net = relayed()
    net.s1.register_forward_hook(lambda *_: None)
    before, attributes = hooks(net), [set(vars(m)) for m in net.modules()]
    with mode(), pj.watch(net) as activity:
        net(torch.randn(2, 1, 6, 6))
        assert hooks(net) != before
    assert hooks(net) == before
    assert [set(vars(m)) for m in net.modules()] == attributes
    recorded = weakref.ref(activity["s1"])
    del activity
    gc.collect()
    assert recorded() is None


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, PicojouleError])
def test_nothing_is_left_when_the_block_raises(error: type[BaseException]) -> None:
    net = linear()
    before = hooks(net)
    with pytest.raises(error, match="from inside"), pj.watch(net):  # noqa: PT012
        net(torch.randn(1, 6))
        raise error("from inside")
    assert hooks(net) == before


def test_a_users_hook_that_replaces_the_spikes_is_seen() -> None:
    net = linear()
    net.s1.register_forward_hook(lambda module, args, output: torch.zeros_like(output))
    with pj.watch(net) as activity:
        net(torch.randn(9, 6))
    assert not activity["s1"].any()


# ---------------------------------------------------------------------------------------------------------------- time


def layouts_of(name: str) -> list[str]:
    """A pool between time axes would be folded while the neurons are not: one block has one layout."""
    chain = issubclass(type(CASES[name].build()), Chain)
    return [layout for layout in LAYOUTS if "axis" not in layout or (chain and name != "relayed")]


@pytest.mark.parametrize(("name", "layout"), [(name, layout) for name in CASES for layout in layouts_of(name)])
@pytest.mark.parametrize("steps", [1, 3])
def test_every_layout_gives_the_same_numbers(name: str, layout: str, steps: int) -> None:
    case = CASES[name]
    net, x = case.build(), case.inputs(steps, 4)
    synapses = case.synapses()
    blocks = []
    for now in x:  # one block a step needs no layout at all
        with pj.watch(net) as step:
            net(now)
        blocks.append(step)
    expected = {layer: torch.stack([block[layer] for block in blocks]) for layer in blocks[0]}
    with laid_out(net, x, layout) as activity:
        assert activity.steps == steps
        for layer, spikes in expected.items():
            assert torch.equal(activity[layer], spikes[0] if steps == 1 else spikes), layer
        meter = pj.EnergyMeter(synapses)
        meter.update(activity)
        report = meter.compute()
        by_hand = case.by_hand(activity)
        assert {layer.name: layer.synops for layer in report.layers} == {n: v / 4 for n, v in by_hand.items()}
        assert {layer.name: layer.rate for layer in report.layers if layer.rate is not None} == {
            layer.name: expected[layer.name].double().mean().item() for layer in synapses.spiking
        }
        for kind in ("syn", "total", "balance"):
            values = pj.Penalty(synapses, kind, normalized=False).by_layer(activity)
            for layer in synapses.values():
                spikes = expected[layer.name]
                weight = {
                    "syn": by_hand[layer.name] / 4,
                    "total": 0 if layer.relay else spikes.sum().item() / 4,
                    "balance": 0 if layer.relay else spikes.sum().item() / 4 / layer.neurons,
                }[kind]
                assert values[layer.name].item() == pytest.approx(weight, rel=1e-6)


def test_layouts_that_do_not_fit_are_refused() -> None:
    spikes = torch.zeros(6, 4, 3)
    assert [tuple(s.shape) for s in TimeLayout(6, time_axis=0).by_step("s", [spikes])] == [(4, 3)] * 6
    assert [tuple(s.shape) for s in TimeLayout(4, time_axis=1).by_step("s", [spikes])] == [(6, 3)] * 4
    assert [tuple(s.shape) for s in TimeLayout(3, folded="time").by_step("s", [spikes])] == [(2, 4, 3)] * 3
    assert [tuple(s.shape) for s in TimeLayout(3, folded="batch").by_step("s", [spikes[:0]])] == [(0, 4, 3)] * 3
    with pytest.raises(PicojouleError, match=r"'s' .*\(6, 4, 3\), whose axis 0 is not steps=4"):
        TimeLayout(4, time_axis=0).by_step("s", [spikes])
    with pytest.raises(PicojouleError, match="axis 1 is not steps=6"):
        TimeLayout(6, time_axis=1).by_step("s", [spikes])
    with pytest.raises(PicojouleError, match="6 rows, which do not divide into steps=4"):
        TimeLayout(4, folded="time").by_step("s", [spikes])
    for layout in (TimeLayout(6, time_axis=0), TimeLayout(6, folded="time")):
        with pytest.raises(PicojouleError, match="called 2 times where one call with all 6 steps"):
            layout.by_step("s", [spikes, spikes])


@pytest.mark.parametrize(
    "arguments",
    [
        {"steps": 0},
        {"steps": -1},
        {"steps": 2.0},
        {"steps": True},
        {"time_axis": 2},
        {"time_axis": -1},
        {"folded": "both"},
        {"time_axis": 0, "folded": "time"},
    ],
    ids=str,
)
def test_impossible_layouts_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PicojouleError, match=r"steps=|time_axis|folded"), pj.watch(linear(), **arguments):
        pass


def readers(synapses: pj.Synapses) -> list[Callable[[pj.Activity], object]]:
    """Everything that looks at an activity."""
    return [
        lambda activity: activity["s1"],
        lambda activity: pj.EnergyMeter(synapses).update(activity),
        pj.Penalty(synapses),
        pj.Penalty(synapses, "total", p=2).by_layer,
    ]


def refused(net: Network, synapses: pj.Synapses, activity: pj.Activity, match: str) -> None:
    for read in readers(synapses):
        with pytest.raises(PicojouleError, match=match):
            read(activity)


def test_more_calls_than_steps() -> None:
    net = linear()
    synapses = CASES["linear"].trace(net)
    with pj.watch(net) as activity:
        net(torch.randn(2, 6))
        net(torch.randn(2, 6))
    refused(net, synapses, activity, "called 2 times where 1 were expected.*steps=2.*make two modules")


def test_one_neuron_module_at_two_places() -> None:
    class Twice(Network):
        def __init__(self) -> None:
            super().__init__()
            self.l1, self.l2, self.s1 = nn.Linear(6, 5), nn.Linear(5, 5), spike()

        def step(self, x: Tensor) -> Tensor:
            out: Tensor = self.s1(self.l2(self.s1(self.l1(x))))
            return out

    net = Twice()
    with pj.watch(net) as activity:
        net(torch.randn(2, 6))
    with pytest.raises(PicojouleError, match="make two modules"):
        activity["s1"]


def test_fewer_calls_than_steps() -> None:
    net = linear()
    synapses = CASES["linear"].trace(net)
    with pj.watch(net, steps=3) as activity:
        net(torch.randn(2, 6))
        net(torch.randn(2, 6))
    refused(net, synapses, activity, "called 2 times where steps=3 were expected")


def test_unequal_batches_in_the_steps() -> None:
    net = linear()
    synapses = CASES["linear"].trace(net)
    with pj.watch(net, steps=2) as activity:
        net(torch.randn(2, 6))
        net(torch.randn(3, 6))
    refused(net, synapses, activity, r"batches of \[2, 3\] samples")


def test_unequal_batches_in_the_layers() -> None:
    net = linear()
    synapses = CASES["linear"].trace(net)
    with pj.watch(net) as activity:
        net.s1(torch.randn(2, 5))
        net.s2(torch.randn(3, 4))
    for read in readers(synapses)[1:]:
        with pytest.raises(PicojouleError, match="different numbers of samples"):
            read(activity)


def test_maps_of_another_size_than_was_traced() -> None:
    case = CASES["convolutional"]
    net = case.build()
    synapses = case.trace(net)
    with pj.watch(net) as activity:
        net.s1(torch.zeros(2, 4, 6, 6))
        net.s2(torch.zeros(2, 6, 3, 3))
    for read in readers(synapses)[1:]:
        with pytest.raises(PicojouleError, match=r"'s1' emitted maps of shape \(4, 6, 6\), but \(4, 5, 5\) was traced"):
            read(activity)


# -------------------------------------------------------------------------------------------------------------- errors


def test_a_traced_layer_that_recorded_nothing() -> None:
    net = linear()
    synapses = CASES["linear"].trace(net)
    with pj.watch(net) as activity:
        net.s2(net.l2(torch.ones(2, 5)))
    for read in readers(synapses)[1:]:
        with pytest.raises(PicojouleError, match="'s1' recorded nothing"):
            read(activity)


def test_a_layer_without_synapses_behind_it_must_have_run_too() -> None:
    net = Chain(l1=nn.Linear(6, 5), s1=spike(), l2=nn.Linear(5, 4), s2=spike())
    synapses = pj.trace(net, torch.zeros(1, 6))
    assert synapses["s2"].synapses == 0
    with pj.watch(net) as activity:
        net.s1(net.l1(torch.ones(2, 6)))
    for read in readers(synapses)[1:]:
        with pytest.raises(PicojouleError, match="'s2' recorded nothing"):
            read(activity)


def test_a_block_in_which_nothing_ran() -> None:
    net = linear()
    before = hooks(net)
    with pytest.raises(PicojouleError, match="nothing was recorded"), pj.watch(net):
        pass
    assert hooks(net) == before


def test_another_model_than_the_watched_one_ran() -> None:
    with pytest.raises(PicojouleError, match="nothing was recorded"), pj.watch(linear()):
        linear()(torch.zeros(1, 6))


def test_a_model_without_spiking_layers() -> None:
    with pytest.raises(PicojouleError, match="Sequential has no spiking layer"), pj.watch(nn.Sequential(nn.ReLU())):
        pass


@pytest.mark.parametrize("what", [5, "Spike", torch.relu, int])
def test_only_modules_can_be_declared_spiking(what: Any) -> None:
    with pytest.raises(PicojouleError, match=r"only an nn\.Module"):
        pj.declare_spiking(what)


class Overwriting(Network):
    """A residual sum written as +=, which changes the recorded spikes."""

    def __init__(self, change: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.l1, self.l2, self.s1, self.change = nn.Linear(6, 5), nn.Linear(5, 4), spike(), change

    def step(self, x: Tensor) -> Tensor:
        spikes = self.s1(self.l1(x))
        self.change(spikes)
        out: Tensor = self.l2(spikes)
        return out


@pytest.mark.parametrize(
    "change",
    [lambda s: s.add_(1), lambda s: s.flatten(1).mul_(2), lambda s: s[0].zero_(), lambda s: s.detach().fill_(1)],
    ids=["itself", "a view", "a sample", "detached"],
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_spikes_overwritten_in_place(change: Callable[[Tensor], object], mode: Callable[[], Any]) -> None:
    net = Overwriting(change)
    synapses = pj.trace(Overwriting(lambda s: None), torch.zeros(1, 6))
    with mode(), pj.watch(net) as activity:
        net(torch.randn(3, 6))
    refused(net, synapses, activity, "'s1' were overwritten in place")


# ------------------------------------------------------------------------------------------------------------- wrappers


class DistributedDataParallel(nn.Module):
    """Known by its name, like Fabric's wrapper, so that neither must be imported."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, *args: Any) -> Any:
        return self.module(*args)


_FabricModule = type("_FabricModule", (DistributedDataParallel,), {})


@pytest.mark.parametrize(
    "wrap", [DistributedDataParallel, _FabricModule, lambda m: _FabricModule(DistributedDataParallel(m))]
)
def test_wrappers_do_not_change_names(wrap: Callable[[nn.Module], nn.Module]) -> None:
    net, x = linear(), torch.randn(3, 6)
    wrapped = wrap(net)
    with pj.watch(wrapped) as activity:
        wrapped(x)
    with pj.watch(net) as plain:
        net(x)
    assert list(activity) == ["s1", "s2"] == list(pj.trace(wrapped, x))
    assert all(torch.equal(activity[name], plain[name]) for name in plain)


def test_the_wrappers_are_known_by_torchs_names() -> None:
    assert DistributedDataParallel.__name__ == nn.parallel.DistributedDataParallel.__name__


def compiled(net: nn.Module) -> nn.Module:
    module = torch.compile(net, backend="eager")
    assert isinstance(module, nn.Module)
    return module


def compiled_in_place(net: nn.Module) -> nn.Module:
    net.compile(backend="eager")
    return net


def part_compiled(net: nn.Module) -> nn.Module:
    net.l1.compile(backend="eager")
    return net


@pytest.mark.parametrize(
    "compile_", [compiled, compiled_in_place, part_compiled, lambda net: nn.Sequential(compiled(net))]
)
@pytest.mark.parametrize("inside", [lambda m: m, DistributedDataParallel], ids=["bare", "ddp inside"])
@pytest.mark.parametrize("outside", [lambda m: m, DistributedDataParallel], ids=["bare", "ddp outside"])
def test_a_compiled_module_is_refused(
    compile_: Callable[[nn.Module], nn.Module],
    inside: Callable[[nn.Module], nn.Module],
    outside: Callable[[nn.Module], nn.Module],
) -> None:
    if compile_ is part_compiled:
        model = outside(inside(part_compiled(linear())))
    else:
        model = outside(compile_(inside(linear())))
    with (
        pytest.raises(PicojouleError, match=r"compiled module cannot be watched.*given to torch\.compile"),
        pj.watch(model),
    ):
        pass


# ------------------------------------------------------------------------------------------------------ sum over batch


@pytest.mark.parametrize(
    "arrange",
    [
        lambda s: s,
        lambda s: s.contiguous(memory_format=torch.channels_last),
        lambda s: s.permute(0, 2, 3, 1),
        lambda s: s.transpose(0, 1),
        lambda s: s[::2, :, 1:],
        lambda s: s[:1].expand(300, -1, -1, -1),
        lambda s: s[..., :1],
        lambda s: s[:0],
        lambda s: s.flatten(1),
        lambda s: s.flatten(),
    ],
)
def test_the_sum_over_the_batch_is_exact(arrange: Callable[[Tensor], Tensor]) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.bool, torch.int64):
        spikes = arrange((torch.rand(300, 3, 4, 5) < 0.95).to(dtype))
        exact = spikes.to(torch.int64).sum(0)
        for binary in (True, False):
            with torch.autocast("cpu", dtype=torch.bfloat16):  # 285 is no bfloat16
                assert torch.equal(summed_over_batch(spikes, binary=binary).long(), exact)
            assert torch.equal(summed_over_batch(spikes, binary=binary).long(), exact)


def test_counts_above_one_are_summed_beyond_float32() -> None:
    spikes = torch.full((3, 2), 2.0**24 - 1)
    assert summed_over_batch(spikes, binary=False).tolist() == [3 * 2**24 - 3] * 2


@pytest.mark.parametrize("steps", [1, 2])
def test_calls_of_two_threads_are_not_taken_for_time_steps(steps: int) -> None:
    net, x = nn.Sequential(nn.Linear(3, 2), pj.Spike()), torch.zeros(5, 3)
    with pj.watch(net, steps=steps) as activity:
        net(x)
        other = threading.Thread(target=net, args=(x,))
        other.start()
        other.join()
    with pytest.raises(PicojouleError, match=r"2 threads called the layer '1' .*a copy of the model"):
        activity["1"]


def test_another_thread_may_run_the_network() -> None:
    net, x = nn.Sequential(nn.Linear(3, 2), pj.Spike()), torch.zeros(5, 3)
    with pj.watch(net) as activity:
        other = threading.Thread(target=net, args=(x,))
        other.start()
        other.join()
    assert activity["1"].shape == (5, 2)
