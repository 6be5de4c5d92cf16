"""Products and gates of spikes: counts against one pair of spikes at a time, gradients against the polynomial's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import picojoule as pj
from picojoule import PicojouleError

HEADS, TOKENS, WIDTH = 2, 5, 3


class Fires(nn.Module):
    """Passes on the spikes that it is given, with the gradient of an identity."""

    def forward(self, x: Tensor) -> Tensor:
        return x.view_as(x)


class Of(nn.Module):
    """A function of the spikes q, k and v, given as the model's input [B, 3, tokens, heads · width]."""

    def __init__(self, function: Callable[..., Tensor], **parts: Any) -> None:
        super().__init__()
        self.function = function
        self.q, self.k, self.v = (pj.declare_spiking(Fires()) for _ in range(3))
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x: Tensor) -> Tensor:
        batch = len(x)

        def heads(t: Tensor) -> Tensor:
            return t.reshape(batch, TOKENS, HEADS, WIDTH).transpose(1, 2)

        q, k, v = (heads(fire(x[:, i])) for i, fire in enumerate((self.q, self.k, self.v)))
        return self.function(self, q, k, v)


def spikes(batch: int = 3, rate: float = 0.4, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(batch, 3, TOKENS, HEADS * WIDTH, generator=generator) < rate).float()


def counted(net: nn.Module, x: Tensor) -> tuple[pj.Synapses, pj.EnergyReport, Tensor]:
    synapses = pj.trace(net, torch.zeros(2, *x.shape[1:]))
    meter, penalty = pj.EnergyMeter(synapses), pj.Penalty(synapses, normalized=False)
    with pj.watch(net) as activity:
        net(x)
    meter.update(activity)
    report = meter.compute()
    omega = penalty(activity) if report.synops else torch.zeros(())
    assert float(omega.detach()) == pytest.approx(report.synops, rel=1e-6)
    assert report.joules == pytest.approx(0.9e-12 * report.synops)
    return synapses, report, omega


def pairs_one_by_one(a: Tensor, b: Tensor) -> int:
    """Walk over a product [n, k] · [k, m] spike by spike, and count each that meets another."""
    met = 0
    for n in range(a.shape[0]):
        for k in range(a.shape[1]):
            for m in range(b.shape[1]):
                met += int(a[n, k] * b[k, m])
    return met


def split(x: Tensor) -> list[Tensor]:
    return [t.reshape(len(x), TOKENS, HEADS, WIDTH).transpose(1, 2) for t in x.unbind(1)]


WAYS: dict[str, Callable[..., Tensor]] = {
    "@": lambda m, q, k, v: k.transpose(-2, -1) @ v,
    "matmul": lambda m, q, k, v: torch.matmul(k.mT, v),
    "bmm": lambda m, q, k, v: torch.bmm(k.flatten(0, 1).transpose(1, 2), v.flatten(0, 1)),
    "einsum": lambda m, q, k, v: torch.einsum("bhnk,bhnm->bhkm", k, v),
    "einsum in halves": lambda m, q, k, v: torch.einsum("...nk,...nm->...km", k, v),
    "scaled": lambda m, q, k, v: (k * 0.125).transpose(-2, -1) @ v,
    "by view": lambda m, q, k, v: k.reshape(len(k), HEADS, TOKENS, WIDTH).permute(0, 1, 3, 2) @ v.contiguous(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_product_of_spikes_costs_an_accumulate_for_each_pair_that_meets(way: str) -> None:
    x = spikes()
    synapses, report, _ = counted(Of(WAYS[way]), x)
    _, k, v = split(x)
    met = sum(pairs_one_by_one(a.T, b) for a, b in zip(k.flatten(0, 1), v.flatten(0, 1), strict=True))
    assert report.synops == met / len(x)
    (product,) = synapses.products
    assert product.synapses == synapses.synapses == HEADS * TOKENS * WIDTH * WIDTH
    assert pj.Penalty(synapses, normalized=False).at_one == HEADS * TOKENS * WIDTH * WIDTH


def test_one_attention_block_in_both_orders() -> None:
    x = spikes(batch=4)
    q, k, v = split(x)

    def each(*tensors: Tensor) -> Any:
        return zip(*(t.flatten(0, 1) for t in tensors), strict=True)

    linear = sum(pairs_one_by_one(b.T, c) + int(a.sum()) * WIDTH for a, b, c in each(q, k, v))
    square = sum(pairs_one_by_one(a, b.T) + int(c.sum()) * TOKENS for a, b, c in each(q, k, v))
    _, report, _ = counted(Of(lambda m, q, k, v: q @ (k.mT @ v)), x)
    assert report.synops == linear / len(x)
    _, report, _ = counted(Of(lambda m, q, k, v: (q @ k.mT) @ v), x)
    assert report.synops == square / len(x)
    _, report, _ = counted(Of(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v)), x)
    assert report.synops == square / len(x)


def test_causal_attention_counts_what_is_left_of_the_mask() -> None:
    x = spikes()
    q, k, v = (t.flatten(0, 1) for t in split(x))
    met = 0
    for a, b, c in zip(q, k, v, strict=True):
        for i in range(TOKENS):
            for j in range(i + 1):
                met += int((a[i] * b[j]).sum()) + int(c[j].sum())
    _, report, _ = counted(Of(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)), x)
    assert report.synops == met / len(x)


