"""Networks of every kind do as events what they do in PyTorch; what has no rule is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import picojoule as pj
from against_pytorch import TRIANGLE, agree, lively
from networks import CASES
from paper_networks import PAPERS
from picojoule.deploy import events


@pytest.mark.slow
@pytest.mark.parametrize("name", PAPERS)
def test_zoo(name: str) -> None:
    net = lively(pj.zoo.create(name))
    engine = agree(net, torch.rand(3, *net.input_shape))
    assert set(engine.synapses) == set(engine(torch.rand(1, *net.input_shape)).spikes)


@pytest.mark.parametrize("name", CASES)
def test_operations_counted_by_hand(name: str) -> None:
    case = CASES[name]
    net = case.build().eval()
    engine = agree(net, case.inputs(7))
    x = case.inputs(5)
    by_hand = case.by_hand(engine.watch(x))
    assert int(engine(x).synops.sum()) == sum(by_hand.values()) > 0


@pytest.mark.parametrize("gamma", [1.5, -1.5, 0.0])
@pytest.mark.parametrize("beta", [0.0, 0.5, 3.0])
def test_batch_norm_of_any_sign_decides_exactly(gamma: float, beta: float) -> None:
    """Currents that are small whole numbers hit the threshold exactly, where ≥ and > differ."""
    net = nn.Sequential(nn.Linear(4, 3, bias=False), nn.BatchNorm1d(3, eps=0.0), pj.Spike(0.5), nn.Linear(3, 2)).eval()
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor([[1, 0, 0, 1], [-1, 1, 0, 0], [0, 1, -1, 1]]))
        net[1].weight.fill_(gamma)
        net[1].bias.fill_(beta)
    x = torch.cartesian_prod(*[torch.tensor([-1.0, 0.0, 1.0])] * 4)
    agree(net, x, flipped=0.0)


class Joined(nn.Module):
    """Residual sums of currents and of spikes, shared currents, branches of unequal depth."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 20, 3, padding=1)
        self.norm1, self.norm2, self.norm3, self.norm4 = (nn.BatchNorm2d(20) for _ in range(4))
        self.spike1, self.spike2, self.spike3, self.spike4 = (pj.Spike(0.3) for _ in range(4))
        self.a, self.b, self.c = (nn.Conv2d(20, 20, 3, padding=1) for _ in range(3))
        self.head = nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        stream = self.stem(x)
        first = self.spike1(self.norm1(stream))
        second = self.spike2(self.norm2(self.a(first)) + stream)
        both = first + second
        stream = stream - 0.5 * self.norm3(self.b(both)) + 0.1
        third = self.spike3(stream)
        fourth = self.spike4(self.norm4(self.c(F.avg_pool2d(both, 2) + F.avg_pool2d(third, 2))))
        return self.head(fourth.mean((2, 3))) + self.head(third.mean((2, 3)))


def one_axis() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(3, 40, 5, stride=2, padding=2),
        nn.BatchNorm1d(40),
        pj.Spike(0.2),
        nn.MaxPool1d(2),
        nn.Conv1d(40, 70, 3, dilation=2, groups=2),
        pj.Spike(0.2),
        nn.AdaptiveAvgPool1d(3),
        nn.Flatten(),
        nn.Linear(210, 4),
    )


def flattened_currents() -> nn.Module:
    """Batch norm of a flattened map, neuron by neuron."""
    return nn.Sequential(
        nn.BatchNorm2d(3),
        nn.Conv2d(3, 5, 3),
        nn.Flatten(),
        nn.BatchNorm1d(180),
        pj.Spike(0.2),
        nn.Linear(180, 130),
        pj.Spike(0.1),
        nn.Linear(130, 3),
    )


