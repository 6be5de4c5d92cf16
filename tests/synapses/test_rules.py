"""Every entry of the tables, against what the operation does to one spike at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.spikes.spiking import declare_spiking
from picojoule.synapses import rules
from picojoule.synapses.rules import passing, synaptic
from picojoule.synapses.trace import trace

SHAPE = (4, 4, 2)  # of one sample; calls get [B, 4, 4, 2]


def ones(*shape: int) -> Tensor:
    return torch.ones(shape)


def in_place(x: Tensor, name: str, *args: Any) -> Tensor:
    y = x.clone()
    getattr(y, name)(*args)
    return y


def assigned(x: Tensor) -> Tensor:
    out = x.new_zeros(len(x), 4, 4, 4)
    out[..., :2] = x
    out[:, 1:2, :, 2:] = x[:, :1]
    out[:, 3, 0] = 0
    return out


PASSING: dict[str, Callable[[Tensor], Any]] = {
    "__getitem__": lambda x: x[:, ::2, None, [0, 0, 3], ...],
    "__rsub__": lambda x: 1 - x,
    "__setitem__": assigned,
    "T": lambda x: x.flatten(1).T.T,
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x.flatten(2), 3),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (3, None)),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x[:, None], 3),
    "add": lambda x: x + x[:, :1].flip(3),
    "add_": lambda x: in_place(x, "add_", x[:, :1].flip(3)),
    "adjoint": lambda x: x.adjoint()[:, :, :1],
    "alpha_dropout": lambda x: torch.alpha_dropout(x, 0.5, False),
    "avg_pool1d": lambda x: F.avg_pool1d(x.flatten(2), 3, 2, 1, True),
    "avg_pool2d": lambda x: F.avg_pool2d(x, (3, 2), stride=1, padding=1, divisor_override=7),
    "avg_pool3d": lambda x: nn.AvgPool3d(2, stride=1)(x[:, None]),
    "batch_norm": lambda x: F.batch_norm(x, ones(4), ones(4)),
    "bfloat16": lambda x: x.bfloat16(),
    "broadcast_to": lambda x: x[:, :, None].broadcast_to(len(x), 4, 3, 4, 2),
    "cat": lambda x: torch.cat([x, ones(len(x), 1, 4, 2), x[:, :1]], 1),
    "channel_shuffle": lambda x: torch.channel_shuffle(x, 2)[:, :1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "clone": lambda x: x.clone(),
    "concat": lambda x: torch.concat([x, x[:, :1]], dim=1),
    "concatenate": lambda x: torch.concatenate([x, x[:, :1]], dim=1),
    "contiguous": lambda x: x.mT.contiguous(),
    "copy_": lambda x: x.new_zeros(len(x), 2, *x.shape[1:]).copy_(x[:, None]),
    "cpu": lambda x: x.cpu(),
    "data": lambda x: x.data,
    "detach": lambda x: x.detach(),
    "detach_": lambda x: x.clone().detach_(),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "div": lambda x: x / ones(2),
    "div_": lambda x: in_place(x, "div_", 2),
    "divide": lambda x: x.divide(2),
    "divide_": lambda x: in_place(x, "divide_", 2),
    "double": lambda x: x.double(),
    "dropout": lambda x: nn.Dropout(0.5).eval()(x),
    "dropout1d": lambda x: F.dropout1d(x[:, 0], 0.5, False),
    "dropout2d": lambda x: F.dropout2d(x, 0.5, False),
    "dropout3d": lambda x: F.dropout3d(x, 0.5, False),
    "dropout_": lambda x: torch.dropout_(x.clone(), 0.5, False),
    "dstack": lambda x: torch.dstack([x, x[:, :, :1]]),
    "expand": lambda x: x[..., None].expand(*x.shape, 3),
    "expand_as": lambda x: x[:, :1].expand_as(x),
    "feature_alpha_dropout": lambda x: F.feature_alpha_dropout(x, 0.5, False),
    "feature_dropout": lambda x: torch.feature_dropout(x, 0.5, False),
    "flatten": lambda x: nn.Flatten(2)(x)[:, :, :3],
    "flip": lambda x: x.flip(1)[:, :1],
    "fliplr": lambda x: x.fliplr()[:, :1],
    "flipud": lambda x: x[:, None].transpose(0, 1).flipud()[0, :, :1],
    "float": lambda x: x.float(),
    "fold": lambda x: F.fold(x.flatten(2).repeat(1, 2, 1)[:, :, :4], (3, 3), 2),
    "half": lambda x: x.half(),
    "hsplit": lambda x: x.hsplit(2)[0],
    "hstack": lambda x: torch.hstack([x, x[:, :1]]),
    "gather": lambda x: x.gather(
        1, torch.tensor([0, 0, 2]).view(1, 3, *[1] * (x.dim() - 2)).expand(len(x), 3, *x.shape[2:])
    ),
    "index_select": lambda x: torch.index_select(input=x, dim=1, index=torch.tensor([0, 0, 2])),
    "interpolate": lambda x: F.interpolate(x, size=(5, 3)),
    "lp_pool1d": lambda x: F.lp_pool1d(x.flatten(2), 1, 3, 2, True),
    "lp_pool2d": lambda x: nn.LPPool2d(1, (3, 2), stride=1)(x),
    "lp_pool3d": lambda x: F.lp_pool3d(x[:, None], 1.0, 2, ceil_mode=True),
    "mT": lambda x: x.mT[:, :, :1],
    "mean": lambda x: x.mean((2, 3), keepdim=True, dtype=torch.float32),
    "moveaxis": lambda x: x.moveaxis(3, 1)[:, :1],
    "movedim": lambda x: x.movedim(3, 1)[:, :1],
    "mul": lambda x: ones(4, 1) * x,
    "mul_": lambda x: in_place(x, "mul_", ones(2)),
    "multiply": lambda x: torch.multiply(x, 3),
    "multiply_": lambda x: in_place(x, "multiply_", 3),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "neg": lambda x: -x,
    "neg_": lambda x: in_place(x, "neg_"),
    "pad": lambda x: torch.cat([F.pad(x, (1, 0, 2, 1), mode="circular"), F.pad(x, (1, 0, 2, 1), value=7)], 1),
    "permute": lambda x: x.permute(0, 3, 1, 2)[:, :1],
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2)[:, :, ::2],
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(x, 2)[:, ::2],
    "positive": lambda x: +x,
    "ravel": lambda x: x.flatten(1).ravel().view(len(x), -1)[:, :5],
    "repeat": lambda x: x.repeat(1, 2, 1, 3),
    "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([1, 2, 0, 3]), dim=1),
    "requires_grad_": lambda x: x.clone().requires_grad_(False),
    "reshape": lambda x: x.reshape(len(x), -1)[:, ::3],
    "reshape_as": lambda x: x.reshape_as(x.mT)[:, :, 1],
    "roll": lambda x: x.roll(1, 1)[:, :1],
    "rot90": lambda x: torch.rot90(x, 1, (1, 2))[:, :1],
    "rsub": lambda x: torch.rsub(x, x[:, :1].flip(3)),
    "select": lambda x: x.select(1, 2),
    "split": lambda x: x.split([1, 3], 1)[1],
    "split_with_sizes": lambda x: x.split_with_sizes([1, 3], 1)[1],
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "squeeze_": lambda x: x[:, :1].clone().squeeze_(1),
    "stack": lambda x: torch.stack((x, x, x), 2),
    "sub": lambda x: x - x[:, :1].flip(3),
    "sub_": lambda x: in_place(x, "sub_", x[:, :1].flip(3)),
    "subtract": lambda x: torch.subtract(x, 3),
    "subtract_": lambda x: in_place(x, "subtract_", 3),
    "sum": lambda x: x[:, 1:].sum(dim=1),
    "swapaxes": lambda x: x.swapaxes(1, 3)[:, :1],
    "swapdims": lambda x: x.swapdims(1, 3)[:, :1],
    "t": lambda x: x.flatten(1).t()[:7].t(),
    "take_along_dim": lambda x: x.take_along_dim(torch.tensor([3, 0, 0]).view(1, 3, 1, 1).expand(len(x), 3, 4, 2), 1),
    "tensor_split": lambda x: x.tensor_split((1, 3), dim=1)[1],
    "tile": lambda x: x.tile(2, 1),
    "to": lambda x: x.to("cpu", torch.float16),
    "transpose": lambda x: x.transpose(1, 3)[:, :1],
    "true_divide": lambda x: torch.true_divide(x, 2),
    "true_divide_": lambda x: in_place(x, "true_divide_", 2),
    "type": lambda x: x.type(torch.float32),
    "type_as": lambda x: x.type_as(torch.zeros(1)),
    "unbind": lambda x: x.unbind(1)[2],
    "unflatten": lambda x: nn.Unflatten(1, (2, 2))(x)[:, 1],
    "unfold": lambda x: torch.cat([F.unfold(x, 2).flatten(1), x.unfold(1, 3, 1).flatten(1)], 1),
    "unsqueeze": lambda x: x.unsqueeze(1)[:, :, 1],
    "unsqueeze_": lambda x: x.clone().unsqueeze_(1),
    "view": lambda x: x.view(len(x), 8, 4)[:, :3],
    "view_as": lambda x: x.view_as(x)[:, 1],
    "vsplit": lambda x: x.transpose(0, 1).vsplit(2)[0].transpose(0, 1),
    "vstack": lambda x: torch.vstack([x.transpose(0, 1), x.flip(3).transpose(0, 1)[:2]]).transpose(0, 1),
}
SYNAPTIC: dict[str, Callable[[Tensor, Callable[..., Tensor]], Tensor]] = {
    "linear": lambda x, w: F.linear(x, w(3, 2), w(3)),
    "matmul": lambda x, w: torch.cat([(x @ w(2, 3)).flatten(1), (w(3, 4) @ x).flatten(1), (x @ w(2)).flatten(1)], 1),
    "mm": lambda x, w: torch.mm(x.flatten(1), w(32, 3)),
    "conv1d": lambda x, w: F.conv1d(x.flatten(2), w(4, 2, 3), w(4), 2, 1, groups=2),
    "conv2d": lambda x, w: F.conv2d(x, w(3, 4, 2, 2), stride=(2, 1), padding="valid"),
    "conv3d": lambda x, w: F.conv3d(x[:, None], w(2, 1, 3, 2, 2), padding=(1, 1, 0), dilation=(1, 2, 1)),
    "conv_transpose1d": lambda x, w: F.conv_transpose1d(x.flatten(2), w(4, 1, 3), None, 2, 2, 1, 2),
    "conv_transpose2d": lambda x, w: F.conv_transpose2d(x, w(4, 3, 2, 2), padding=1),
    "conv_transpose3d": lambda x, w: F.conv_transpose3d(x[:, None], w(1, 2, 2, 2, 2), stride=2, dilation=3),
}


class Net(nn.Module):
    """Spikes → the operation → one synapse from each of its outputs, or the operation's own synapses."""

    def __init__(self, call: Callable[..., Tensor]) -> None:
        super().__init__()
        self.spike, self.call = declare_spiking(nn.Identity()), call
        self.weight = nn.Parameter(torch.rand(2048) + 0.1)

    def of_shape(self, *shape: int) -> Tensor:
        return self.weight[: torch.Size(shape).numel()].view(shape)


