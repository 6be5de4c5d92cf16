"""Random networks of whole numbers, by events and dense: equal to the bit, for nothing is left to rounding."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import picojoule as pj
from picojoule.kernels.event_driven.layers import choices

SLOPE = pj.surrogate.Triangle()  # a whole number of quarters where the potential is


@dataclass(frozen=True)
class Block:
    """A layer of synapses, its neurons, and what stands behind them."""

    inputs: int
    outputs: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    bias: bool
    threshold: float
    behind: str

    def modules(self) -> tuple[nn.Module, nn.Module]:
        arguments = (self.kernel, self.stride, self.padding, self.dilation, self.groups, self.bias)
        behind = {"pool": nn.AvgPool2d(2, 1), "dropout": nn.Dropout(0.5)}.get(self.behind, nn.Identity())
        return nn.Conv2d(self.inputs, self.outputs, *arguments), behind


class Drawn(nn.Module):
    """Blocks in a row, with residual sums that make values above one, and a linear layer at the end."""

    def __init__(self, blocks: list[Block], side: int, classes: int) -> None:
        super().__init__()
        self.blocks = blocks
        self.synapses, self.behind = (nn.ModuleList(part) for part in zip(*(b.modules() for b in blocks), strict=True))
        self.spikes = nn.ModuleList(pj.Spike(b.threshold, SLOPE) for b in blocks)
        with torch.no_grad():
            features = self.features(torch.zeros(1, blocks[0].inputs, side, side)).numel()
        self.readout = nn.Linear(features, classes)

    def features(self, x: Tensor) -> Tensor:
        for block, synapses, spike, behind in zip(self.blocks, self.synapses, self.spikes, self.behind, strict=True):
            y = spike(synapses(x))
            if block.behind == "sum" and y.shape == x.shape:
                y = y + x
            x = behind(y) if block.behind != "pool" or min(y.shape[2:]) > 1 else y
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.readout(self.features(x))
        return answer


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[Block], int, int]:
    side = width = draw(st.integers(3, 9))
    height, classes = side, draw(st.integers(1, 70))
    groups = draw(st.integers(1, 3))
    channels = groups * draw(st.integers(1, 24))
    blocks = []
    for _ in range(draw(st.integers(1, 2))):
        kernel = draw(st.tuples(st.integers(1, min(3, height)), st.integers(1, min(3, width))))
        dilation = tuple(
            draw(st.integers(1, 1 + (size - k) // max(k - 1, 1))) if k > 1 else 1
            for k, size in zip(kernel, (height, width), strict=True)
        )
        padding = tuple(draw(st.integers(0, min(d * (k - 1), 2))) for k, d in zip(kernel, dilation, strict=True))
        stride = draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
        behind = draw(st.sampled_from(("nothing", "pool", "dropout", "sum")))
        outputs = channels if behind == "sum" else groups * draw(st.sampled_from((1, 5, 11, 22, 33, 65)))
        threshold = draw(st.sampled_from((-100.0, 0.5, 2.0, 100.0)))  # all fire, some, few, none
        blocks.append(
            Block(
                channels,
                outputs,
                kernel,
                stride,
                padding,
                (dilation[0], dilation[1]),
                groups,
                draw(st.booleans()),
                threshold,
                behind,
            )
        )
        sizes = [
            (size + 2 * p - d * (k - 1) - 1) // s + 1
            for size, p, d, k, s in zip((height, width), padding, dilation, kernel, stride, strict=True)
        ]
        height, width = (size - 1 if behind == "pool" and min(sizes) > 1 else size for size in sizes)
        channels = outputs
    return blocks, side, classes


def results(net: Drawn, x: Tensor, answer: Tensor, seed: int) -> list[Tensor]:
    torch.manual_seed(seed)  # of dropout
    net.zero_grad()
    x = x.clone().requires_grad_()
    y = net(x)
    y.backward(answer)
    return [y.detach(), *(p.grad for p in (x, *net.parameters()) if p.grad is not None)]


@settings(max_examples=25, deadline=None)
@given(networks(), st.integers(0, 5), st.sampled_from((0.0, 0.03, 0.3, 1.0)), st.booleans(), st.integers(0, 10**6))
def test_events_and_dense_layers_agree_to_the_bit(
    drawn: tuple[list[Block], int, int], images: int, activity: float, channels_last: bool, seed: int
) -> None:
    blocks, side, classes = drawn
    source = torch.Generator().manual_seed(seed)
    net = Drawn(blocks, side, classes)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape, generator=source))
    x = (torch.rand(images, blocks[0].inputs, side, side, generator=source) < activity).float()
    answer = torch.randint(-1, 2, (images, classes), generator=source).float()
    layout = torch.channels_last if channels_last else torch.contiguous_format
    net, x = net.to(memory_format=layout), x.to(memory_format=layout)  # type: ignore[call-overload]
    expected, exact = (
        results(net, x, answer, seed),
        results(copy.deepcopy(net).double(), x.double(), answer.double(), seed),
    )
    assume(all(torch.equal(a.double(), b) for a, b in zip(expected, exact, strict=True)))
    made = choices(pj.sparse(net))
    for choice in made.values():
        choice.break_even, choice.by_events = 1.0, True
    found = results(net, x, answer, seed)
    assert all(choice.event_calls == (images > 0) for choice in made.values())
    assert all(torch.equal(mine, other) for mine, other in zip(found, expected, strict=True))
