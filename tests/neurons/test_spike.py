"""The spike, its gradient, what it keeps, and where it has to work."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from picojoule.errors import PicojouleError
from picojoule.neurons.spike import Spike, spike
from picojoule.neurons.surrogate import S3NN, SURROGATES, Surrogate


def mine(u: Tensor, threshold: float) -> Tensor:
    """A user's surrogate: a plain function without any of picojoule's methods."""
    return (u - threshold) * 3 + 1


SURROGATE_VALUES: list[Surrogate] = [*(kind() for kind in SURROGATES.values()), mine]
each_surrogate = pytest.mark.parametrize("surrogate", SURROGATE_VALUES, ids=[*SURROGATES, "user"])


def kept_for_backward(module: nn.Module, u: Tensor) -> list[Tensor]:
    kept: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        module(u)
    return kept


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("threshold", [0.5, 1.0, 2.5])
def test_fires_at_the_threshold_and_above(threshold: float, dtype: torch.dtype) -> None:
    at = torch.tensor(threshold, dtype=dtype)
    one = torch.tensor(1, dtype=dtype)
    below, above = torch.nextafter(at, -one), torch.nextafter(at, 10 * one)
    u = torch.stack([torch.tensor(-math.inf, dtype=dtype), -at, below, at, above, torch.tensor(math.inf, dtype=dtype)])
    s = Spike(threshold)(u)
    assert s.tolist() == [0, 0, 0, 1, 1, 1]
    assert s.dtype == dtype


def test_thresholds_at_or_below_zero_work_with_other_surrogates() -> None:
    assert Spike(-0.5, mine)(torch.tensor([-0.6, -0.5, 0.0])).tolist() == [0, 1, 1]


def test_a_nan_potential_does_not_fire() -> None:
    assert Spike()(torch.tensor([math.nan])).tolist() == [0]


@each_surrogate
def test_gradient_is_the_surrogate_times_what_comes_from_above(surrogate: Surrogate) -> None:
    u = torch.cat([torch.linspace(-3, 5, 801, dtype=torch.float64), torch.tensor([1.0], dtype=torch.float64)])
    upstream = torch.linspace(-2, 2, u.numel(), dtype=torch.float64)
    leaf = u.clone().requires_grad_()
    (grad,) = torch.autograd.grad(spike(leaf, 1.0, surrogate), leaf, upstream)
    assert torch.equal(grad, upstream * surrogate(u, 1.0))


@pytest.mark.parametrize(("u", "expected"), [(1.0, 1 / 0.6), (2.0, 1 / 1.2), (0.75, 4 / (2 + math.e + 1 / math.e))])
def test_s3nn_gradient_by_hand(u: float, expected: float) -> None:
    leaf = torch.tensor(u, requires_grad=True)
    Spike()(leaf).backward()
    assert leaf.grad is not None
    assert leaf.grad.item() == pytest.approx(expected, rel=1e-6)


@each_surrogate
def test_backward_keeps_at_most_one_tensor_of_the_activations_size(surrogate: Surrogate) -> None:
    u = torch.randn(3, 4, 5, requires_grad=True)
    kept = kept_for_backward(Spike(1.0, surrogate), u)
    assert sum(tensor.numel() * tensor.element_size() for tensor in kept) == u.numel() * u.element_size()


@each_surrogate
def test_nothing_is_kept_where_no_gradient_is_needed(surrogate: Surrogate) -> None:
    module = Spike(1.0, surrogate)
    assert kept_for_backward(module, torch.randn(8)) == []
    with torch.no_grad():
        assert kept_for_backward(module, torch.randn(8, requires_grad=True)) == []


@each_surrogate
def test_channels_last_stays_channels_last(surrogate: Surrogate) -> None:
    u = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
    s = Spike(1.0, surrogate)(u)
    assert s.is_contiguous(memory_format=torch.channels_last)
    (grad,) = torch.autograd.grad(s.sum(), u)
    assert grad.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(grad, surrogate(u.detach(), 1.0))


@each_surrogate
def test_works_under_bfloat16_autocast(surrogate: Surrogate) -> None:
    torch.manual_seed(0)
    first = nn.Linear(16, 32)
    net = nn.Sequential(first, Spike(0.5, surrogate), nn.Linear(32, 4))
    seen: list[Tensor] = []
    net[1].register_forward_hook(lambda module, args, output: seen.extend((args[0], output)))
    with torch.autocast("cpu", torch.bfloat16):
        loss = net(torch.randn(8, 16)).float().square().mean()
    loss.backward()
    u, s = seen
    assert u.dtype == s.dtype == torch.bfloat16
    assert torch.equal(s, (u >= 0.5).to(torch.bfloat16))
    for parameter in net.parameters():
        assert parameter.grad is not None
        assert parameter.grad.dtype == torch.float32
        assert parameter.grad.isfinite().all()
    assert first.weight.grad is not None
    assert first.weight.grad.abs().sum() > 0


@each_surrogate
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")  # torch warns of its own tracer
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_into_one_graph(surrogate: Surrogate, backend: str) -> None:
    torch._dynamo.reset()
    module = Spike(1.0, surrogate)
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    u = torch.linspace(-2, 4, 97).requires_grad_()
    s = compiled(u)
    (grad,) = torch.autograd.grad(s.sum(), u)
    assert torch.equal(s, module(u))
    torch.testing.assert_close(grad, surrogate(u.detach(), 1.0))


@each_surrogate
def test_function_transforms(surrogate: Surrogate) -> None:
    def fired(u: Tensor) -> Tensor:
        return spike(u, 1.0, surrogate).sum()

    u = torch.linspace(-2, 4, 24).reshape(4, 6)
    assert torch.equal(torch.func.vmap(fired)(u), (u >= 1).float().sum(dim=1))
    torch.testing.assert_close(torch.func.vmap(torch.func.grad(fired))(u), surrogate(u, 1.0))


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -math.inf])
def test_a_threshold_that_is_not_finite_is_refused(threshold: float) -> None:
    with pytest.raises(PicojouleError, match=f"finite threshold, not {threshold}"):
        Spike(threshold, mine)


@pytest.mark.parametrize("threshold", [0.0, -1.0])
def test_the_surrogate_is_asked_about_the_threshold(threshold: float) -> None:
    with pytest.raises(PicojouleError, match="S3NN needs a threshold above 0"):
        Spike(threshold)


@pytest.mark.parametrize(
    ("surrogate", "sentence"), [(S3NN, r"pass an instance, S3NN\(\)"), ("s3nn", "callable .* not 's3nn'")]
)
def test_what_is_no_surrogate_is_refused(surrogate: Any, sentence: str) -> None:
    with pytest.raises(PicojouleError, match=sentence):
        Spike(1.0, surrogate)


def test_module_is_a_thin_shell() -> None:
    module = Spike(threshold=2, surrogate=S3NN(tau=1.0))
    assert repr(module) == "Spike(threshold=2.0, surrogate=S3NN(alpha=0.25, tau=1.0))"
    assert module.state_dict() == {}
    assert repr(copy.deepcopy(module)) == repr(module)


@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "expanded gradient", "bfloat16"])
@each_surrogate
def test_large_tensors_get_the_same_gradient_as_small_ones(surrogate: Surrogate, layout: str) -> None:
    """Large tensors go through the backward pass block by block and fused; only the last digit may differ."""
    u = torch.randn(3, 8, 83, 97) + 0.5  # no multiple of the block
    grad = torch.randn_like(u)
    if layout == "channels_last":
        u, grad = (x.contiguous(memory_format=torch.channels_last) for x in (u, grad))
    elif layout == "expanded gradient":
        grad = grad[:1].expand(u.shape)
    elif layout == "bfloat16":
        u, grad = u.bfloat16(), grad.bfloat16()
    u.requires_grad_()
    spike(u, 1.0, surrogate).backward(grad)
    assert u.grad is not None
    assert u.grad.stride() == u.stride()
    for sample in range(len(u)):
        small = u[sample, :, :20].detach().clone().requires_grad_()
        spike(small, 1.0, surrogate).backward(grad[sample, :, :20])
        rounding = 8 * torch.finfo(u.dtype).eps  # a surrogate is five or six roundings
        torch.testing.assert_close(u.grad[sample, :, :20], small.grad, rtol=rounding, atol=rounding)


def test_a_surrogate_may_look_beyond_the_single_element() -> None:
    slopes = torch.arange(1.0, 9.0).view(8, 1, 1)
    u = torch.randn(3, 8, 83, 97).requires_grad_()
    spike(u, 1.0, lambda u, threshold: slopes * u.sigmoid()).sum().backward()
    assert u.grad is not None
    assert torch.equal(u.grad, slopes * u.detach().sigmoid())


def test_a_class_derived_from_a_surrogate_has_its_own_formula_at_any_size() -> None:
    class Steeper(S3NN):
        def __call__(self, u: Tensor, threshold: float, /) -> Tensor:
            return 3 * super().__call__(u, threshold)

    u = torch.linspace(-1, 3, 8192, requires_grad=True)
    spike(u, 1.0, Steeper()).sum().backward()
    assert u.grad is not None
    torch.testing.assert_close(u.grad, 3 * S3NN()(u.detach(), 1.0))


@pytest.mark.parametrize("norm", [False, True])
def test_many_gradients_at_once(norm: bool) -> None:
    x = torch.randn(64, 100, requires_grad=True)
    s = spike(nn.BatchNorm1d(100)(1 * x) if norm else x, 1.0, S3NN())
    above = torch.randn(3, 64, 100)
    (together,) = torch.autograd.grad(s, x, above, is_grads_batched=True, retain_graph=True)
    single = [torch.autograd.grad(s, x, each, retain_graph=True)[0] for each in above]
    torch.testing.assert_close(together, torch.stack(single))
