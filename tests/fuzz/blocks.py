"""The parts that random networks are made of: pools, joins, masks, and odd ways of writing synapses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from fuzz.hand_written import by_hand, gradient_scaling_by_a_tensor, named_alike, tensor_factors
from fuzz.making import Calls, Maker, Making, TooSmall, checked, linear, same_shape, synapse, weighted


class Checkpoints:
    """Whether checkpoints are taken; off, the same network runs plainly, for comparison."""

    on = True


@weighted(2)
def pool(making: Making) -> nn.Module:
    chance, d = making.chance, making.spatial
    if d not in (1, 2, 3) or min(making.shape[2:]) < 2:
        raise TooSmall
    kind = chance.choice(
        ["Avg", "Max"] if making.plain else ["Avg", "Avg", "Max", "Max", "AdaptiveAvg", "AdaptiveMax", "LP"]
    )
    if kind.startswith("Adaptive"):
        return getattr(nn, f"{kind}Pool{d}d")(
            tuple(chance.randint(1, n) for n in making.shape[2:]) if d > 1 else chance.randint(1, making.shape[2])
        )
    size = chance.choice([2, 2, 3] if min(making.shape[2:]) > 2 else [2])
    stride, ceil = chance.choice([None, 1, 2]), chance.random() < 0.3
    if kind == "LP":
        return getattr(nn, f"LPPool{d}d")(1.0, size, stride or size)
    return getattr(nn, f"{kind}Pool{d}d")(size, stride, chance.choice([0, 0, 1]), ceil_mode=ceil)


@weighted(2)
def passing(making: Making) -> nn.Module:
    """One of the ways in which spikes go on without meeting weights."""
    chance, shape = making.chance, making.shape
    axis = chance.randrange(1, len(shape))
    n = shape[axis]
    ways: list[Callable[[Tensor], Tensor]] = [
        lambda x: x.flip(axis),
        lambda x: x.roll(1, axis),
        lambda x: x.narrow(axis, 0, max(1, n - 1)),
        lambda x: x * 0.5,
        lambda x: x / 2,
        lambda x: torch.cat([x, x], axis),
        lambda x: x.repeat_interleave(2, axis),
        lambda x: x.contiguous().clone(),
        lambda x: x.index_select(axis, torch.arange(n - 1, -1, -1)),
        lambda x: x.movedim(axis, -1),
        lambda x: F.pad(x, (1, 0)),
        lambda x: x.float().to(x.dtype),
        lambda x: torch.stack(x.unbind(axis), axis),
        lambda x: x + x,
        lambda x: 2 * x - x,
        lambda x: x.to(memory_format=torch.channels_last) if x.dim() == 4 else x,
    ]
    way = chance.choice(ways)
    return Calls(lambda self, x: way(x))


def dropout(making: Making) -> nn.Module:
    return nn.Dropout(0.3)


def flatten(making: Making) -> nn.Module:
    return nn.Flatten()


# -------------------------------------------------------------------------------------------------------------- joins


@weighted(3)
def residual(making: Making) -> nn.Module:
    """x + f(x): counts above one."""
    inner = same_shape(making)
    if not making.plain and making.chance.random() < 0.3:
        return Calls(lambda self, x: x + self.inner(x) * 2, inner=inner)
    return Calls(lambda self, x: x + self.inner(x), inner=inner)


@weighted(2)
def concatenation(making: Making) -> nn.Module:
    return Calls(lambda self, x: torch.cat([x, self.inner(x)], 1), inner=same_shape(making))


@weighted(2)
def written(making: Making) -> nn.Module:
    """Results written in place into views of a fresh map."""
    way = making.chance.randrange(4)

    def run(self: Any, x: Tensor) -> Tensor:
        y = self.inner(x)
        out = x.new_zeros(x.shape[0], x.shape[1] + y.shape[1], *x.shape[2:])
        left, right = out[:, : x.shape[1]], out[:, x.shape[1] :]
        if way == 0:
            left.copy_(x)
            right.add_(y)
        elif way == 1:
            out[:, : x.shape[1]] = x
            out[:, x.shape[1] :] = y
        elif way == 2:
            out[:, : x.shape[1]] += x
            right.copy_(y)
        else:
            out = torch.cat([x, y], 1)
            out[:, :1] *= 0
        return out

    return Calls(run, inner=same_shape(making))


@weighted(2)
def masked(making: Making) -> nn.Module:
    """Some neurons switched off by hand, with a buffer."""
    mask = (torch.rand(making.shape[1:]) < 0.6).float()
    return Calls(lambda self, x: x * self.mask, mask=mask)


@weighted(2)
def gate(making: Making) -> nn.Module:
    """Spikes let through by spikes, or held back, or pooled by a function."""
    kind = making.chance.randrange(3)

    def run(self: Any, x: Tensor) -> Tensor:
        z = self.fire(self.inner(x))
        if kind == 0:
            return x * z
        return z * (1 - x) if kind == 1 else x.flip(1) * z

    return Calls(run, inner=same_shape(making), fire=making.neuron())


@weighted(2)
def attention(making: Making) -> nn.Module:
    """Products of spikes by spikes, in either order, and neurons behind them."""
    linear = making.chance.random() < 0.5

    def run(self: Any, x: Tensor) -> Tensor:
        q = x.flatten(1, -2) if x.dim() > 2 else x.unsqueeze(1)
        k = self.fire(self.inner(x)).reshape(q.shape)
        y = q @ (k.transpose(-2, -1) @ q) if linear else (q @ k.transpose(-2, -1)) @ q
        return self.after(y.reshape(x.shape) * 0.125)

    return Calls(run, inner=same_shape(making), fire=making.neuron(), after=making.neuron())


class _GradientScale(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.3 * x + (0.7 * x).detach()


def gradient_scaling(making: Making) -> nn.Module:
    """The same values with another gradient."""
    module = _GradientScale()
    making.identities.append(module)
    return module


def centred(making: Making) -> nn.Module:
    """What a spike costs depends on the other samples."""
    return Calls(lambda self, x: x - x.mean(0))


# ---------------------------------------------------------------------------------------------------- ways of writing


@weighted(3)
def functional(making: Making) -> nn.Module:
    """Weights as bare parameters or buffers, multiplied in one of many ways."""
    chance, n = making.chance, making.shape[-1]
    if n == 1:
        raise TooSmall  # an einsum over a single term runs as a product element by element, of which nobody can tell
    out = chance.choice([2, 3, 5])
    weight: Tensor = torch.randn(out, n) * n**-0.5
    weight = weight if chance.random() < 0.4 else nn.Parameter(weight)
    ways: list[Callable[[Any, Tensor], Tensor]] = [
        lambda self, x: F.linear(x, self.weight),
        lambda self, x: x @ self.weight.t(),
        lambda self, x: torch.matmul(x, self.weight.T),
        lambda self, x: torch.einsum("...i,oi->...o", x, self.weight),
        lambda self, x: (self.weight @ x.transpose(-1, -2)).transpose(-1, -2),
        lambda self, x: torch.tensordot(x, self.weight, ([-1], [1])),
        lambda self, x: torch.addmm(x.new_zeros(()), x.reshape(-1, x.shape[-1]), self.weight.t()).view(
            *x.shape[:-1], -1
        ),
        lambda self, x: torch.bmm(
            x.reshape(x.shape[0], -1, x.shape[-1]), self.weight.t().expand(x.shape[0], -1, -1)
        ).view(*x.shape[:-1], -1),
        lambda self, x: (x.unsqueeze(-2) * self.weight).sum(-1),
        lambda self, x: torch.ops.aten.mm(x.reshape(-1, x.shape[-1]), self.weight.t()).view(*x.shape[:-1], -1),
        lambda self, x: F.linear(x, (self.weight * 2).clamp(-3, 3)),
        lambda self, x: F.linear(x, torch.tanh(self.weight)),
    ]
    return checked(Calls(chance.choice(ways), weight=weight), making)


class _OwnProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight.t()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, weight = ctx.saved_tensors
        return grad @ weight, grad.flatten(0, -2).t() @ x.flatten(0, -2)


class _OwnIdentity(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 0.5


@weighted(1.5)
def own_function(making: Making) -> nn.Module:
    """A torch.autograd.Function that multiplies, or one that only scales gradients."""
    if making.chance.random() < 0.5:
        return Calls(lambda self, x: _OwnIdentity.apply(x))
    n = making.shape[-1]
    weight = nn.Parameter(torch.randn(3, n) * n**-0.5)
    return checked(Calls(lambda self, x: _OwnProduct.apply(x, self.weight), weight=weight), making)


@weighted(2)
def checkpointed(making: Making) -> nn.Module:
    reentrant = making.chance.random() < 0.5

    def run(self: Any, x: Tensor) -> Tensor:
        return checkpoint(self.inner, x, use_reentrant=reentrant) if Checkpoints.on else self.inner(x)

    return Calls(run, inner=synapse(making), recomputes=True)


class Recurrent(nn.Module):
    """Recurrence by hand: the spikes of the last call are fed back."""

    def __init__(self, making: Making) -> None:
        super().__init__()
        n = making.shape[-1]
        self.feed, self.back, self.fire = nn.Linear(n, n), nn.Linear(n, n), making.neuron()
        self.state: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        u = self.feed(x)
        if self.state is not None and self.state.shape == u.shape:
            u = u + self.back(self.state)
        self.state = self.fire(u)
        return self.state


@weighted(0.7)
def recurrence(making: Making) -> nn.Module:
    return Recurrent(making)


def shared_weights(making: Making) -> nn.Module:
    """One layer of weights at two places, each with its neurons."""
    if making.spatial != 0:
        raise TooSmall
    inner = nn.Linear(making.channels, making.channels)
    return nn.Sequential(inner, making.neuron(), inner, making.neuron())


def softmax_gate(making: Making) -> nn.Module:
    """Spikes through an operation that depends on all of them."""
    return Calls(lambda self, x: x * x.float().softmax(-1).to(x.dtype))


@weighted(0.7)
def quantized_weights(making: Making) -> nn.Module:
    """Weights rounded in the forward pass, as in training for quantisation."""
    making.accidental_zeros = True
    inner = linear(making)

    def run(self: Any, x: Tensor) -> Tensor:
        scale = self.inner.weight.detach().abs().max() / 127
        weight = torch.fake_quantize_per_tensor_affine(self.inner.weight.float(), float(scale), 0, -128, 127)
        return F.linear(x, weight.to(x.dtype), self.inner.bias)

    return checked(Calls(run, inner=inner), making)


BLOCKS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (
        synapse, pool, passing, dropout, flatten, residual, concatenation, written, masked, gate, attention,
        gradient_scaling, centred,
        functional, own_function, checkpointed, recurrence, shared_weights, softmax_gate, quantized_weights,
        gradient_scaling_by_a_tensor, tensor_factors, by_hand, named_alike,
    )
}  # fmt: skip
