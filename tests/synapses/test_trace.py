"""ψ on networks whose count is known: the paper's integers, the peers' reference numbers, and the ways models are
written."""

from __future__ import annotations

import copy
import math
import warnings
from collections import namedtuple
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune
from torch.utils.checkpoint import checkpoint

from picojoule import zoo
from picojoule.energy.meter import EnergyMeter
from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike
from picojoule.penalty import Penalty
from picojoule.spikes.spiking import declare_spiking
from picojoule.spikes.watch import watch
from picojoule.synapses import rules
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace


def events(*behind: nn.Module) -> nn.Sequential:
    """A network that is fed spikes; its spiking layer is called "0"."""
    return nn.Sequential(declare_spiking(nn.Identity()), *behind)


class Between(nn.Module):
    """pixels → Linear(4, 4) → Spike → `between` → Linear(…, 3): how the model is written stands in `between(model,
    spikes)`."""

    def __init__(
        self, between: Callable[..., Any], width: int = 4, head: nn.Module | None = None, **parts: Any
    ) -> None:
        super().__init__()
        self.encoder, self.spike, self.head = nn.Linear(4, 4), Spike(), nn.Linear(width, 3) if head is None else head
        self.between = between
        for name, part in parts.items():
            if isinstance(part, Tensor) and not isinstance(part, nn.Parameter):
                self.register_buffer(name, part)
            else:
                setattr(self, name, part)

    def forward(self, x: Tensor) -> Any:
        return self.head(self.between(self, self.spike(self.encoder(x))))


def psi(model: nn.Module, example: Any = None, layer: str = "spike", **options: Any) -> list[Any]:
    return trace(model, torch.zeros(2, 4) if example is None else example, **options)[layer].fan_out.tolist()


# ------------------------------------------------------------------------------------------------- numbers of the paper

PAPER = {
    ("cnn7", "uniform"): (59_688, 6, 98_895_888),
    ("cnn7", "paper"): (59_688, 6, 98_895_888),
    ("cnn7", "exact"): (59_688, 6, 98_895_888),  # nothing is padded, so the closed formula is exact in total
    ("resnet18", "uniform"): (671_744, 20, 553_730_048),
    ("vgg11", "uniform"): (249_856, 10, 827_367_424),
    ("vgg11", "paper"): (249_856, 10, 2_526_060_544),
}


@pytest.mark.parametrize(("name", "convention"), PAPER)
def test_the_integers_of_the_paper(name: str, convention: Any) -> None:
    net = zoo.create(name)
    synapses = trace(net, torch.zeros(1, *net.input_shape), psi=convention)
    assert (synapses.neurons, len(synapses.spiking), synapses.synapses) == PAPER[name, convention]
    assert synapses.to_dict()["penalty_at_one"] == dict(
        zip(("total", "balance", "syn"), PAPER[name, convention], strict=True)
    )


@pytest.mark.parametrize(
    ("name", "macs"),
    [
        ("cnn7", 64 * 15 * 15 * 9),
        pytest.param("vgg11", 64 * 3 * (3 * 32 - 2) ** 2, marks=pytest.mark.slow),
        pytest.param("resnet18", 64 * 3 * (3 * 32 - 2) ** 2, marks=pytest.mark.slow),
    ],
)
def test_the_encoders_of_the_paper(name: str, macs: int) -> None:
    net = zoo.create(name)
    assert trace(net, torch.zeros(1, *net.input_shape)).encoder_macs == macs


def test_exact_and_uniform_differ_by_neuron_and_agree_in_total() -> None:
    net = zoo.create("cnn7")
    exact, uniform = (trace(net, torch.zeros(1, 1, 32, 32), psi=p)["spike1"] for p in ("exact", "uniform"))
    assert uniform.fan_out.unique().tolist() == [pytest.approx(865.28)]
    assert exact.fan_out.min() < 865 < exact.fan_out.max()
    assert exact.synapses == uniform.synapses
    assert (exact.fan_out.dtype, uniform.fan_out.dtype) == (torch.int64, torch.float64)


@pytest.mark.parametrize(("size", "percent"), [(32, 4.3), (8, 19), (2, 125)])
def test_what_counting_without_borders_would_add(size: int, percent: float) -> None:
    synapses = trace(events(nn.Conv2d(2, 3, 3, padding=1)), torch.zeros(1, 2, size, size)).synapses
    naive = 9 * 3 * 2 * size**2
    assert 100 * (naive / synapses - 1) == pytest.approx(percent, abs=0.5)


# ------------------------------------------------------------------------------------------------- numbers of the peers

PEERS = {
    "SpikingJelly, Linear": (nn.Linear(4, 3), [[1.0, 0, 1, 0]], 6),
    "sinabs, Linear": (nn.Linear(3, 5), [[1.0, 1, 1], [2, 2, 1]], 20),
    "sinabs, Conv2d": (nn.Conv2d(1, 5, 2), [torch.eye(3)[None].tolist()], 30),
    "NeuroBench, Linear": (nn.Linear(20, 5), [[1.0] * 20] * 5, 100),
    "NeuroBench, Conv2d": (nn.Conv2d(1, 1, 3), torch.ones(1, 1, 12, 12).tolist(), 900),
}


@pytest.mark.parametrize("case", PEERS)
def test_the_peers_reference_numbers(case: str) -> None:
    layer, values, operations = PEERS[case]
    net, spikes = events(layer), torch.tensor(values)
    synapses = trace(net, spikes)
    with watch(net) as activity:
        net(spikes)
    assert (activity["0"] * synapses["0"].fan_out).sum().item() / len(spikes) == operations


def test_linear_over_ten_steps() -> None:
    net = events(nn.Linear(20, 5))
    synapses = trace(net, torch.zeros(1, 20))
    with watch(net, steps=10) as activity:
        for _ in range(10):
            net(torch.ones(5, 20))
    assert (activity["0"] * synapses["0"].fan_out).sum().item() / 5 == 1000


def test_analog_input_is_counted_apart() -> None:
    synapses = trace(nn.Sequential(nn.Linear(4, 3), Spike()), torch.full((2, 4), 0.5))
    assert synapses.encoder_macs * 2 == 24
    assert synapses.synapses == 0
    assert synapses["1"].fan_out.tolist() == [0, 0, 0]  # no synapses behind it: valid


