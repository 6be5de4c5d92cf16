"""A spiking layer behind a batch norm keeps no potential, and its gradients are those of one that does."""

from __future__ import annotations

import sys
import weakref

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from picojoule.neurons import recomputation
from picojoule.neurons.spike import Spike, spike
from picojoule.neurons.surrogate import S3NN, Surrogate


class Plain(nn.Module):
    """The same neuron, whose potential comes from an operation that is no batch norm."""

    def forward(self, u: Tensor) -> Tensor:
        return spike(u.clone(), 1.0, S3NN())


SHAPES = {"rows": (40, 6), "line": (8, 6, 50), "map": (8, 6, 9, 7), "volume": (4, 6, 3, 5, 4)}
NORMS = {"rows": nn.BatchNorm1d, "line": nn.BatchNorm1d, "map": nn.BatchNorm2d, "volume": nn.BatchNorm3d}


def network(name: str, neuron: nn.Module, dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    norm = NORMS[name](6, dtype=dtype)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return nn.Sequential(norm, neuron)


def gradients(net: nn.Sequential, x: Tensor) -> list[Tensor]:
    weights = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)
    return list(torch.autograd.grad((net(1 * x) * weights).sum(), [x, *net.parameters()]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SHAPES)
def test_gradients_are_those_of_a_kept_potential(name: str, dtype: torch.dtype) -> None:
    x = torch.randn(SHAPES[name], dtype=dtype)
    layouts = [x, x.contiguous(memory_format=torch.channels_last)] if x.dim() == 4 else [x]
    for images in layouts:
        images = images.requires_grad_()
        ours, plain = (gradients(network(name, neuron, dtype), images) for neuron in (Spike(), Plain()))
        torch.testing.assert_close(ours, plain)


def potential_and_again(x: Tensor) -> tuple[Tensor, Tensor]:
    norm = nn.BatchNorm2d(16)
    nn.init.normal_(norm.weight)
    u = norm(1 * x.requires_grad_())
    found = recomputation.recomputable(u)
    assert found is not None
    with torch.no_grad():
        return u, found[0].potential(found[1])


def test_the_potential_comes_back_to_the_last_bits() -> None:
    u, again = potential_and_again(torch.randn(30, 16, 8, 8))
    assert (again - u).abs().max() <= 4 * torch.finfo(torch.float32).eps * u.abs().max()


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_potential_in_bfloat16_comes_back(layout: torch.memory_format) -> None:
    """As under autocast: rounded from the same float32 numbers, which differ in their last bits."""
    u, again = potential_and_again(torch.randn(30, 16, 8, 8).add(3).bfloat16().contiguous(memory_format=layout))
    assert again.dtype == torch.bfloat16
    assert again.stride() == u.stride()
    assert (again == u).float().mean() > 0.999
    torch.testing.assert_close(again, u, rtol=2**-7, atol=2**-16)


def test_gradients_in_bfloat16_are_those_of_a_kept_potential() -> None:
    x = torch.randn(SHAPES["map"]).bfloat16().requires_grad_()
    ours, plain = (gradients(network("map", neuron, torch.float32), x) for neuron in (Spike(), Plain()))
    torch.testing.assert_close(ours, plain, rtol=0.02, atol=0.02)


def kept_alive(net: nn.Sequential, x: Tensor) -> bool:
    seen: list[weakref.ref[Tensor]] = []
    storages: list[weakref.ref[torch.UntypedStorage]] = []

    def look(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> None:
        seen.append(weakref.ref(output))
        storages.append(weakref.ref(output.untyped_storage()))

    net[0].register_forward_hook(look)
    spikes = net(1 * x)
    alive = seen[0]() is not None
    spikes.sum().backward()
    return alive


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_parts_of_a_batch_give_the_bits_of_the_whole(
    kind: torch.dtype, layout: torch.memory_format, monkeypatch: pytest.MonkeyPatch
) -> None:
    x = torch.randn(24, 6, 11, 7).to(kind).contiguous(memory_format=layout).requires_grad_()
    found = []
    for most in (1 << 30, 5 * 6 * 77, 1):
        monkeypatch.setattr(sys.modules[spike.__module__], "_PART", most)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind == torch.bfloat16):
            found.append(gradients(network("map", Spike(), torch.float32), x))
    for parts in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], parts, strict=True))


