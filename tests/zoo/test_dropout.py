"""Dropout: the statistics of `nn.Dropout`, one random state, and a backward pass that meets the same mask."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from picojoule.zoo.dropout import Dropout

RATES = (0.1, 0.2, 0.3, 0.5, 0.9)


def kept(p: float, *shape: int) -> Tensor:
    """1 where an element survived, as float64."""
    return (Dropout(p)(torch.ones(*shape)) != 0).double()


@pytest.mark.parametrize("p", RATES)
def test_drops_as_often_as_asked_and_keeps_the_expectation(p: float) -> None:
    torch.manual_seed(0)
    n = 400_000
    y = Dropout(p)(torch.ones(n)).double()
    five_sigma = 5 * math.sqrt(p * (1 - p) / n)
    assert abs((y == 0).double().mean().item() - p) < five_sigma + 2**-17
    assert abs(y.mean().item() - 1) < five_sigma / (1 - p)
    (scale,) = set(y[y != 0].tolist())
    assert scale == pytest.approx(1 / (1 - p), rel=2**-16 / (1 - p))


@pytest.mark.parametrize("p", RATES)
def test_what_is_kept_times_its_probability_is_one(p: float) -> None:
    """The scale belongs to the probability that sixteen bits can express, not to the one nearby that was asked for."""
    scale = Dropout(p)(torch.ones(10_000, dtype=torch.float64)).max().item()
    levels = 65536 / scale
    assert levels == pytest.approx(round(levels), abs=1e-9)
    assert abs(levels / 65536 - (1 - p)) <= 2**-17


def test_neighbours_positions_and_calls_are_independent() -> None:
    torch.manual_seed(1)
    p, n = 0.3, 300_000
    first, second = kept(p, n) - (1 - p), kept(p, n) - (1 - p)
    five_sigma = 5 * p * (1 - p) / math.sqrt(n)
    assert abs((first * second).mean().item()) < five_sigma
    for lag in (1, 2, 3, 4, 8, 64, 225):  # four numbers come out of one word
        assert abs((first[lag:] * first[:-lag]).mean().item()) < 1.01 * five_sigma
    for lane in range(4):
        assert abs(first[lane::4].mean().item()) < 5 * math.sqrt(p * (1 - p) / (n / 4)) + 2**-17


def test_counts_per_sample_spread_like_a_binomial() -> None:
    torch.manual_seed(2)
    p, elements, samples = 0.2, 500, 2000
    counts = kept(p, samples, elements).sum(1)
    expected = elements * p * (1 - p)
    assert counts.var().item() == pytest.approx(expected, rel=5 * math.sqrt(2 / samples))


def test_the_seed_of_torch_governs_it() -> None:
    torch.manual_seed(3)
    drop, x = Dropout(0.5), torch.ones(1000)
    state = torch.get_rng_state()
    first, second = drop(x), drop(x)
    torch.set_rng_state(state)
    assert torch.equal(drop(x), first)
    assert torch.equal(drop(x), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_gradient_meets_the_same_mask(layout: torch.memory_format, dtype: torch.dtype) -> None:
    x = torch.randn(3, 5, 7, 3, dtype=dtype).contiguous(memory_format=layout).requires_grad_()
    y = Dropout(0.4)(x)
    assert y.is_contiguous(memory_format=layout)
    assert y.dtype == dtype
    upstream = torch.randn(3, 5, 7, 3, dtype=dtype)  # in the other layout for one of the two
    (grad,) = torch.autograd.grad(y, x, upstream)
    assert torch.equal(grad == 0, y == 0)
    torch.testing.assert_close(grad * x, upstream * y)


def test_an_input_with_gaps_in_memory() -> None:
    x = torch.randn(6, 8)[:, ::2].requires_grad_()
    y = Dropout(0.5)(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(grad * x, y)


def test_keeps_nothing_for_the_backward_pass() -> None:
    seen: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        seen.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        Dropout(0.5)(torch.ones(100, requires_grad=True))
    assert seen == []


def test_second_derivative() -> None:
    x = torch.randn(20, dtype=torch.float64, requires_grad=True)
    torch.manual_seed(4)
    y = Dropout(0.5)(x)
    (grad,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    torch.testing.assert_close(second, torch.where(y == 0, 0.0, 8.0).double())


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_the_ends(p: float) -> None:
    assert Dropout(p)(torch.ones(50)).unique().tolist() == [1 - p]


@pytest.mark.parametrize("p", [1e-7, 1 - 1e-7])
def test_next_to_the_ends_something_is_left_of_both(p: float) -> None:
    torch.manual_seed(5)
    y = Dropout(p)(torch.ones(1 << 20))
    assert 0 < (y == 0).sum() < y.numel()


def test_evaluation_passes_everything_and_draws_nothing() -> None:
    drop = Dropout(0.5).eval()
    x = torch.randn(10)
    state = torch.get_rng_state()
    assert torch.equal(drop(x), x)
    assert torch.equal(torch.get_rng_state(), state)


def test_an_empty_batch() -> None:
    assert Dropout(0.5)(torch.ones(0, 3)).shape == (0, 3)


def test_copies_and_prints_like_the_module_it_stands_for() -> None:
    assert isinstance(copy.deepcopy(Dropout(0.2)), nn.Dropout)
    assert repr(Dropout(0.2)) == repr(nn.Dropout(0.2))


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch warns of its own tracer
def test_compiles() -> None:
    torch._dynamo.reset()
    drop = Dropout(0.5)
    y = torch.compile(drop, fullgraph=True, backend="eager")(torch.ones(1000))
    assert set(y.tolist()) == {0.0, 2.0}


def test_inside_a_transform() -> None:
    y = torch.func.vmap(Dropout(0.5), randomness="different")(torch.ones(4, 100))
    assert set(y.flatten().tolist()) == {0.0, 2.0}
