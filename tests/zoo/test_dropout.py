"""Dropout: the statistics of `nn.Dropout`, one random state, and a backward pass that meets the same mask."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from picojoule.kernels import fused
from picojoule.kernels.draws import LEVELS
from picojoule.kernels.thread_count import threads
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
    assert abs((y == 0).double().mean().item() - p) < five_sigma
    assert abs(y.mean().item() - 1) < five_sigma / (1 - p)
    (scale,) = set(y[y != 0].tolist())
    assert scale == pytest.approx(1 / (1 - p), rel=1e-6)


def test_neighbours_positions_and_calls_are_independent() -> None:
    torch.manual_seed(1)
    p, n = 0.3, 300_000
    first, second = kept(p, n) - (1 - p), kept(p, n) - (1 - p)
    five_sigma = 5 * p * (1 - p) / math.sqrt(n)
    assert abs((first * second).mean().item()) < five_sigma
    for lag in (1, 2, 3, 4, 8, 64, 225, 1 << 16):
        assert abs((first[lag:] * first[:-lag]).mean().item()) < 1.01 * five_sigma
    for stride in (2, 4, 64, 225):
        for start in range(0, stride, max(stride // 4, 1)):
            every = first[start::stride]
            assert abs(every.mean().item()) < 5 * math.sqrt(p * (1 - p) / len(every))


def test_seeds_that_differ_in_one_bit_have_nothing_in_common() -> None:
    p, n = 0.5, 100_000
    masks = [fused.drop(torch.ones(n), seed, LEVELS // 2, 1.0) - p for seed in (0, 1, 2, 1 << 32, 7)]
    for one, other in itertools.combinations(masks, 2):
        for shift in (0, 1, 2):
            together = one[shift:] * other[: n - shift]
            assert abs(together.mean().item()) < 5 * p * (1 - p) / math.sqrt(n - shift)


def test_every_bit_of_a_draw_is_fair() -> None:
    """Thresholds at all powers of two: a draw is below 2ᵏ as often as a uniform one of 32 bits."""
    n = 1 << 20
    for k in range(16, 32):
        share = (fused.drop(torch.ones(n), 99, 1 << k, 1.0) == 0).double().mean().item()
        expected = 2.0 ** (k - 32)
        assert abs(share - expected) < 5 * math.sqrt(expected * (1 - expected) / n)


def test_threads_and_blocks_change_nothing() -> None:
    x = torch.randn(300_001)
    with threads(1):
        alone = fused.drop(x, 5, 1 << 30, 1.25)
    with threads(3):
        assert torch.equal(fused.drop(x, 5, 1 << 30, 1.25), alone)
    assert torch.equal(fused.drop(x[:100], 5, 1 << 30, 1.25), alone[:100])


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


@pytest.mark.parametrize("p", [1e-5, 1 - 1e-5])
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


@pytest.mark.parametrize("p", [1e-12, 1 - 1e-12])
def test_a_probability_that_is_lost_in_rounding_is_not_one_of_the_ends(p: float) -> None:
    y = Dropout(p)(torch.ones(1000))
    assert y.isfinite().all()


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


def test_many_gradients_at_once() -> None:
    x = torch.randn(64, 100, requires_grad=True)
    y = Dropout(0.5)(x)
    above = torch.randn(3, 64, 100)
    (together,) = torch.autograd.grad(y, x, above, is_grads_batched=True)
    assert torch.equal(together, above * torch.where(y == 0, 0.0, 2.0))