# ------------------------------------------------------------------------------------------------- written in many ways


class Halved(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 0.5

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 0.5


def _no_grad(m: nn.Module, s: Tensor) -> Tensor:
    with torch.no_grad():
        return s * 2


def _inference(m: nn.Module, s: Tensor) -> Tensor:
    with torch.inference_mode():
        return s.clone()


def _in_place_skip(m: nn.Module, s: Tensor) -> Tensor:
    out = s.flip(1)
    out += s
    return out


def _written(m: nn.Module, s: Tensor) -> Tensor:
    out = torch.ones(len(s), 8)
    out[:, :4] = s
    out[:, 4:6] = 5
    out[:, 4:6] += s[:, :2]
    return out


def _written_through_a_view(m: nn.Module, s: Tensor) -> Tensor:
    out = s.new_zeros(len(s), 8)
    left, right = out[:, :4], out.view(-1).view(len(s), 8).narrow(1, 4, 4)
    left.copy_(s)
    right.add_(s)
    return out


def _alias_overwritten(m: nn.Module, s: Tensor) -> Tensor:
    s.detach().view(-1, 2, 2)[:, 0].add_(s.view(-1, 2, 2)[:, 1])
    return s


def _hooked(m: nn.Module, s: Tensor) -> Tensor:
    s.register_hook(lambda grad: grad * 100)
    return s


def _kept(m: nn.Module, s: Tensor) -> Tensor:
    m.log = {"spikes": [s, (s.flip(1),)]}
    return m.log["spikes"][0] + m.log["spikes"][1][0]


WRITTEN: dict[str, tuple[Callable[..., Any], list[int]]] = {
    "as it is": (lambda m, s: s, [3] * 4),
    "skip": (lambda m, s: s + s.flip(1), [6] * 4),
    "in-place skip": (_in_place_skip, [6] * 4),
    "both operands alike": (lambda m, s: s + s, [6] * 4),
    "no_grad": (_no_grad, [3] * 4),
    "inference_mode": (_inference, [3] * 4),
    "detach": (lambda m, s: s.detach(), [3] * 4),
    "data": (lambda m, s: s.data + s.data, [6] * 4),
    "detach_": (lambda m, s: s.detach_(), [3] * 4),
    "alias overwritten": (_alias_overwritten, [3, 3, 6, 6]),
    "gradient hook": (_hooked, [3] * 4),
    "nested containers": (_kept, [6] * 4),
    "iteration": (lambda m, s: torch.stack(list(s)), [3] * 4),
    "unpacking": (lambda m, s: torch.cat([a for a, b in zip(s.chunk(2), s.chunk(2), strict=True)]), [3] * 4),
    "sum of a list": (lambda m, s: sum([s, s, s]), [9] * 4),
    "shape of another": (lambda m, s: s[:, :1].expand_as(s) + s.flatten().view_as(s).type_as(s), [15, 3, 3, 3]),
    "keywords": (lambda m, s: torch.add(input=torch.mul(other=2, input=s), other=s, alpha=3), [6] * 4),
    "constant index": (lambda m, s: s[:, torch.tensor([0, 0, 1, 1])], [6, 6, 0, 0]),
    "boolean constant index": (lambda m, s: s[:, torch.tensor([True] * 4)], [3] * 4),
    "constant bias": (lambda m, s: s + torch.ones(4) - m.encoder.bias, [3] * 4),
    "rate logged as tensor": (lambda m, s: (setattr(m, "rate", s.mean()), s)[1], [3] * 4),
    "new tensors of its shape": (lambda m, s: s + torch.zeros_like(s) + s.new_ones(4) + torch.full_like(s, 2), [3] * 4),
    "bfloat16 and back": (lambda m, s: s.bfloat16().float(), [3] * 4),
}


@pytest.mark.parametrize("way", WRITTEN)
def test_a_spike_counts_however_it_is_written(way: str) -> None:
    between, expected = WRITTEN[way]
    assert psi(Between(between)) == expected


@pytest.mark.parametrize("between", [_written, _written_through_a_view])
def test_spikes_written_into_a_constant(between: Callable[..., Any]) -> None:
    assert psi(Between(between, 8)) == ([6, 6, 3, 3] if between is _written else [6] * 4)


def test_constants_written_beside_pixels_are_no_input() -> None:
    def with_a_constant(m: nn.Module, x: Tensor) -> Tensor:
        out = torch.ones(len(x), 8)
        out[:, :4] = x
        return out

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.spike = nn.Linear(8, 3), Spike()

        def forward(self, x: Tensor) -> Tensor:
            return self.spike(self.encoder(with_a_constant(self, x)))

    assert trace(Net(), torch.zeros(2, 4)).encoder_macs == 12


@pytest.mark.parametrize(
    ("example", "prepare"),
    [
        (torch.zeros(1, 4, dtype=torch.uint8), lambda x: x.float() / 255),
        (torch.zeros(1, 4, dtype=torch.uint8), lambda x: x / 255),
        (torch.zeros(1, 4, dtype=torch.uint8), lambda x: torch.flip(x, [1]).to(torch.float32)),
        (torch.zeros(1, 2, dtype=torch.int64), lambda x: EMBEDDING(x).flatten(1)),
        (torch.zeros(1, 4), lambda x: F.relu(x) * x.sigmoid().softmax(1)),
        (torch.zeros(1, 1), lambda x: (x - torch.zeros(1, 4)) / torch.ones(1, 4)),
        (torch.zeros(1, 4), lambda x: torch.fft.fft(x).abs()),
    ],
)
def test_pixels_stay_pixels_whatever_is_done_to_them(example: Tensor, prepare: Callable[[Tensor], Tensor]) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.encoder, self.spike = EMBEDDING, nn.Linear(4, 3), Spike()

        def forward(self, x: Tensor) -> Tensor:
            return self.spike(self.encoder(prepare(x)))

    assert trace(Net(), example).encoder_macs == 12


EMBEDDING = nn.Embedding(5, 2)


def conv_net(*, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=bias),
        nn.BatchNorm2d(2),
        Spike(),
        nn.Dropout(0.5),
        nn.AvgPool2d(2),
        nn.Conv2d(2, 3, 2, padding=1),
        Spike(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3, 10),
    )


