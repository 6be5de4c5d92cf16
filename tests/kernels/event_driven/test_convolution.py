"""Convolutions by their active inputs against PyTorch's dense ones in float64, whatever the shape."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from picojoule.kernels.event_driven import geometry
from picojoule.kernels.event_driven.active_inputs import active_inputs, dense_inputs
from picojoule.kernels.event_driven.convolution import event_convolution
from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.event_driven.measurement import MOST
from picojoule.kernels.thread_count import threads

CHANNELS = st.one_of(st.integers(1, 20), st.sampled_from((31, 32, 33, 63, 64, 65, 70, 128, 130)))
KINDS = {"float32": torch.float32, "bfloat16": torch.bfloat16}
VALUES = ("ones", "scaled", "pooled", "sums", "signed")
"""What active inputs are: spikes, spikes behind dropout, pooled ones, residual sums above one, spikes of both signs."""


@dataclass(frozen=True)
class Case:
    shape: Geometry
    activity: float
    values: str
    kind: str
    bias: bool
    channels_last: bool
    seed: int

    def tensors(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
        """Inputs, weight, bias and the gradient of the output, all rounded to the kind."""
        s, source = self.shape, torch.Generator().manual_seed(self.seed)
        x = (torch.rand(s.images, s.groups * s.inputs, *s.map, generator=source) < self.activity).float()
        if self.values == "scaled":
            x *= 1 / 0.7
        elif self.values == "pooled":
            x *= torch.randint(1, 4, x.shape, generator=source) / 4
        elif self.values == "sums":
            x *= torch.randint(1, 6, x.shape, generator=source)
        elif self.values == "signed":
            x *= 2 * torch.randint(2, x.shape, generator=source) - 1
        weight = torch.randn(s.groups * s.outputs, s.inputs, *s.kernel, generator=source)
        bias = torch.randn(len(weight), generator=source) if self.bias else None
        grad = torch.randn(s.images, len(weight), *s.out_map, generator=source)
        layout = torch.channels_last if self.channels_last else torch.contiguous_format
        x, weight, grad = (t.to(KINDS[self.kind]).contiguous(memory_format=layout) for t in (x, weight, grad))
        return x, weight.float(), None if bias is None else bias.to(x.dtype).float(), grad


@st.composite
def cases(draw: st.DrawFn) -> Case:
    pair = st.tuples(st.integers(1, 3), st.integers(1, 3))
    kernel, dilation, kind = draw(pair), draw(pair), draw(st.sampled_from(tuple(KINDS)))
    # PyTorch 2.13's own convolution ends the process where outputs see nothing but padding.
    most = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    padding = draw(st.tuples(st.integers(0, min(most[0], 2)), st.integers(0, min(most[1], 3))))
    least = [max(d * (k - 1) + 1 - 2 * p, 1) for k, d, p in zip(kernel, dilation, padding, strict=True)]
    height, width = (draw(st.integers(size, size + 4)) for size in least)
    shape = Geometry(
        images=draw(st.integers(0, 4)),
        groups=draw(st.integers(1, 3)),
        inputs=draw(CHANNELS),
        outputs=draw(CHANNELS),
        map=(height, width),
        kernel=kernel,
        stride=draw(pair),
        padding=padding,
        dilation=dilation,
    )
    return Case(
        shape,
        draw(st.sampled_from((0.0, 0.02, 0.1, 0.5, 1.0))),
        draw(st.sampled_from(VALUES)),
        kind,
        draw(st.booleans()),
        draw(st.booleans()),
        draw(st.integers(0, 1 << 30)),
    )


Results = tuple[Tensor, ...]


def by_events(case: Case) -> Results:
    x, weight, bias, grad = case.tensors()
    leaves = [t.requires_grad_() for t in (x, weight, bias) if t is not None]
    y, _ = event_convolution(x, weight, bias, case.shape)
    return y.detach(), *torch.autograd.grad(y, leaves, grad)


def dense(case: Case, kind: torch.dtype) -> Results:
    """Numbers of this kind, summed as float32 at least and rounded at the end."""
    sums = torch.float32 if kind is torch.bfloat16 else kind
    x, weight, bias, grad = (None if t is None else t.to(kind).to(sums) for t in case.tensors())
    assert x is not None
    assert weight is not None
    s = case.shape
    leaves = [t.requires_grad_() for t in (x, weight, bias) if t is not None]
    y = torch.conv2d(x, weight, bias, s.stride, s.padding, s.dilation, s.groups)
    return tuple(t.detach().to(kind) for t in (y, *torch.autograd.grad(y, leaves, grad)))


def distance(a: Tensor, exact: Tensor) -> float:
    return float((a.double() - exact).norm())


def sums_of_magnitudes(case: Case) -> Results:
    """What each result would be if nothing cancelled out: its roundings are a share of that."""
    x, weight, bias, grad = (None if t is None else t.double().abs() for t in case.tensors())
    assert x is not None
    assert weight is not None
    s = case.shape
    leaves = [t.requires_grad_() for t in (x, weight, bias) if t is not None]
    y = torch.conv2d(x, weight, bias, s.stride, s.padding, s.dilation, s.groups)
    return y.detach(), *torch.autograd.grad(y, leaves, grad)


@settings(max_examples=30, deadline=None)
@given(cases())
def test_no_further_from_the_exact_result_than_twice_the_dense_layer(case: Case) -> None:
    ours, theirs, exact = by_events(case), dense(case, KINDS[case.kind]), dense(case, torch.float64)
    sizes = sums_of_magnitudes(case)
    for name, mine, other, true, size in zip(("y", "x", "weight", "bias"), ours, theirs, exact, sizes, strict=False):
        assert mine.shape == true.shape
        # Of few numbers, dense ones may be exact by chance where ours are off by some roundings.
        chance = torch.finfo(mine.dtype).eps * float(size.norm())
        assert distance(mine, true) <= 2 * distance(other, true) + chance, name


@pytest.mark.parametrize("activity", [0.02, MOST])
@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_with_many_numbers_chance_has_no_part(kind: str, values: str, activity: float) -> None:
    case = Case(Geometry(8, 2, 70, 100, (9, 8), (3, 2), (1, 1), (1, 0)), activity, values, kind, True, True, seed=6)
    ours, theirs, exact = by_events(case), dense(case, KINDS[case.kind]), dense(case, torch.float64)
    for name, mine, other, true in zip(("y", "x", "weight"), ours, theirs, exact, strict=False):
        assert distance(mine, true) <= 2 * distance(other, true), name


CASE = Case(
    Geometry(9, 2, 70, 100, (9, 8), (3, 2), (1, 1), (1, 0), (1, 1)), 0.15, "scaled", "float32", True, True, seed=1
)


@pytest.mark.parametrize("values", ["ones", "pooled"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_bits_do_not_depend_on_the_threads(kind: str, values: str) -> None:
    case = Case(CASE.shape, 0.2, values, kind, True, True, seed=2)
    with threads(1):
        alone = by_events(case)
    for count in (2, 3):
        with threads(count):
            assert all(torch.equal(a, b) for a, b in zip(alone, by_events(case), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_work_cut_up_for_a_small_cache_is_the_same_work(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = Geometry(7, 1, 40, 128, (8, 8), (4, 3), (1, 1), (2, 1), (1, 1))
    case = Case(shape, 0.3, "pooled", kind, False, True, seed=3)
    whole = by_events(case)
    monkeypatch.setattr(geometry, "CACHE", 1 << 12)
    monkeypatch.setattr(geometry, "ROWS", 1 << 12)
    assert shape.kernel_rows_at_once(4) == shape.images_at_once(4) == 1
    assert shape.parts(4) == [range(1), range(1, 2)]
    for a, b in zip(whole, by_events(case), strict=True):
        torch.testing.assert_close(a, b)


@given(cases())
def test_the_inputs_can_be_made_again(case: Case) -> None:
    x, *_ = case.tensors()
    found = active_inputs(x.permute(0, 2, 3, 1).contiguous(), case.shape)
    assert found.total == int(x.count_nonzero())
    assert torch.equal(dense_inputs(found, case.shape, x.dtype), x)


def bytes_kept(y: Tensor) -> int:
    """Memory of what autograd keeps for a node, each tensor as the packed thing it is."""
    node: Any = y.grad_fn
    return sum(t.numel() * t.element_size() for t in node.saved_tensors if t is not None)


def test_inputs_are_kept_as_bits() -> None:
    x = (torch.rand(10, 64, 8, 8) < 0.1).float().requires_grad_()
    weight = torch.randn(16, 64, 3, 3, requires_grad=True)
    y, active = event_convolution(x, weight, None, Geometry(10, 1, 64, 16, (8, 8), (3, 3)))
    assert active == int(x.count_nonzero())
    assert bytes_kept(y) - 4 * weight.numel() <= x.numel() / 8 + 1000


def test_inputs_are_freed() -> None:
    scale = torch.ones((), requires_grad=True)
    x = (torch.rand(10, 64, 8, 8) < 0.1) * scale
    gone = weakref.ref(x)
    weight = torch.randn(16, 64, 3, 3, requires_grad=True)
    y, _ = event_convolution(x, weight, None, Geometry(10, 1, 64, 16, (8, 8), (3, 3)))
    del x
    assert gone() is None
    y.sum().backward()


def test_numbers_that_are_not_numbers_are_passed_on() -> None:
    x = torch.zeros(1, 3, 1, 1)
    x[0, 1] = torch.nan
    y, _ = event_convolution(x, torch.ones(4, 3, 1, 1), None, Geometry(1, 1, 3, 4, (1, 1), (1, 1)))
    assert y.isnan().all()


SMALL = Geometry(2, 2, 3, 2, (4, 5), (2, 3), (1, 2), (1, 1), (1, 1))


@pytest.mark.parametrize("values", ["ones", "pooled"])
def test_second_derivatives_are_those_of_the_dense_layer(values: str) -> None:
    case = Case(SMALL, 0.5, values, "float32", True, True, seed=4)
    s = case.shape

    def second(layer: Callable[..., Tensor]) -> list[Tensor]:
        x, weight, bias, _ = (t.requires_grad_() for t in case.tensors() if t is not None)
        y = layer(x * 2 - x, weight * 1, bias * 1)  # none of them a leaf
        first = torch.autograd.grad(y.square().sum(), (x, weight, bias), create_graph=True)
        return [*first, *torch.autograd.grad(sum(g.square().sum() for g in first), (x, weight, bias))]

    ours = second(lambda x, weight, bias: event_convolution(x, weight, bias, s)[0])
    dense = second(lambda *tensors: torch.conv2d(*tensors, s.stride, s.padding, s.dilation, s.groups))
    torch.testing.assert_close(ours, dense, rtol=1e-4, atol=1e-3)


def test_many_gradients_at_once_are_those_of_the_dense_layer() -> None:
    case = Case(SMALL, 0.5, "ones", "float32", False, True, seed=5)
    x, weight, _, grad = case.tensors()
    leaves = (x.requires_grad_(), weight.requires_grad_())
    y, _ = event_convolution(x, weight, None, SMALL)
    grads = torch.stack([grad, 2 * grad, -grad])
    found = torch.autograd.grad(y, leaves, grads, is_grads_batched=True, retain_graph=True)
    for i in range(3):
        torch.testing.assert_close(
            [g[i] for g in found], list(torch.autograd.grad(y, leaves, grads[i], retain_graph=True))
        )


def test_a_weight_in_the_memory_of_the_inputs() -> None:
    memory = torch.tensor([1.0, 0.0, 2.0], requires_grad=True)
    shape = Geometry(1, 1, 3, 1, (1, 1), (1, 1))
    y, _ = event_convolution(memory.view(1, 3, 1, 1), memory.view(1, 3, 1, 1), None, shape)
    y.sum().backward()
    assert memory.grad is not None
    assert memory.grad.tolist() == [2, 0, 4]