class Passing(Net):
    def forward(self, x: Tensor) -> Tensor:
        out = self.call(self.spike(x)).flatten(1)
        return F.linear(out, self.weight[None, : out.shape[1]].to(out.dtype))


class Synaptic(Net):
    def forward(self, x: Tensor) -> Tensor:
        return self.call(self.spike(x), self.of_shape)


def reached(call: Callable[..., Tensor], *weights: Any) -> Tensor:
    """By each spike: the outputs that differ from those of silence."""
    one_each = torch.eye(32).view(32, *SHAPE)
    with torch.no_grad():
        silence, response = call(torch.zeros_like(one_each), *weights), call(one_each, *weights)
    return (response != silence).flatten(1).sum(1).view(SHAPE)


@pytest.mark.parametrize("name", [name for name in passing.PASSING if name != "cuda"])
def test_passing_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = []
    rule = passing.PASSING[name]
    monkeypatch.setitem(passing.PASSING, name, lambda call: uses.append(call) or rule(call))
    fan_out = trace(Passing(PASSING[name]), torch.zeros(2, *SHAPE))["spike"].fan_out
    assert uses
    assert torch.equal(fan_out, reached(PASSING[name]))


def test_a_pool_of_another_norm_is_no_sum() -> None:
    with pytest.raises(PicojouleError, match=r"lp_pool2d .* has no rule"):
        trace(Passing(lambda x: F.lp_pool2d(x, 2, 2)), torch.zeros(2, *SHAPE))