def total(synapses: Synapses) -> tuple[int, int, int, int]:
    return synapses["2"].synapses, synapses["6"].synapses, synapses.encoder_macs, synapses.dense_macs


CONV_NET = (2 * 16 * 12, 3 * 9 * 10, 9 * 2 * 16, 288 + 2 * 4 * 12 + 30)


@pytest.mark.parametrize(
    "changed",
    [
        lambda net: net,
        lambda net: net.train(),
        lambda net: net.bfloat16(),
        lambda net: net.double(),
        lambda net: net.to(memory_format=torch.channels_last),
        lambda net: torch.compile(net, backend="eager"),
        lambda net: (net.compile(backend="eager"), net)[1],
        lambda net: (net[5].compile(backend="eager"), net)[1],
        lambda net: nn.SyncBatchNorm.convert_sync_batchnorm(net),
        lambda net: (parametrizations.weight_norm(net[5]), net)[1],
        lambda net: (parametrizations.spectral_norm(net[9]), net)[1],
        lambda net: (parametrizations.orthogonal(net[9]), net)[1],
        lambda net: net.requires_grad_(False),
    ],
    ids=(
        "plain train bf16 double channels_last compiled self_compiled part_compiled sync weight_norm spectral "
        "orthogonal frozen"
    ).split(),
)
def test_the_state_of_the_model_does_not_matter(changed: Callable[[nn.Module], Any]) -> None:
    net = changed(conv_net())
    dtype = next(net.parameters()).dtype
    assert total(trace(net, torch.zeros(3, 1, 6, 6, dtype=dtype))) == CONV_NET
    with torch.no_grad():
        assert total(trace(net, torch.zeros(1, 1, 6, 6, dtype=dtype))) == CONV_NET
    with torch.inference_mode():
        assert total(trace(net, torch.zeros(1, 1, 6, 6, dtype=dtype))) == CONV_NET
    with torch.autocast("cpu", torch.bfloat16):
        assert total(trace(net, torch.zeros(1, 1, 6, 6, dtype=dtype))) == CONV_NET


class Recurring(nn.Module):
    """x for T steps in a loop, or all at once."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps, self.encoder, self.spike, self.head = steps, nn.Linear(4, 4), Spike(), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if not self.steps:
            return self.head(self.spike(self.encoder(x)))
        current = self.encoder(x)  # once for all steps
        return torch.stack([self.head(self.spike(current)) for _ in range(self.steps)]).mean(0)


def test_time_in_every_layout() -> None:
    looped = trace(Recurring(5), torch.zeros(2, 4), steps=5)
    at_once = trace(Recurring(0), torch.zeros(5, 2, 4), steps=5, time_axis=0)
    second = trace(Recurring(0), torch.zeros(2, 5, 4), steps=5, time_axis=1)
    folded = trace(Recurring(0), torch.zeros(10, 4), steps=5, folded="time")
    once = trace(Recurring(0), torch.zeros(2, 4))
    assert {tuple(s["spike"].fan_out.tolist()) for s in (looped, at_once, second, folded, once)} == {(3, 3, 3, 3)}
    assert [s.dense_macs for s in (looped, at_once, second, folded, once)] == [28] * 5
    assert [s.encoder_macs for s in (looped, at_once, second, folded, once)] == [16, 80, 80, 80, 16]
    with pytest.raises(PicojouleError, match="steps=5"):
        trace(Recurring(5), torch.zeros(2, 4))


Pair = namedtuple("Pair", "spikes membrane")


@pytest.mark.parametrize(
    "returned", [lambda s, v: (s, v), lambda s, v: [s, v], lambda s, v: Pair(s, v), lambda s, v: (s, (v, v))]
)
def test_element_0_is_the_spikes(returned: Callable[..., Any]) -> None:
    class Neuron(nn.Module):
        def forward(self, u: Tensor) -> Any:
            return returned((u > 0).float(), u * 0.5)

    net = Between(lambda m, out: out[0])
    net.spike = declare_spiking(Neuron())
    assert psi(net) == [3] * 4
    net.between = lambda m, out: out[1] if isinstance(out[1], Tensor) else out[1][0]
    with pytest.raises(PicojouleError, match="the state of 'spike'"):
        trace(net, torch.zeros(1, 4), strict=True)


def test_two_inputs_and_event_input() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.spike, self.left, self.right = declare_spiking(nn.Identity()), nn.Linear(4, 3), nn.Linear(2, 3)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.left(self.spike(x)) + self.right(y) + self.left(x)

    synapses = trace(Net(), (torch.zeros(2, 4), torch.zeros(2, 2)))
    assert synapses["spike"].fan_out.tolist() == [3] * 4
    assert (synapses.encoder_macs, synapses.input_shape) == (6 + 12, (4,))


def test_membrane_read_out() -> None:
    """Logits may be a membrane potential, or spikes without synapses behind them."""

    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.v: Any = 0.0

        def forward(self, u: Tensor) -> Tensor:
            self.v = scripted(leak)(self.v + u)
            return (self.v > 1).float()

    net = events(nn.Linear(4, 3), declare_spiking(Leaky()))
    synapses = trace(net, torch.zeros(1, 4))
    assert (synapses["0"].synapses, synapses["2"].synapses, net[2].v) == (12, 0, 0.0)


def leak(v: Tensor) -> Tensor:
    return v * 0.9


def test_anything_may_happen_to_currents_and_logits() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.norm, self.spike, self.head = nn.Linear(4, 4), nn.LayerNorm(4), Spike(), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            spikes = self.spike(F.max_pool1d(self.norm(F.gelu(self.encoder(x))), 1) * torch.rand(4).cumsum(0))
            return F.softmax(F.layer_norm(self.head(spikes), (3,)), -1).log()

    assert psi(Net()) == [3] * 4


def test_voting_spikes_cost_nothing_unless_weights_vote() -> None:
    assert psi(Between(lambda m, s: s.softmax(1), head=nn.Identity())) == [0] * 4
    filtered = Between(lambda m, s: torch.fft.rfft(s) * torch.fft.rfft(m.encoder.bias), head=nn.Identity())
    with pytest.raises(PicojouleError, match=r"fft_rfft .* the model's output together with weights"):
        trace(filtered, torch.zeros(1, 4))


def test_pruned_weights_are_left_out() -> None:
    net = events(nn.Linear(4, 3))
    prune.custom_from_mask(net[1], "weight", torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0], [1, 0, 1, 0]]))
    assert psi(net, layer="0") == [3, 1, 1, 0]
    prune.random_unstructured(net[1], "bias", 1)
    assert psi(net, layer="0") == [3, 1, 1, 0]
    functional = Between(lambda m, s: F.linear(s, m.pruned.weight), head=nn.Identity(), pruned=net[1])
    assert psi(functional) == [3, 1, 1, 0]
    transposed = Between(lambda m, s: s @ m.pruned.weight.t(), head=nn.Identity(), pruned=net[1])
    assert psi(transposed) == [3, 1, 1, 0]


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks_are_right_or_refused(reentrant: bool) -> None:
    def of_currents(m: nn.Module, s: Tensor) -> Tensor:
        return checkpoint(lambda t: m.inner_spike(m.inner(t * 2)), s, use_reentrant=reentrant)

    def of_spikes(m: nn.Module, s: Tensor) -> Tensor:
        return checkpoint(lambda t: t.flip(1) + t, s, use_reentrant=reentrant)

    net = Between(of_currents, inner=nn.Linear(4, 4), inner_spike=Spike())
    if reentrant:
        for between in (of_currents, of_spikes):
            with pytest.raises(PicojouleError, match=r"hides its gradient .*use_reentrant=False"):
                trace(Between(between, inner=nn.Linear(4, 4), inner_spike=Spike()), torch.zeros(1, 4))
    else:
        assert (psi(net), psi(net, layer="inner_spike")) == ([4] * 4, [3] * 4)
        net = Between(of_spikes)
        assert psi(net) == [6] * 4


def test_relays() -> None:
    """A max pool's output is a spike map of its own; what is before it pays nothing through it."""
    net = nn.Sequential(
        declare_spiking(nn.Identity()), nn.MaxPool2d(2, return_indices=False), nn.Flatten(), nn.Linear(8, 3)
    )
    synapses = trace(net, torch.zeros(1, 2, 4, 4))
    assert (synapses["0"].synapses, synapses["1"].synapses, synapses["1"].relay) == (0, 24, True)
    assert (synapses.neurons, len(synapses.spiking)) == (32, 1)
    before_spikes = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(2, 1, 1), nn.MaxPool2d(2), Spike(), nn.Conv2d(1, 1, 1))
    synapses = trace(before_spikes, torch.zeros(1, 2, 4, 4))
    assert (list(synapses), synapses.encoder_macs) == (["3"], 8)