def test_the_gradient_of_a_product_is_the_number_of_spikes_that_it_meets() -> None:
    x = spikes().requires_grad_()
    _, _, omega = counted(Of(lambda m, q, k, v: k.mT @ v), x)
    omega.backward()
    _, k, v = split(x.detach())
    assert x.grad is not None
    _, of_k, of_v = split(x.grad * len(x))
    assert torch.equal(of_k, v.sum(-1, keepdim=True).expand_as(k))
    assert torch.equal(of_v, k.sum(-1, keepdim=True).expand_as(v))


GATES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "and": (lambda q, k, v: q * k, lambda q, k, v: q * k),
    "iand": (lambda q, k, v: q * (1 - k), lambda q, k, v: q * (1 - k)),
    "in place": (lambda q, k, v: q.clone().mul_(k), lambda q, k, v: q * k),
    "of a sum": (lambda q, k, v: (q + k) * v, lambda q, k, v: (q + k) * v),
    "twice": (lambda q, k, v: (q * k) * v, lambda q, k, v: q * k * v),
    "broadcast": (lambda q, k, v: q * k[..., :1], lambda q, k, v: q * k[..., :1]),
    "of scaled spikes": (lambda q, k, v: 0.25 * q * k, lambda q, k, v: q * k),
    "joined": (
        lambda q, k, v: torch.cat([q, k], -1) * torch.cat([v, q], -1),
        lambda q, k, v: torch.cat([q * v, k * q], -1),
    ),
    "pool": (lambda q, k, v: F.max_pool2d(q + k, (1, 3), 1), lambda q, k, v: (q + k).amax(-1, keepdim=True)),
}


@pytest.mark.parametrize("gate", GATES)
def test_a_gate_is_a_relay(gate: str) -> None:
    written, passed = GATES[gate]
    x = spikes()
    width = passed(*split(x)).shape[-1]
    net = Of(lambda m, q, k, v: m.head(written(q, k, v)), head=nn.Linear(width, 7))
    _, report, _ = counted(net, x)
    assert report.synops == 7 * float(passed(*split(x)).sum()) / len(x)


def test_a_gate_lets_whole_spikes_through_whatever_they_are_worth() -> None:
    """With a factor for each channel, as of a folded batch norm: what arrives behind it is spikes, not their values."""
    x = spikes()
    factors = nn.Parameter(torch.tensor([0.59375, 2.0, 1.0]))
    net = Of(lambda m, q, k, v: m.head((m.factors * q) * (k / 3)), factors=factors, head=nn.Linear(WIDTH, 7))
    _, report, _ = counted(net, x)
    q, k, _ = split(x)
    assert report.synops == 7 * float((q * k).sum()) / len(x)