def pooled_every_way() -> nn.Module:
    return nn.Sequential(
        nn.AvgPool2d(2, 1),
        nn.Conv2d(3, 33, 3, padding="same"),
        nn.MaxPool2d(2, padding=1),
        pj.Spike(0.2),
        nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        nn.AvgPool2d(2, stride=1, divisor_override=3),
        nn.Conv2d(33, 9, 2, padding=1, bias=False),
        nn.BatchNorm2d(9, affine=False),
        pj.Spike(0.3),
        nn.Dropout(0.5),
        nn.Conv2d(9, 4, 1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def straight_from_pixels() -> nn.Module:
    return nn.Sequential(pj.Spike(0.5), nn.Conv2d(3, 6, 3, groups=3), pj.Spike(0.1), nn.Flatten(), nn.Linear(216, 3))


def linear_from_pixels() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 70), pj.Spike(0.1), nn.Linear(70, 3), pj.Spike(0.0, TRIANGLE))


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "joined": (Joined, (2, 8, 8)),
    "one axis": (one_axis, (3, 33)),
    "flattened currents": (flattened_currents, (3, 8, 8)),
    "pooled every way": (pooled_every_way, (3, 9, 9)),
    "straight from pixels": (straight_from_pixels, (3, 8, 8)),
    "linear from pixels": (linear_from_pixels, (3, 8, 8)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_every_kind(name: str) -> None:
    build, shape = NETWORKS[name]
    net = lively(build())
    x = torch.randn(6, *shape)
    engine = agree(net, x)
    assert all((count > 0).any() for count in engine(x).spikes.values()), "a silent network shows nothing"


@st.composite
def chains(draw: st.DrawFn) -> tuple[nn.Module, tuple[int, int, int]]:
    """Convolutions of any geometry with pools, norms and residual blocks between them."""
    channels, size = draw(st.integers(1, 3)), draw(st.integers(6, 12))
    shape, layers = (channels, size, size), list[nn.Module]()
    for _ in range(draw(st.integers(1, 3))):
        groups = draw(st.sampled_from([g for g in (1, 2, 3) if channels % g == 0]))
        width = groups * draw(st.sampled_from([1, 5, 17, 40, 66]))
        kernel = draw(st.integers(1, min(3, size)))
        dilation = draw(st.integers(1, 2)) if 2 * (kernel - 1) < size else 1
        padding, stride = draw(st.integers(0, 2)), draw(st.integers(1, 2))
        layers.append(nn.Conv2d(channels, width, kernel, stride, padding, dilation, groups, bias=draw(st.booleans())))
        size = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
        channels = width
        if draw(st.booleans()):
            layers.append(nn.BatchNorm2d(width))
        layers.append(pj.Spike(draw(st.sampled_from([-0.2, 0.1, 0.5])), TRIANGLE))
        if size >= 2:
            pool = draw(st.sampled_from([None, nn.AvgPool2d, nn.MaxPool2d]))
            if pool is not None:
                layers.append(pool(2, stride=draw(st.integers(1, 2)), padding=draw(st.integers(0, 1))))
                with torch.no_grad():
                    size = layers[-1](torch.zeros(1, 1, size, size)).shape[-1]
    layers += [nn.Flatten(), nn.Linear(channels * size * size, draw(st.integers(1, 20)))]
    return nn.Sequential(*layers), shape


@pytest.mark.slow
@settings(max_examples=60)
@given(chains(), st.integers(0, 10**6))
def test_random_chains(drawn: tuple[nn.Module, tuple[int, int, int]], seed: int) -> None:
    net, shape = drawn
    torch.manual_seed(seed)
    agree(lively(net), torch.randn(2, *shape), flipped=1e-3)


class Joint(nn.Module):
    """A network drawn at random: every layer takes the sum of one or two values made before it."""

    def __init__(self, sources: list[tuple[int, ...]], pooled: list[bool], width: int) -> None:
        super().__init__()
        self.sources = sources
        self.stem = nn.Conv2d(2, width, 3, padding=1)
        self.layers = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in sources)
        self.norms = nn.ModuleList(nn.BatchNorm2d(width) for _ in sources)
        self.pools = nn.ModuleList(nn.AvgPool2d(3, 1, 1) if pool else nn.Identity() for pool in pooled)
        self.spikes = nn.ModuleList(pj.Spike(0.2) for _ in [(), *sources])
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        currents = [self.stem(x)]
        spikes = [self.spikes[0](currents[0])]
        for i, (first, *others) in enumerate(self.sources):
            taken = self.pools[i](spikes[first])
            for other in others:
                taken = taken + spikes[other]
            current = self.norms[i](self.layers[i](taken))
            for other in others:
                current = current + currents[other]
            currents.append(current)
            spikes.append(self.spikes[i + 1](current))
        return self.head(spikes[-1].mean((2, 3))) + 0.5 * self.head(spikes[0].mean((2, 3)))