# ------------------------------------------------------------------------------------------------------------- refusals


def scripted(function: Callable[..., Any]) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(function)


@scripted
def scripted_step(u: Tensor) -> Tensor:
    return (u > 0).to(u.dtype)


@scripted
def scripted_product(u: Tensor, w: Tensor) -> Tensor:
    return torch.matmul(u, w)


class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor) -> Tensor:
        return (u > 0).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _clipped(m: nn.Module, s: Tensor) -> Tensor:
    s = s + s
    s[s > 1] = 1
    return s


def _scattered(m: nn.Module, s: Tensor) -> Tensor:
    out = torch.zeros(len(s), 4)
    out[s > 0] = 1
    return out


def _into_out(m: nn.Module, s: Tensor) -> Tensor:
    out = torch.zeros(len(s), 4)
    with torch.no_grad():
        torch.add(s, s, out=out)
    return out


def _constant_times_spikes(m: nn.Module, s: Tensor) -> Tensor:
    out = torch.ones(len(s), 4)
    out.mul_(s)
    return out


def _view_opaque(m: nn.Module, s: Tensor) -> Tensor:
    s = s.clone()
    s.view(-1).relu_()
    return s


def _data_set(m: nn.Module, s: Tensor) -> Tensor:
    out = torch.zeros(len(s), 4, dtype=torch.float64)
    out.data = s
    return out


def _swallowed(m: nn.Module, s: Tensor) -> Tensor:
    try:
        return torch.linalg.multi_dot([s, m.w])
    except Exception:
        return s


def _branch(m: nn.Module, s: Tensor) -> Tensor:
    return s + s if s.sum() > 0 else s


def _early_exit(m: nn.Module, s: Tensor) -> Tensor:
    return s if m.head(s).max().item() > 0.9 else s + s


def _partly_hidden(m: nn.Module, s: Tensor) -> Tensor:
    with torch.no_grad():
        hidden = Halved.apply(s)
    return s + hidden