def test_a_gate_of_scaled_spikes_behind_a_checkpoint_in_bfloat16_over_three_calls() -> None:
    """Spikes that are worth 0.59 each, and so 1.76 if there are three of them, are one and three all the same."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.fire = pj.declare_spiking(Fires()), pj.declare_spiking(Fires()), pj.Spike(0.1)
            self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 7)

        def forward(self, x: Tensor) -> Tensor:
            a = 0.59375 * self.a(x)
            z = checkpoint(lambda t: self.fire(self.inner(t)), a, use_reentrant=False)
            out: Tensor = self.head(a * self.b(x) + a * z)
            return out

    torch.manual_seed(0)
    net = Net().bfloat16()
    frames = torch.randint(0, 4, (3, 5, 4)).bfloat16()
    fired = [net.fire(net.inner(0.59375 * x)).detach().double() for x in frames]
    expected = sum(
        float(x.double().sum() * 4 + 7 * (x.double() * (x.double() + z)).sum())
        for x, z in zip(frames, fired, strict=True)
    )
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(2, 4, dtype=torch.bfloat16)))
    with torch.no_grad(), pj.watch(net, steps=3) as activity:
        for x in frames:
            net(x)
    meter.update(activity)
    assert meter.compute().synops == pytest.approx(expected / 5, rel=1e-12)


@pytest.mark.parametrize("product", [torch.mul, lambda a, b: a.mT @ b], ids=["gate", "pairs"])
def test_one_minus_two_spikes_is_refused(product: Callable[..., Tensor]) -> None:
    """Also where what is negative and what is positive add up to a number that looks right."""
    net = Of(lambda m, q, k, v: product(q, 1 - (k + v)).sum((1, 2, 3)))
    x = torch.ones(1, 3, TOKENS, HEADS * WIDTH)
    x[:, 1:, :-1] = 0
    with pytest.raises(PicojouleError, match=r"'(mul|matmul)' makes negative values"):
        counted(net, x)


@pytest.mark.parametrize(
    "scaled",
    [
        lambda m, q, k: 0.5 * k,
        lambda m, q, k: 2 * k,
        lambda m, q, k: -k,
        lambda m, q, k: k / 3,
        lambda m, q, k: k.mean(-1, keepdim=True),
        lambda m, q, k: F.avg_pool2d(k, (1, 3)),
        lambda m, q, k: F.dropout(k, 0.5),
        lambda m, q, k: m.factors * k,
        lambda m, q, k: (0.5 * k).unsqueeze(-1).flatten(-2),
        lambda m, q, k: (0.5 * k) * q,
    ],
)
@pytest.mark.parametrize("product", [torch.mul, lambda a, b: a.mT @ b], ids=["gate", "pairs"])
def test_one_minus_scaled_spikes_is_no_gate(product: Callable[..., Tensor], scaled: Callable[..., Tensor]) -> None:
    """1 - s / 2 lets every spike through, half or whole."""
    net = Of(lambda m, q, k, v: product(v, 1 - scaled(m, q, k)).sum((1, 2, 3)), factors=nn.Parameter(torch.ones(WIDTH)))
    with pytest.raises(PicojouleError, match=r"subtracted from each other \(or from a number, if they were scaled"):
        pj.trace(net, torch.zeros(2, 3, TOKENS, HEADS * WIDTH))


@pytest.mark.parametrize(
    "masked", [lambda m, k: k * m.mask, lambda m, k: 1 * k, lambda m, k: k.repeat(1, 1, 1, 1), lambda m, k: k.detach()]
)
def test_one_minus_masked_spikes_stays_a_gate(masked: Callable[..., Tensor]) -> None:
    x, mask = spikes(), torch.tensor([1.0, 0, 1])
    net = Of(lambda m, q, k, v: m.head(q * (1 - masked(m, k))), head=nn.Linear(WIDTH, 7), mask=nn.Buffer(mask))
    q, k, _ = split(x)
    _, report, _ = counted(net, x)
    assert report.synops == 7 * float((q * (1 - masked(net, k))).sum()) / len(x)


@pytest.mark.parametrize(
    "stopping",
    [
        lambda v: 1 - v,
        lambda v: 0.5 * (1 - v),
        lambda v: (1 - v).unsqueeze(0)[0],
        lambda v: (1 - v).mT.mT,
        lambda v: 1 - v.flip(-1),
    ],
)
def test_a_spike_that_stops_a_value_is_free_however_it_is_moved(stopping: Callable[[Tensor], Tensor]) -> None:
    x = spikes()
    q, _, v = split(x)
    inner = nn.Linear(WIDTH, WIDTH)
    _, report, _ = counted(Of(lambda m, q, k, v: m.inner(q) * stopping(v), inner=inner), x)
    assert report.synops == float(q.sum()) * WIDTH / len(x)
    _, report, _ = counted(Of(lambda m, q, k, v: m.inner(q) * (stopping(v) + q), inner=inner), x)
    assert report.synops == float(q.sum() * (WIDTH + 1) + v.sum()) / len(x)


def test_named_factors_keep_their_sides_in_whatever_order_they_are_given() -> None:
    x = spikes()
    q, k, v = split(x)
    inner = nn.Linear(WIDTH, 4)
    reached = float(v.sum()) * 4
    of: dict[Callable[..., Tensor], float] = {
        lambda m, q, k, v: torch.matmul(other=m.inner(v), input=k.mT): reached + float(k.sum()) * 4,
        lambda m, q, k, v: torch.matmul(other=q, input=m.inner(v).mT): reached + float(q.sum()) * 4,
        lambda m, q, k, v: torch.bmm(mat2=v.flatten(0, 1), input=k.flatten(0, 1).mT): sum(
            pairs_one_by_one(a.T, b) for a, b in zip(k.flatten(0, 1), v.flatten(0, 1), strict=True)
        ),
    }
    for function, synops in of.items():
        assert counted(Of(function, inner=inner) if "inner" in function.__code__.co_names else Of(function), x)[
            1
        ].synops == pytest.approx(synops / len(x), rel=1e-12)


@pytest.mark.parametrize("equation", ["bhnk,bhnk->bhnk", "bhnk,bhmj->bhnkmj"])
def test_an_einsum_that_adds_nothing_up_is_a_gate_and_has_to_be_written_as_one(equation: str) -> None:
    net = Of(lambda m, q, k, v: torch.einsum(equation, k, v))
    with pytest.raises(PicojouleError, match=r"one by one, which is a gate: write it as a \* b"):
        pj.trace(net, torch.zeros(2, 3, TOKENS, 6))
    x = spikes()
    _, report, _ = counted(Of(lambda m, q, k, v: torch.einsum(equation, m.inner(k), v), inner=nn.Linear(3, 3)), x)
    _, k, v = split(x)
    each = 1 if equation.endswith("bhnk") else TOKENS * WIDTH
    assert report.synops == float(k.sum() * 3 + v.sum() * each) / len(x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.float16, torch.bfloat16])
def test_neurons_that_emit_another_type_are_added_up_without_an_overflow(dtype: torch.dtype) -> None:
    largest = {torch.bool: 1, torch.uint8: 200, torch.int8: 100, torch.int32: 2**20}.get(dtype, 250)

    class Emits(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x * largest).to(dtype)

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = (pj.declare_spiking(Emits()) for _ in range(3))
            self.head = nn.Linear(4, 5)

        def forward(self, x: Tensor) -> Tensor:
            a, b, c = (fire(x).float() for fire in (self.a, self.b, self.c))
            out: Tensor = self.head((a + b) * c)
            return out

    _, report, _ = counted(Net(), torch.ones(2, 4))
    assert report.synops == 2 * largest * largest * 4 * 5


def test_pairs_of_neighbouring_steps_are_counted_in_as_many_steps_as_were_traced() -> None:
    """They meet at each border between two steps, of which there are more than two halves of a run have."""

    class Meets(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fire, self.delayed = pj.declare_spiking(Fires()), pj.declare_spiking(Fires())

        def forward(self, x: Tensor) -> Tensor:
            before, out = None, torch.zeros(len(x), 1, 1)
            for frame in x.unbind(1):
                now = self.fire(frame)
                out = out if before is None else out + now.unsqueeze(1) @ before.unsqueeze(2)
                before = self.delayed(frame)
            return out

    steps, net = 2, Meets()
    x = (torch.rand(3, 2 * steps, 6) < 0.5).float()
    meter = pj.EnergyMeter(pj.trace(net, torch.zeros(1, steps, 6), steps=steps))
    with pj.watch(net, steps=steps) as activity:
        net(x[:, :steps])
    meter.update(activity)
    assert meter.compute().synops == pytest.approx(float((x[:, 1:steps] * x[:, : steps - 1]).sum()) / 3)
    with pj.watch(net, steps=2 * steps) as activity:
        net(x)
    meter.reset()
    with pytest.raises(PicojouleError, match=f"traced with {steps} time steps in a call and cannot be counted in"):
        meter.update(activity)
    with pj.watch(net, steps=2 * steps) as activity:
        net(x[:, :steps])
        net(x[:, steps:])
    meter.update(activity)
    borders = [t for t in range(1, 2 * steps) if t != steps]
    assert meter.compute().synops == pytest.approx(sum(float((x[:, t] * x[:, t - 1]).sum()) for t in borders) / 3)


def test_products_and_gates_with_analog_values() -> None:
    x = spikes()
    q, k, v = split(x)
    inner = nn.Linear(WIDTH, WIDTH)
    reached = float(q.sum()) * WIDTH  # of the layer `inner`

    def of(function: Callable[..., Tensor], **parts: nn.Module) -> tuple[pj.Synapses, float]:
        synapses, report, _ = counted(Of(function, inner=inner, **parts), x)
        return synapses, report.synops * len(x)

    each = HEADS * TOKENS * WIDTH
    assert of(lambda m, q, k, v: m.inner(q).mT @ v)[1] == reached + float(v.sum()) * WIDTH
    assert of(lambda m, q, k, v: v.mT @ m.inner(q))[1] == reached + float(v.sum()) * WIDTH
    assert of(lambda m, q, k, v: m.inner(q) * v)[1] == reached + float(v.sum())
    assert of(lambda m, q, k, v: m.inner(q) * (1 - v))[1] == reached
    for function, macs, name in (
        (lambda m, q, k, v: m.head(m.inner(q)), 4 * each, "head"),
        (lambda m, q, k, v: m.head(F.layer_norm(m.inner(q), (WIDTH,))), 4 * each, "head"),
        (lambda m, q, k, v: m.head(m.inner(q) + v), 4 * each, "head"),
        (lambda m, q, k, v: m.head(torch.cat([m.inner(q), k], 2)), 4 * each, "head"),
    ):
        synapses, _ = of(function, head=nn.Linear(WIDTH, 4))
        assert [(entry.name, entry.macs) for entry in synapses.analog] == [(name, macs)]
        with pytest.raises(PicojouleError, match="'head' is fed by linear in module 'inner' with no spiking"):
            pj.trace(Of(function, inner=inner, head=nn.Linear(WIDTH, 4)), torch.zeros(2, 3, TOKENS, 6), strict=True)
    synapses, _ = of(lambda m, q, k, v: m.inner(q) @ m.inner(q).mT)
    assert synapses.analog_macs == HEADS * TOKENS * TOKENS * WIDTH
    synapses, _ = of(lambda m, q, k, v: m.inner(q) * m.inner(q))
    assert synapses.analog_macs == each
    assert of(lambda m, q, k, v: m.head(torch.cat([m.inner(q), k], 2)), head=nn.Linear(WIDTH, 4))[1] == (
        reached + 4 * float(k.sum())
    )


def test_spikes_without_weights_are_unit_synapses() -> None:
    x = spikes()
    q, k, v = split(x)
    net = Of(lambda m, q, k, v: m.fire((k * v).sum(-2) + q.sum(-2)), fire=pj.Spike())
    synapses, report, _ = counted(net, x)
    assert report.synops == report.unit_synops == float((k * v).sum() + q.sum()) / len(x)
    assert synapses.unit_synapses == synapses.synapses == 2 * HEADS * TOKENS * WIDTH


def test_samples_that_meet_are_refused() -> None:
    for mixing in (lambda m, q, k, v: q.flatten(0, 2) @ k.flatten(0, 2).T, lambda m, q, k, v: m.head(q * k.flip(0))):
        head = nn.Linear(WIDTH, 1)
        net = Of(mixing, head=head) if "head" in mixing.__code__.co_names else Of(mixing)
        with pytest.raises(PicojouleError, match=r"samples|in a batch of"):
            pj.trace(net, torch.zeros(2, 3, TOKENS, 6))


def test_time_in_every_layout() -> None:
    steps, x = 4, spikes(batch=8)

    class Step(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k = pj.declare_spiking(Fires()), pj.declare_spiking(Fires())
            self.head = nn.Linear(6, 3)

        def forward(self, x: Tensor) -> Tensor:
            q, k = self.q(x[..., 0, :, :]), self.k(x[..., 1, :, :])
            return (q.mT @ k).sum((-2, -1)) + self.head(q * k).sum((-2, -1))

    class Loop(Step):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([super(Loop, self).forward(each) for each in x])

    frames = x.reshape(steps, 2, *x.shape[1:])
    net, loop = Step(), Loop()
    q, k = x[:, 0], x[:, 1]
    expected = float((q.mT @ k).sum() + 3 * (q * k).sum()) / 2
    cases: list[tuple[nn.Module, Tensor, dict[str, Any], dict[str, Any], list[Tensor]]] = [
        (net, torch.zeros(3, *x.shape[1:]), {}, {"steps": steps}, list(frames)),
        (net, torch.zeros(steps, 3, *x.shape[1:]), {"steps": steps, "time_axis": 0}, {}, [frames]),
        (net, torch.zeros(3 * steps, *x.shape[1:]), {"steps": steps, "folded": "time"}, {}, [x]),
        (loop, torch.zeros(steps, 3, *x.shape[1:]), {"steps": steps}, {}, [frames]),
    ]
    for model, example, traced, watched, calls in cases:
        synapses = pj.trace(model, example, **traced)
        meter = pj.EnergyMeter(synapses)
        with pj.watch(model, **(traced | watched)) as activity:
            for call in calls:
                model(call)
        meter.update(activity)
        assert meter.compute().synops == expected
        assert synapses.synapses == 5 * 6 * 6 + 5 * 6 * 3


def test_the_block_of_spikingformer_8_512() -> None:
    """Eight heads of 196 tokens and 64 values in four steps, at rates q .172, k .036, v .070."""
    steps, heads, tokens, width = 4, 8, 196, 64
    generator = torch.Generator().manual_seed(1)
    q, k, v = (
        (torch.rand(steps, heads, tokens, width, generator=generator) < rate).float() for rate in (0.172, 0.036, 0.070)
    )

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (pj.declare_spiking(nn.Identity()) for _ in range(3))

        def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return self.q(q) @ (self.k(k).transpose(-2, -1) @ self.v(v)) * 0.125

    net = Block()
    synapses = pj.trace(net, tuple(x[:1] for x in (q, k, v)))
    assert synapses.synapses * steps == 51_380_224  # dense
    meter = pj.EnergyMeter(synapses)
    for step in range(steps):  # one meter for all steps, each as a sample
        with pj.watch(net) as activity:
            net(*(x[step : step + 1] for x in (q, k, v)))
        meter.update(activity)
    report = meter.compute()
    pairs = sum(int(a.sum()) * int(b.sum()) for a, b in zip(k.flatten(0, 2), v.flatten(0, 2), strict=True))
    assert round(report.synops * steps) == pairs + int(q.sum()) * width
    assert 4.4e6 < report.synops * steps < 4.6e6