@st.composite
def joints(draw: st.DrawFn) -> Joint:
    depth = draw(st.integers(1, 4))
    sources = [tuple(draw(st.lists(st.integers(0, i), min_size=1, max_size=2, unique=True))) for i in range(depth)]
    return Joint(sources, draw(st.lists(st.booleans(), min_size=depth, max_size=depth)), draw(st.sampled_from([3, 35])))


@pytest.mark.slow
@settings(max_examples=15)
@given(joints(), st.integers(0, 10**6))
def test_random_sums_of_spikes_and_currents(net: Joint, seed: int) -> None:
    torch.manual_seed(seed)
    agree(lively(net), torch.randn(2, 2, 6, 6), flipped=1e-3)


@pj.declare_spiking
class Heaviside(nn.Module):
    def forward(self, u: Tensor) -> Tensor:
        return (u >= 1).float()


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.spike, self.second = nn.Linear(4, 4), pj.Spike(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        s = self.spike(self.first(x))
        return self.second(s) if len(x) > 2 else self.second(s) * 2


class Overwriting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.spike, self.second = nn.Linear(4, 4), pj.Spike(), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        current = self.first(x)
        sum_ = current
        sum_ += self.second(self.spike(current))
        return sum_ + current


def around(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 4, 3), pj.Spike(), *layers)


REFUSED: dict[str, tuple[nn.Module, str]] = {
    "neuron": (nn.Sequential(nn.Conv2d(1, 4, 3), Heaviside(), nn.Conv2d(4, 2, 1)), "'1' (Heaviside)"),
    "transposed": (around(nn.ConvTranspose2d(4, 2, 3)), "'2' (ConvTranspose2d)"),
    "reflecting": (around(nn.Conv2d(4, 2, 3, padding=1, padding_mode="reflect")), "'2' (Conv2d)"),
    "norm behind spikes": (around(nn.BatchNorm2d(4), nn.Conv2d(4, 2, 1)), "'2' (BatchNorm2d)"),
    "activation": (around(nn.Conv2d(4, 2, 1), nn.Tanh(), pj.Spike()), "'3' (Tanh)"),
    "no statistics": (around(nn.Conv2d(4, 2, 1), nn.BatchNorm2d(2, track_running_stats=False), pj.Spike()), "'3' ("),
    "unflattened": (around(nn.Linear(6, 3)), "'2' (Linear)"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_run_is_refused_by_name(what: str) -> None:
    net, name = REFUSED[what]
    with pytest.raises(pj.PicojouleError) as refusal:
        events.compile(net, torch.zeros(1, 1, 8, 8))
    assert name in str(refusal.value)
    assert "dense engine" in str(refusal.value)


def test_what_cannot_be_followed_is_refused() -> None:
    with pytest.raises(pj.PicojouleError, match="Branching"):
        events.compile(Branching(), torch.zeros(1, 4))
    with pytest.raises(pj.PicojouleError, match=r"Overwriting.*x = x \+ y"):
        events.compile(Overwriting(), torch.zeros(1, 4))