REFUSED: dict[str, tuple[Callable[..., Any], str]] = {
    "MultiheadAttention": (lambda m, s: m.mha(s, s, s)[0], "multi_head_attention.* in module 'mha'"),
    "LSTM": (lambda m, s: m.lstm(s)[0], "lstm in module 'lstm'"),
    "LSTMCell": (lambda m, s: m.cell(s)[0], "lstm_cell in module 'cell'"),
    "gather by spikes": (lambda m, s: s.gather(1, s.long()), "in the model"),
    "layer norm": (lambda m, s: m.norm(s), "'head' is fed by layer_norm in module 'norm' with no spiking"),
    "softmax": (lambda m, s: s.softmax(1), "'head' is fed by softmax in the model"),
    "relu": (lambda m, s: F.relu(s), "relu in the model"),
    "relu in place": (lambda m, s: F.relu(s, inplace=True), "relu_? in the model"),
    "bilinear interpolation": (
        lambda m, s: F.interpolate(s[:, None, None], size=(1, 4), mode="bilinear").flatten(1),
        "interpolate in the model",
    ),
    "no neuron": (
        lambda m, s: m.inner(s),
        "linear in module 'head' is fed by linear in module 'inner' with no spiking",
    ),
    "bare function": (lambda m, s: Step.apply(m.inner(s)), "no spiking layer between.*declare_spiking"),
    "scripted function": (lambda m, s: scripted_step(m.inner(s)), "origin cannot be seen.*declare_spiking"),
    "autograd function on spikes": (lambda m, s: Halved.apply(s), "hides its gradient"),
    "autograd function on some spikes": (_partly_hidden, "hides its gradient"),
    "spikes through numpy": (lambda m, s: torch.from_numpy(s.detach().numpy()), "reads the value of an activation"),
    "spikes through a list": (lambda m, s: torch.tensor(s.tolist()), "reads the value of an activation"),
    "spikes copied by value": (lambda m, s: torch.as_tensor(s) + s, "as_tensor in the model"),
    "tensor of another origin": (lambda m, s: torch.from_numpy(np.ones((2, 4))) + s, "origin cannot be seen"),
    "branch on spikes": (_branch, "__bool__ in the model's forward pass.*depend on shapes or settings"),
    "early exit": (_early_exit, "item in the model"),
    "where": (lambda m, s: torch.where(s > 0, s, 0), "in the model"),
    "clamp": (lambda m, s: (s + s).clamp(max=1), "clamp in the model"),
    "clipped in place": (_clipped, "in the model"),
    "scattered by spikes": (_scattered, "in the model"),
    "indexed by spikes": (lambda m, s: m.w[s.long().sum(1)], "in the model"),
    "out=": (_into_out, "add in .* writes its result into out="),
    "constant times spikes in place": (_constant_times_spikes, "mul_ in the model"),
    "opaque through a view": (_view_opaque, "relu_ in the model"),
    ".data set": (_data_set, r"written to \.data"),
    "refusal swallowed": (_swallowed, "multi_dot in the model"),
    "linear by hand": (lambda m, s: (s.unsqueeze(1) * torch.eye(4)).sum(-1), "mul in .*synapses written by hand"),
    "scripted product": (lambda m, s: scripted_product(s, m.w), "m.* multiplies activations in a way"),
    "product past the tables": (lambda m, s: torch.linalg.matmul(s, m.w), "mm in .* multiplies activations in a way"),
    "kernel called directly": (lambda m, s: torch.ops.aten.addmm(m.encoder.bias, s, m.w), "addmm.* in a way"),
    "weight of no module": (lambda m, s: F.linear(s, LOOSE), "weight of linear .* neither a parameter nor a buffer"),
    "weight from data": (lambda m, s: F.linear(s, m.w * s.sum()), "multiplies"),
    "spikes as a kernel": (lambda m, s: F.linear(torch.ones(1, 4), s), "multiplies|fed by a constant"),
    "scaled by a stranger": (
        lambda m, s: s * LOOSE[0],
        "mul with a tensor that is no buffer of the model.*register that tensor",
    ),
    "recurrent state": (lambda m, s: s + m.inner_spike(m.inner(torch.ones(2, 4)) + m.inner(s)), "fed by a constant"),
    "recurrent buffer": (lambda m, s: s + m.inner_spike(m.inner(m.h + 1)), "fed by a constant.*reset it to zeros"),
    "max pool of scaled spikes": (
        lambda m, s: m.pool((s * 0.5)[:, None])[:, 0],
        "max pool 'pool' takes spikes that were",
    ),
}
LOOSE = torch.ones(4, 4)


@pytest.mark.parametrize("way", REFUSED)
def test_what_cannot_be_counted_is_refused_by_name(way: str) -> None:
    between, message = REFUSED[way]
    net = Between(
        between,
        mha=nn.MultiheadAttention(4, 2),
        lstm=nn.LSTM(4, 4),
        cell=nn.LSTMCell(4, 4),
        norm=nn.LayerNorm(4),
        inner=nn.Linear(4, 4),
        pool=nn.MaxPool1d(1),
        w=nn.Parameter(torch.ones(4, 4)),
        loose=[torch.ones(4, 4)],
        h=torch.zeros(2, 4),
    )
    if "recurrent" in way:
        net.inner_spike = Spike()
    with pytest.raises(PicojouleError, match=message):
        trace(net, torch.ones(2, 4), strict=True)