def test_nothing_holds_the_potential() -> None:
    x = torch.randn(8, 6, 9, 7, requires_grad=True)
    assert not kept_alive(network("map", Spike(), torch.float32), x)
    assert not kept_alive(network("map", Spike(), torch.float32), x.detach().bfloat16().requires_grad_())
    assert kept_alive(nn.Sequential(nn.Tanh(), Spike()), x)


def test_second_derivatives() -> None:
    """With a surrogate that has one: d²s/du² of the recalled potential against that of a kept one."""
    surrogate: Surrogate = lambda u, threshold: torch.exp(-((u - threshold) ** 2))  # noqa: E731

    class Smooth(nn.Module):
        def __init__(self, copy: bool) -> None:
            super().__init__()
            self.copy = copy

        def forward(self, u: Tensor) -> Tensor:
            return spike(u.clone() if self.copy else u, 1.0, surrogate)

    x = torch.randn(12, 6, dtype=torch.float64, requires_grad=True)
    weights = torch.linspace(-1, 2, x.numel(), dtype=x.dtype).view(x.shape)
    results = []
    for copy in (False, True):
        net = network("rows", Smooth(copy), torch.float64)
        (grad,) = torch.autograd.grad((net(1 * x) * weights).sum(), x, create_graph=True)
        results.append(torch.autograd.grad((grad**2).sum(), [x, *net.parameters()]))
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    x = torch.randn(8, 6, 9, 7, requires_grad=True)
    net = network("map", Spike(), torch.float32)
    plain = gradients(net, x)
    net.zero_grad()
    weights = torch.linspace(-1, 2, x.numel()).view(x.shape)
    (checkpoint(net, 1 * x, use_reentrant=reentrant) * weights).sum().backward()
    torch.testing.assert_close([x.grad, *(p.grad for p in net.parameters())], plain)


def test_what_is_changed_before_the_backward_pass_is_noticed() -> None:
    net = network("map", Spike(), torch.float32)
    loss = net(1 * torch.randn(8, 6, 9, 7, requires_grad=True)).sum()
    with torch.no_grad():
        net[0].bias.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def unusual() -> dict[str, Tensor]:
    x = torch.randn(8, 6, 9, 7, requires_grad=True) * 1
    bare, frozen, evaluating = (nn.BatchNorm2d(6, affine=affine) for affine in (False, True, True))
    frozen.requires_grad_(False)
    return {
        "without γ and β": bare(x),
        "frozen": frozen(x),
        "in evaluation": evaluating.eval()(x),
        "of half the size": nn.BatchNorm2d(6)(x)[:4],
        "all in bfloat16": nn.BatchNorm2d(6, dtype=torch.bfloat16)(x.bfloat16()),
        "in float16": nn.BatchNorm2d(6)(x.half()),
        "a leaf": torch.randn(3, requires_grad=True),
    }


@pytest.mark.parametrize("what", list(unusual()))
def test_what_cannot_be_recalled_is_kept(what: str) -> None:
    u = unusual()[what]
    assert recomputation.recomputable(u) is None
    assert spike(u, 1.0, S3NN()).sum().requires_grad


def test_a_potential_that_was_written_to_is_kept_as_it_is_now() -> None:
    u = nn.BatchNorm2d(6)(1 * torch.randn(8, 6, 9, 7, requires_grad=True))
    with torch.no_grad():
        u.mul_(2)  # which autograd does not see
    (grad,) = torch.autograd.grad(spike(u, 1.0, S3NN()).sum(), u)
    torch.testing.assert_close(grad, S3NN()(u.detach(), 1.0))


def test_a_norm_whose_backward_pass_is_over_can_still_be_looked_at() -> None:
    u = nn.BatchNorm2d(6)(1 * torch.randn(8, 6, 9, 7, requires_grad=True))
    u.sum().backward()
    assert torch.equal(spike(u, 1.0, S3NN()), (u >= 1).float())
