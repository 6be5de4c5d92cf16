"""The oracle that random networks are held against, on networks counted by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj
from fuzz.oracle import Oracle


class Fed(nn.Module):
    """Neurons that all fire, and what is done with their spikes."""

    def __init__(self, after: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.spike = pj.Spike(0.5)
        self.after = after

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.spike(x))


def consulted(after: Callable[[Tensor], Tensor], *shape: int, **neurons: nn.Module) -> Oracle:
    model, x = Fed(after), torch.ones(shape)
    oracle = Oracle()
    oracle.mark_input(x)
    with torch.no_grad(), oracle.watched({"spike": model.spike, **neurons}):
        model(x)
    return oracle


W = torch.ones(3, 4)
HALF = torch.tensor([[1.0, 0, 1, 0]] * 3)


@pytest.mark.parametrize(
    ("after", "synops"),
    [
        pytest.param(lambda z: F.linear(z, W), 4 * 3, id="linear"),
        pytest.param(lambda z: F.linear(z, W * HALF), 2 * 3, id="masked weights"),
        pytest.param(lambda z: F.linear(z * HALF[0], W), 2 * 3, id="masked spikes"),
        pytest.param(lambda z: F.linear(z + z, W), 2 * 4 * 3, id="two spikes"),
        pytest.param(lambda z: F.linear(z * 0.25, W), 4 * 3, id="a constant scale"),
        pytest.param(lambda z: F.linear(torch.cat([z, z], 1), torch.ones(3, 8)), 8 * 3, id="concatenation"),
        pytest.param(lambda z: F.linear(z[:, :3], W[:, :3]), 3 * 3, id="a slice"),
        pytest.param(lambda z: F.linear(z.clone().mul_(HALF[0]), W), 2 * 3, id="a mask in place"),
        pytest.param(lambda z: (z.unsqueeze(1) * torch.randn(3, 4)).sum(-1), 4 * 3, id="a product and a sum"),
        pytest.param(lambda z: F.linear(F.linear(z, W), torch.ones(2, 3)), 4 * 3, id="currents are no spikes"),
        pytest.param(lambda z: z, 0, id="no weights"),
        pytest.param(lambda z: z[:, :, None] @ z[:, None], 4 * 4, id="a product of spikes"),
        pytest.param(lambda z: (z * HALF[0])[:, None] @ z[:, :, None], 2, id="pairs that meet"),
        pytest.param(lambda z: F.linear(z, W)[:, :, None] @ z[:, None], 12 + 4 * 3, id="spikes and currents"),
        pytest.param(lambda z: F.linear(z * (z * HALF[0]), W), 2 * 3, id="a gate"),
        pytest.param(lambda z: F.linear(0.25 * z * (z * HALF[0]), W), 2 * 3, id="a gate of scaled spikes"),
        pytest.param(lambda z: F.linear(z * (2 * z), W), 4 * 3, id="a gate of spikes that are worth two"),
        pytest.param(lambda z: F.linear(z * (1 - z * HALF[0]), W), 2 * 3, id="a gate of the silent"),
        pytest.param(lambda z: F.linear(z, W) * z[:, :3], 12 + 3, id="a gate of currents"),
        pytest.param(lambda z: z * HALF[0] * z.softmax(-1), 2, id="a gate of shares"),
    ],
)
def test_spikes_of_a_row_are_charged_for_the_weights_that_they_meet(
    after: Callable[[Tensor], Tensor], synops: int
) -> None:
    oracle = consulted(after, 1, 4)
    assert (oracle.synops, oracle.lost, oracle.hidden) == (synops, [], [])


@pytest.mark.parametrize(
    ("after", "synops"),
    [
        # A map of 4×4: with a border of zeros, corners are under 4 of 9 taps, edges under 6, the middle under 9.
        pytest.param(
            lambda z: F.conv2d(z, torch.ones(2, 1, 3, 3), padding=1), 2 * (4 * 4 + 8 * 6 + 4 * 9), id="border"
        ),
        pytest.param(lambda z: F.conv2d(z, torch.ones(2, 1, 2, 2), stride=2), 2 * 16, id="stride"),
        pytest.param(lambda z: F.conv2d(z, torch.ones(1, 1, 2, 2), dilation=3), 4, id="dilation"),
        pytest.param(lambda z: F.conv_transpose2d(z, torch.ones(1, 3, 2, 2)), 16 * 3 * 4, id="transposed"),
        pytest.param(lambda z: F.conv2d(F.avg_pool2d(z, 2), torch.ones(5, 1, 1, 1)), 16 * 5, id="average pool"),
        pytest.param(lambda z: F.conv2d(F.max_pool2d(z, 2), torch.ones(5, 1, 1, 1)), 4 * 5, id="max pool"),
        pytest.param(lambda z: F.linear(F.adaptive_avg_pool2d(z, 3).flatten(1), torch.ones(1, 9)), 36, id="overlaps"),
    ],
)
def test_spikes_of_a_map_are_charged_for_the_weights_that_they_meet(
    after: Callable[[Tensor], Tensor], synops: int
) -> None:
    oracle = consulted(after, 1, 1, 4, 4)
    assert (oracle.synops, oracle.lost, oracle.hidden) == (synops, [], [])


def test_weights_that_meet_the_input_or_currents_are_multiplied() -> None:
    x = torch.ones(2, 4)
    oracle = Oracle()
    oracle.mark_input(x)
    with oracle:
        F.linear(F.linear(x, HALF), torch.ones(5, 3))
    assert (oracle.synops, oracle.macs, oracle.dense_macs) == (0, 2 * (6 + 15), 2 * (12 + 15))


def test_what_cannot_be_followed_is_no_count() -> None:
    assert consulted(lambda z: F.linear(z.softmax(-1), W), 1, 4).lost
    assert consulted(lambda z: z * z.sigmoid(), 1, 4).lost
    fire = pj.Spike(0.5)
    assert consulted(lambda z: fire(z.sign()), 1, 4, fire=fire).lost
    assert consulted(lambda z: (z.unsqueeze(1) * torch.randn(3, 4)).cumsum(-1)[..., -1], 1, 4).hidden


TABLE = torch.randn(3, 4)


@pytest.mark.parametrize(
    ("after", "hidden"),
    [
        pytest.param(lambda z: TABLE[0, 0] * z[:, 0] + TABLE[0, 1] * z[:, 1], True, id="numbers of a table"),
        pytest.param(lambda z: z + z * TABLE[0], True, id="a factor for each and a sum"),
        pytest.param(lambda z: F.linear(z + z * TABLE[0], W), False, id="which weights follow"),
        pytest.param(lambda z: 0.3 * z[:, 0] + 0.7 * z[:, 1], False, id="numbers in the code"),
        pytest.param(lambda z: z * TABLE[0] + 1, False, id="a factor for each and a bias"),
    ],
)
def test_weighted_sums_by_hand_are_seen_at_the_end(after: Callable[[Tensor], Tensor], hidden: bool) -> None:
    oracle = Oracle()
    with torch.no_grad(), oracle.watched({"spike": (model := Fed(after)).spike}):
        oracle.mark_end("the end", model(torch.ones(1, 4)))
    assert bool(oracle.hidden) == hidden