class Lambda(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.forward = function


SCRIPTED = scripted(nn.Linear(4, 3))
PRODUCTS: list[Callable[..., Tensor]] = [
    lambda x, w: SCRIPTED(x),
    lambda x, w: scripted_product(x, w),
    lambda x, w: torch.linalg.multi_dot([x, w, w]),
    lambda x, w: torch.convolution(x[:, None], w[:, None], None, [1], [0], [1], False, [0], 1),
    lambda x, w: torch.ops.aten.mv.default(w.to(x.dtype), x[0]),
    lambda x, w: (x.unsqueeze(1).expand(-1, 4, -1) * w).sum(-1),
    lambda x, w: (w * x.unsqueeze(1)).sum(-1),
]


@pytest.mark.parametrize("product", PRODUCTS)
def test_no_product_is_lost_even_at_an_end(product: Callable[..., Tensor]) -> None:
    parts = {"w": nn.Parameter(torch.ones(4, 4)), "scripted": SCRIPTED}
    of_spikes = Between(lambda m, s: product(s, m.w), head=nn.Identity(), **parts)
    of_pixels = Between(lambda m, s: s, head=nn.Identity(), **parts)
    of_pixels.encoder = Lambda(lambda x: product(x, of_pixels.w))
    for net in (of_spikes, of_pixels):
        with pytest.raises(PicojouleError, match="multiplies"):
            trace(net, torch.zeros(2, 4))


def test_products_inside_a_neuron_are_refused() -> None:
    class Recurrent(nn.Module):
        def __init__(self, product: Callable[..., Tensor]) -> None:
            super().__init__()
            self.product, self.w = product, nn.Parameter(torch.eye(4))

        def forward(self, u: Tensor) -> Tensor:
            return (u + self.product(u, self.w) > 0).float()

    for product in (torch.matmul, F.linear, torch.mm, scripted_product, torch.linalg.matmul):
        net = events(nn.Linear(4, 4), declare_spiking(Recurrent(product)))
        with pytest.raises(PicojouleError, match="the layer '2' multiplies by weights inside itself"):
            trace(net, torch.zeros(1, 4))


def test_weights_inside_a_neuron_are_refused_even_on_the_zeros_of_its_first_state() -> None:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.recurrent = nn.Linear(4, 4)

        def forward(self, u: Tensor) -> Tensor:
            return (u + self.recurrent(torch.zeros_like(u)) > 0).float()

    with pytest.raises(PicojouleError, match="the layer '2' multiplies by weights inside itself"):
        trace(events(nn.Linear(4, 4), declare_spiking(Recurrent())), torch.zeros(1, 4))


NORMED = Between(lambda m, s: m.norm(s), norm=nn.LayerNorm(4))


def test_rules_for_one_call_leave_nothing_behind() -> None:
    before = dict(rules.PASSING)

    def doubled(call: rules.Call) -> Any:
        return 2 * call.argument(0, "input")

    for rule, fan_out in ((rules.identity, 3), (doubled, 6), (rules.identity, 3)):
        traced = trace(NORMED, torch.zeros(1, 4), rules={"layer_norm": rule})
        assert traced["spike"].fan_out.tolist() == [fan_out] * 4
        with pytest.raises(PicojouleError, match="fed by layer_norm in module 'norm'"):
            trace(NORMED, torch.zeros(1, 4), strict=True)
    assert before == rules.PASSING


def test_rules_for_one_call_are_gone_after_an_exception() -> None:
    before = dict(rules.PASSING)

    def broken(call: rules.Call) -> Any:
        raise ZeroDivisionError("a rule of one's own")

    with pytest.raises(PicojouleError, match="a rule of one's own"):
        trace(NORMED, torch.zeros(1, 4), rules={"layer_norm": broken})
    assert before == rules.PASSING
    with pytest.raises(PicojouleError, match="fed by layer_norm in module 'norm'"):
        trace(NORMED, torch.zeros(1, 4), strict=True)


def test_a_rule_for_one_call_goes_before_a_declared_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules.PASSING, "layer_norm", rules.natural)  # taken back after the test
    rules.declare_rule("layer_norm", lambda call: NotImplemented)
    traced = trace(NORMED, torch.zeros(1, 4), rules={"layer_norm": rules.identity})
    assert traced["spike"].fan_out.tolist() == [3] * 4
    with pytest.raises(PicojouleError, match="layer_norm"):
        trace(NORMED, torch.zeros(1, 4), strict=True)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"linear": rules.identity}, "'linear' multiplies activations by weights, so it cannot be declared"),
        ({"einsum": rules.identity}, "'einsum' multiplies activations by weights, so it cannot be declared"),
        ({"hardtan": rules.identity}, "'hardtan' with .* is not a valid rule"),
        ({"hardtanh": "identity"}, "'hardtanh' with 'identity' is not a valid rule"),
        ({3: rules.identity}, "3 is not the name of an operation"),
        ([("hardtanh", rules.identity)], "is not a dictionary: give rules by the name of the operation"),
    ],
)
def test_rules_for_one_call_are_checked_before_anything_runs(given: Any, message: str) -> None:
    def never(m: nn.Module, s: Tensor) -> Tensor:
        raise AssertionError("the model ran")

    with pytest.raises(PicojouleError, match=message):
        trace(Between(never), torch.zeros(1, 4), rules=given)


def test_traces_of_several_threads_keep_their_rules_apart() -> None:
    def traced(factor: int) -> list[int]:
        def rule(call: rules.Call) -> Any:
            return factor * call.argument(0, "input")

        net = Between(lambda m, s: m.norm(s), norm=nn.LayerNorm(4))
        return trace(net, torch.zeros(1, 4), rules={"layer_norm": rule})["spike"].fan_out.tolist()

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(traced, range(1, 9)))
    assert found == [[3 * factor] * 4 for factor in range(1, 9)]


def test_declared_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rules.PASSING, "layer_norm", rules.natural)  # taken back after the test
    rules.declare_rule("layer_norm", rules.identity)
    assert psi(Between(lambda m, s: m.norm(s), norm=nn.LayerNorm(4))) == [3] * 4
    with pytest.raises(PicojouleError, match="cannot be declared"):
        rules.declare_rule("einsum", rules.identity)


def _mixed(m: nn.Module, x: Tensor) -> Tensor:
    return m.head(m.pool((m.spike(m.encoder(x)) + x)[:, None])[:, 0])


def test_pixels_in_a_max_pool_of_spikes_are_refused() -> None:
    class Net(Between):
        def forward(self, x: Tensor) -> Tensor:
            return _mixed(self, x)

    with pytest.raises(PicojouleError, match="max pool 'pool' takes spikes that were scaled or mixed"):
        trace(Net(lambda: None, pool=nn.MaxPool1d(1)), torch.zeros(1, 4))


def test_a_neuron_at_two_places() -> None:
    net = Between(lambda m, s: m.spike(m.inner(s)), inner=nn.Linear(4, 4))
    synapses = trace(net, torch.zeros(1, 4))
    assert {name: layer.fan_out.tolist() for name, layer in synapses.items()} == {"spike": [4] * 4, "spike@2": [3] * 4}
    assert {layer.kind for layer in synapses.values()} == {type(net.spike).__name__}
    meter, arrived = EnergyMeter(synapses), list[int]()
    for name in ("inner", "head"):
        net.get_submodule(name).register_forward_pre_hook(
            lambda m, args: arrived.append(int(args[0].sum()) * len(m.weight))
        )
    for steps in (1, 2):
        arrived.clear()
        with torch.no_grad(), watch(net, steps=steps) as activity:
            for _ in range(steps):
                net(torch.rand(3, 4) * 4)
            omega = Penalty(synapses, normalized=False)
        meter.reset()
        meter.update(activity)
        assert meter.compute().synops * 3 == pytest.approx(sum(arrived))
        with torch.no_grad():
            assert omega(activity).item() * 3 == pytest.approx(sum(arrived))