@pytest.mark.parametrize("name", synaptic.SYNAPTIC)
def test_synaptic_rules(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    uses = []
    rule = synaptic.SYNAPTIC[name]
    monkeypatch.setitem(synaptic.SYNAPTIC, name, lambda *args: uses.append(args) or rule(*args))
    net = Synaptic(SYNAPTIC[name])
    fan_out = trace(net, torch.zeros(2, *SHAPE))["spike"].fan_out
    assert uses
    assert torch.equal(fan_out, reached(SYNAPTIC[name], net.of_shape))


def test_the_tables_exclude_each_other() -> None:
    assert not set(synaptic.SYNAPTIC) & set(passing.PASSING)
    assert not (set(synaptic.SYNAPTIC) | set(passing.PASSING)) & (
        synaptic.UNCOUNTED | passing.CREATING | passing.READING
    )


@pytest.mark.parametrize("name", sorted(synaptic.UNCOUNTED - {"linear"}))
def test_a_product_cannot_be_declared_to_pass(name: str) -> None:
    with pytest.raises(PicojouleError, match=name):
        rules.declare_rule(name, rules.natural)


def test_a_declared_rule_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(passing.PASSING, "cumsum", rules.natural)
    rules.declare_rule("cumsum", rules.natural)
    fan_out = trace(Passing(lambda x: x.cumsum(1)), torch.zeros(2, *SHAPE))["spike"].fan_out
    assert torch.equal(fan_out, reached(lambda x: x.cumsum(1)))


def test_uniform_and_paper_under_a_pool() -> None:
    """2×2 average pool, then a 3×3 convolution with a border: W'H'/(WH)·C'·k² = 18, times 4 for the paper."""
    net = nn.Sequential(declare_spiking(nn.Identity()), nn.AvgPool2d(2), nn.Conv2d(1, 2, 3, padding=1))
    traced = {psi: trace(net, torch.zeros(1, 1, 4, 4), psi=psi)["0"] for psi in ("exact", "uniform", "paper")}
    values = {psi: layer.fan_out.unique().tolist() for psi, layer in traced.items()}
    assert values == {"exact": [8], "uniform": [18.0], "paper": [72.0]}


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_uniform_transposed_convolution(spatial: int) -> None:
    layer = getattr(nn, f"ConvTranspose{spatial}d")(2, 3, 2, stride=2)
    net = nn.Sequential(declare_spiking(nn.Identity()), layer)
    example = torch.zeros(1, 2, *[3] * spatial)
    uniform, exact = (trace(net, example, psi=psi)["0"].fan_out for psi in ("uniform", "exact"))
    assert torch.equal(uniform, exact.double())
