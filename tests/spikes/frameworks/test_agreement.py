"""picojoule and the counters of other tools on the same networks and spikes: equal wherever the conventions are."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable

import pytest
import torch
from counters import COUNTERS, measure, synaptic_layers
from torch import Tensor, nn

import picojoule as pj
from frameworks import is_installed, need

PEERS = [name for name in COUNTERS if name != "picojoule"]
FORMULAS = ("Norse", "syops", "rule of thumb")
"""Tools whose formulas have other numbers by their nature: results/agreement.md has the reasons."""
EXACT = [name for name in PEERS if name not in FORMULAS]


@pytest.fixture(params=[name for name in EXACT if is_installed(COUNTERS[name].package)])
def peer(request: pytest.FixtureRequest) -> str:
    """A tool that counts exactly, and is installed here."""
    return str(request.param)


@pytest.mark.parametrize("name", PEERS)
def test_the_tool_is_here(name: str) -> None:
    assert need(COUNTERS[name].package)


def events() -> nn.Module:
    return pj.declare_spiking(nn.Identity())


def spikes(*shape: int, rate: float = 0.3) -> Tensor:
    return (torch.rand(shape, generator=torch.Generator().manual_seed(5)) < rate).float()


def random_convolution(seed: int) -> tuple[nn.Conv2d, Tensor]:
    """Any stride, padding, dilation, groups and kernel. The batch is a power of two, so that means are exact."""
    draw = random.Random(seed)
    groups = draw.choice([1, 1, 2, 4])
    size = [draw.choice([1, 2, 3, 4]) for _ in range(2)]
    conv = nn.Conv2d(
        groups * draw.randint(1, 3),
        groups * draw.randint(1, 3),
        tuple(size),
        stride=(draw.randint(1, 3), draw.randint(1, 3)),
        padding=tuple(draw.randint(0, k) for k in size),
        dilation=(draw.randint(1, 2), draw.randint(1, 2)),
        groups=groups,
        bias=draw.random() < 0.5,
    )
    return conv, spikes(4, conv.in_channels, draw.randint(9, 12), draw.randint(9, 12), rate=draw.random())


@pytest.mark.parametrize("seed", range(25))
def test_convolutions_of_any_setting(peer: str, seed: int) -> None:
    torch.manual_seed(seed)
    conv, x = random_convolution(seed)
    net = nn.Sequential(events(), conv)
    ours = measure("picojoule", lambda: net, [x])
    assert measure(peer, lambda: net, [x]) == ours
    assert ours["1"] > 0


@pytest.mark.parametrize(("inputs", "outputs"), list(itertools.product([1, 7, 40], [1, 3, 30])))
def test_linear_layers(peer: str, inputs: int, outputs: int) -> None:
    net = nn.Sequential(events(), nn.Linear(inputs, outputs))
    x = spikes(8, inputs, rate=0.6)
    assert measure(peer, lambda: net, [x, x[:4]]) == measure("picojoule", lambda: net, [x, x[:4]])


def chain(pool: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def build() -> nn.Module:
        torch.manual_seed(1)
        return nn.Sequential(
            events(),
            nn.Conv2d(2, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            pj.Spike(0.1),
            pool(),
            nn.Dropout(0.2),
            nn.Conv2d(6, 8, 3, stride=2),
            pj.Spike(0.1),
            nn.Flatten(),
            nn.Linear(8 * 3 * 3, 10),
        )

    return build


def test_a_deep_network_with_a_max_pool(peer: str) -> None:
    build, x = chain(lambda: nn.MaxPool2d(2)), spikes(16, 2, 14, 14)
    ours = measure("picojoule", build, [x, x.flip(0)])
    assert set(ours) == set(synaptic_layers(build()))
    assert min(ours.values()) > 0
    assert measure(peer, build, [x, x.flip(0)]) == ours


def test_behind_an_average_pool_only_sinabs_still_sees_spikes(peer: str) -> None:
    build, x = chain(lambda: nn.AvgPool2d(2)), spikes(16, 2, 14, 14)
    ours, theirs = measure("picojoule", build, [x]), measure(peer, build, [x])
    pooled = ours["6"] if peer == "sinabs" else 0
    assert theirs == {**ours, "6": pooled}


def test_two_spikes_in_one_value(peer: str) -> None:
    net = nn.Sequential(events(), nn.Linear(3, 5))
    x = torch.tensor([[1.0, 2.0, 0.0], [2.0, 2.0, 1.0]])
    assert measure("picojoule", lambda: net, [x]) == {"1": 20}
    assert measure(peer, lambda: net, [x]) == {"1": 20 if peer == "sinabs" else 0}


def test_pruned_weights(peer: str) -> None:
    net = nn.Sequential(events(), nn.Linear(4, 3))
    torch.nn.utils.prune.custom_from_mask(net[1], "weight", torch.tensor([[1, 1, 0, 0]] * 2 + [[1, 0, 0, 0]]))
    x = torch.ones(2, 4)
    assert measure("picojoule", lambda: net, [x]) == {"1": 5}
    torch.nn.utils.prune.remove(net[1], "weight")  # the peers read the weights
    assert measure(peer, lambda: net, [x]) == {"1": 5 if peer == "NeuroBench" else 12}


# The numbers that the peers' own tests state.
STATED: dict[str, tuple[Callable[[], nn.Module], Tensor, float]] = {
    "linear 4 to 3": (lambda: nn.Linear(4, 3), torch.tensor([[1.0, 0.0, 1.0, 0.0]]), 6),
    "convolution of an identity image": (lambda: nn.Conv2d(1, 5, 2), torch.eye(3).view(1, 1, 3, 3), 30),
    "convolution of ones": (lambda: nn.Conv2d(1, 1, 3), torch.ones(1, 1, 12, 12), 900),
    "linear over ten steps": (lambda: nn.Linear(20, 5), torch.ones(5, 10, 20), 1000),
}


@pytest.mark.parametrize("case", STATED)
def test_stated_numbers(peer: str, case: str) -> None:
    build, x, stated = STATED[case]
    net = nn.Sequential(events(), build())
    steps = {"steps": 10, "time_axis": 1} if x.dim() == 3 else {}
    meter = pj.EnergyMeter(pj.trace(net, x, **steps))
    with pj.watch(net, **steps) as activity:
        net(x)
    meter.update(activity)
    assert meter.compute().synops == stated
    if case == "linear 4 to 3":
        assert meter.compute().joules == pytest.approx(5.4e-12)
    assert measure(peer, lambda: net, [x]) == {"1": stated}


def test_analog_input_is_multiplied() -> None:
    """A dense batch of two halves into Linear(4, 3): 24 multiply-accumulates, 110.4 pJ at 4.6 pJ each."""
    net = nn.Sequential(nn.Linear(4, 3), pj.Spike())
    x = torch.full((2, 4), 0.5)
    meter = pj.EnergyMeter(pj.trace(net, x))
    with pj.watch(net) as activity:
        net(x)
    meter.update(activity)
    report = meter.compute()
    assert 2 * report.encoder_macs == 24
    assert 2 * (report.encoder_joules or 0) == pytest.approx(110.4e-12)


def test_spikingjelly_counts_the_same_multiply_accumulates() -> None:
    need("spikingjelly")
    from spikingjelly.activation_based.op_counter import DispatchCounterMode, MACCounter

    counter = MACCounter()
    with DispatchCounterMode([counter]), torch.no_grad():
        nn.Linear(4, 3, bias=False)(torch.full((2, 4), 0.5))
    assert counter.get_total() == 24


@pytest.mark.parametrize("seed", range(10))
def test_gradients_are_those_of_sinabs_hooks(seed: int) -> None:
    need("sinabs")
    torch.manual_seed(seed)
    conv, x = random_convolution(seed)
    net = nn.Sequential(events(), conv)
    x.requires_grad_()
    with pj.watch(net) as activity:
        net(x)
    (ours,) = torch.autograd.grad(pj.Penalty(pj.trace(net, x[:1]), normalized=False)(activity), x)
    COUNTERS["sinabs"](net, x)
    net(x)
    (theirs,) = torch.autograd.grad(net.hook_data["total_synops_per_timestep"], x)
    assert torch.equal(ours, theirs)