def test_a_loop_over_time_is_not_taken_for_places_and_a_state_needs_two_modules() -> None:
    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.spike, self.head = nn.Linear(4, 4), Spike(), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([self.head(self.spike(self.first(x))) for _ in range(3)])

    with pytest.raises(PicojouleError, match="if the network runs over time, say steps=3"):
        trace(Loop(), torch.zeros(1, 4))
    net = Between(lambda m, s: m.spike(m.inner(s)), inner=nn.Linear(4, 4))
    net.spike.register_buffer("state", torch.zeros(4))
    with pytest.raises(PicojouleError, match="make two modules"):
        trace(net, torch.zeros(1, 4))


def test_calls_that_are_said_to_be_steps_have_a_psi_each() -> None:
    net = Between(lambda m, s: m.spike(m.inner(s)), inner=nn.Linear(4, 4))
    synapses = trace(net, torch.zeros(1, 4), steps=2)  # said to be steps: each call has a ψ of its own
    assert [kind.fan_out.tolist() for kind in synapses["spike"].kinds] == [[4] * 4, [3] * 4]


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = Spike(), Spike()

    def forward(self, x: Tensor) -> Tensor:
        return self.a(x)


class WithAuxiliaryHead(nn.Module):
    """A second head that only training runs, as in networks that are deeply supervised."""

    def __init__(self, *auxiliary: nn.Module) -> None:
        super().__init__()
        self.spike, self.head = Spike(), nn.Linear(4, 3)
        self.auxiliary: nn.Module | None = nn.Sequential(*auxiliary)

    def forward(self, x: Tensor) -> Any:
        z = self.spike(x)
        return (self.head(z), self.auxiliary(z)) if self.training and self.auxiliary else self.head(z)


@pytest.mark.parametrize("auxiliary", [(nn.Linear(4, 2),), (nn.Linear(4, 2), Spike())], ids=["weights", "neurons"])
def test_a_head_that_runs_only_in_training_is_told_apart(auxiliary: tuple[nn.Module, ...]) -> None:
    net = WithAuxiliaryHead(*auxiliary)
    with pytest.raises(
        PicojouleError, match=r"only in training \(an auxiliary head\) .* trace it with None in that place"
    ):
        trace(net, torch.zeros(1, 4))
    assert net.training
    net.auxiliary = None
    assert trace(net, torch.zeros(1, 4)).synapses == 12


@pytest.mark.parametrize("fill", [torch.zeros_like, torch.ones_like, lambda z: z.new_ones(z.shape)])
def test_a_constant_shaped_like_spikes_feeds_no_synapses(fill: Callable[[Tensor], Tensor]) -> None:
    net = Between(lambda m, s: m.inner_spike(m.inner(fill(s))), inner=nn.Linear(4, 4), inner_spike=Spike())
    if fill is torch.zeros_like:  # a state before the first step
        synapses = trace(net, torch.zeros(1, 4))
        assert (synapses["spike"].synapses, synapses["inner_spike"].synapses, synapses.dense_macs) == (0, 12, 44)
        return
    with pytest.raises(PicojouleError, match=r"'inner' is fed by a constant, not by the input or spikes: .* as a bias"):
        trace(net, torch.zeros(1, 4))
    assert psi(Between(lambda m, s: s + torch.zeros_like(s))) == [3] * 4


@pytest.mark.parametrize(
    ("model", "example", "options", "message"),
    [
        (nn.Linear(4, 3), torch.zeros(1, 4), {}, "Linear has no spiking layer"),
        (Unused(), torch.zeros(1, 4), {}, "never called the spiking layer 'b'"),
        (
            conv_net(),
            torch.zeros(1, 3, 6, 6),
            {},
            r"forward pass failed on an example of shape \(1, 3, 6, 6\).*channel",
        ),
        (conv_net(), torch.zeros(1, 1, 6, 6), {"psi": "precise"}, "psi='precise' is not known: choose one of 'exact'"),
        (conv_net(), torch.zeros(0, 1, 6, 6), {}, "holds no sample"),
        (conv_net(), (), {}, "holds no sample"),
        (conv_net(), {"x": 1}, {}, "holds no sample"),
        (events(nn.Linear(4, 3)), torch.zeros(4), {}, "no axis beside the batch"),
        (nn.Sequential(nn.LazyLinear(3), Spike()), torch.zeros(1, 4), {}, "lazy modules"),
        (lambda x: x, torch.zeros(1, 4), {}, "trace needs an nn.Module"),
    ],
)
def test_users_mistakes(model: Any, example: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(PicojouleError, match=message):
        trace(model, example, **options)


# ------------------------------------------------------------------------------------------------------------- Synapses


def test_synapses_is_a_table() -> None:
    synapses = trace(conv_net(), torch.zeros(1, 1, 6, 6))
    assert (list(synapses), len(synapses), "6" in synapses) == (["2", "6"], 2, True)
    text = str(synapses)
    for shown in ("2×4×4", "384", "ψ = exact", "288"):
        assert shown in text
    assert repr(synapses) == "Synapses(2 layers, 59 neurons, 654 synapses, psi='exact')"
    first = synapses.to_dict()["layers"][0]
    assert first == {
        "name": "2",
        "shape": [2, 4, 4],
        "neurons": 32,
        "synapses": 384,
        "psi_min": 12,
        "psi_max": 12,
        "kind": "neurons",
    }
    assert math.isclose(sum(layer.synapses for layer in synapses.values()), 654)


def test_parametrized_weights_are_weights() -> None:
    class Doubled(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return F.linear(w, torch.eye(4)) * 2

    net = events(nn.Linear(4, 3))
    parametrize.register_parametrization(net[1], "weight", Doubled())
    assert psi(net, layer="0") == [3] * 4


# ------------------------------------------------------------------------------------------ what must not pass silently


def test_an_example_without_a_batch_axis_is_refused_by_a_convolution() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), Spike(), nn.Conv2d(4, 8, 3))
    with pytest.raises(PicojouleError, match=r"conv2d in module '0'.*no batch axis"):
        trace(net, torch.zeros(1, 10, 10))


class Merging(nn.Module):
    """Lays the features of every sample out as samples of their own before the neuron."""

    def __init__(self) -> None:
        super().__init__()
        self.spike, self.head = Spike(), nn.Linear(1, 3)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.head(self.spike(x.reshape(-1, 1)))
        return result


def test_layers_must_emit_as_many_samples_as_the_example_has() -> None:
    with pytest.raises(PicojouleError, match="emit 8 samples for an example of 2"):
        trace(Merging(), torch.zeros(2, 4))


@pytest.mark.parametrize(
    ("between", "width"),
    [
        (lambda m, s: (s * m.w).sum(-1, keepdim=True), 1),
        (lambda m, s: (s * m.w).mean(-1, keepdim=True), 1),
        (lambda m, s: (s.unsqueeze(1).expand(-1, 3, 4) * m.matrix).sum(-1), 3),
    ],
)
def test_synapses_written_by_hand_as_product_and_sum(between: Callable[..., Any], width: int) -> None:
    with pytest.raises(PicojouleError, match="synapses written by hand"):
        trace(Between(between, width, w=torch.ones(4), matrix=torch.ones(3, 4)), torch.zeros(1, 4))


def test_a_constant_for_each_channel_passes_connections() -> None:
    assert psi(Between(lambda m, s: s * m.w, w=torch.ones(4))) == [3, 3, 3, 3]


def test_a_declared_module_stays_declared_in_a_copy() -> None:
    net = events(nn.Linear(4, 3), Spike(), nn.Linear(3, 2))
    assert list(trace(copy.deepcopy(net), torch.zeros(1, 4))) == ["0", "2"]


def test_dropout_in_front_of_a_max_pool_is_refused() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), Spike(), nn.Dropout(0.5), nn.MaxPool2d(2), nn.Conv2d(2, 3, 1))
    with pytest.raises(PicojouleError, match=r"max pool '3'.*before any dropout"):
        trace(net, torch.zeros(1, 1, 6, 6))


@pytest.mark.parametrize("pool", [nn.AvgPool2d(2), nn.AdaptiveAvgPool2d(4)])
def test_every_average_pool_is_inverted_under_paper(pool: nn.Module) -> None:
    net = events(pool, nn.Conv2d(3, 2, 3, padding=1))
    example = torch.zeros(1, 3, 8, 8)
    assert trace(net, example, "paper").synapses == 4 * trace(net, example, "uniform").synapses


def test_paper_is_not_defined_for_a_ratio_that_is_not_whole() -> None:
    with pytest.raises(PicojouleError, match=r"avg_pool2d.*no whole ratio"):
        trace(events(nn.AvgPool2d(2), nn.Conv2d(3, 2, 3, padding=1)), torch.zeros(1, 3, 7, 7), "paper")


def test_identity_is_no_rule_for_what_changes_the_shape() -> None:
    net = Between(lambda m, s: s.amax(1, keepdim=True), width=1)
    with pytest.raises(PicojouleError, match=r"declare_rule\('amax', "):
        trace(net, torch.zeros(1, 4))
    with pytest.raises(PicojouleError, match=r"amax.*does not keep the shape"):
        trace(net, torch.zeros(1, 4), rules={"amax": rules.identity})


@pytest.mark.parametrize(("name", "rule"), [("hardtan", rules.identity), ("hardtanh", "identity")])
def test_what_is_no_rule(name: str, rule: Any) -> None:
    with pytest.raises(PicojouleError, match="is not a valid rule"):
        rules.declare_rule(name, rule)


class Encoded(nn.Module):
    """Linear(5, 6) once on the image, repeated over T = 4, Spike, Linear(6, 3) on every step or on the mean."""

    def __init__(self, mean: bool) -> None:
        super().__init__()
        self.encoder, self.spike, self.head, self.mean = nn.Linear(5, 6), Spike(), nn.Linear(6, 3), mean

    def forward(self, x: Tensor) -> Tensor:
        spikes = self.spike(self.encoder(x).unsqueeze(0).repeat(4, 1, 1))
        result: Tensor = self.head(spikes.mean(0) if self.mean else spikes)
        return result


@pytest.mark.parametrize("mean", [False, True])
def test_the_dense_twin_has_no_time(mean: bool) -> None:
    synapses = trace(Encoded(mean), torch.zeros(1, 5), steps=4, time_axis=0)
    assert synapses.dense_macs == 5 * 6 + 6 * 3
    assert synapses.encoder_macs == 5 * 6


class TwoEncoders(nn.Module):
    """Two weights of one shape on the image, then T = 2 steps of one neuron and one head."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Parameter(torch.zeros(6, 5)), nn.Parameter(torch.zeros(6, 5))
        self.spike, self.head = Spike(), nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        currents = F.linear(x, self.a) + F.linear(x, self.b)
        result: Tensor = self.head(self.spike(currents)) + self.head(self.spike(currents))
        return result


def test_weights_of_one_shape_are_told_apart() -> None:
    assert trace(TwoEncoders(), torch.zeros(1, 5), steps=2).dense_macs == 30 + 30 + 30


def test_the_input_shape_has_neither_time_nor_batch() -> None:
    net = events(nn.Linear(5, 3))
    assert trace(net, torch.zeros(4, 1, 5), steps=4, time_axis=0).input_shape == (5,)


def test_as_many_samples_as_steps_cannot_be_told_apart() -> None:
    with pytest.raises(PicojouleError, match="as many samples as time steps"):
        trace(events(nn.Linear(5, 3)), torch.zeros(4, 4, 5), steps=4, time_axis=0)


@pytest.mark.parametrize("held", [lambda spike: [spike], lambda spike: {"a": (nn.Sequential(spike),)}])
def test_a_spiking_layer_in_a_plain_list_is_refused_by_name(held: Callable[[nn.Module], Any]) -> None:
    def fire(m: Any, s: Tensor) -> Any:
        layer = m.plain[0] if isinstance(m.plain, list) else m.plain["a"][0]
        return layer(m.middle(s))

    net = Between(fire, plain=held(Spike()), middle=nn.Linear(4, 4))
    with pytest.raises(PicojouleError, match=r"Spike.* in 'plain' is not a module of the model.*nn\.ModuleList"):
        trace(net, torch.zeros(1, 4))
    unused = Between(lambda m, s: s, plain=held(Spike()))
    assert psi(unused) == [3, 3, 3, 3]
