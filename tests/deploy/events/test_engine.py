"""The engine as one uses it: threads, layouts, int8 weights, and what it does not take."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import picojoule as pj
from against_pytorch import TRIANGLE, agree, metered, small
from picojoule.deploy import events


def test_threads_share_a_batch() -> None:
    net, x = small(), torch.randn(21, 1, 8, 8)
    one, two = events.compile(net, x), events.compile(net, x, threads=2)
    for size in (0, 1, 2, 21):
        a, b = one(x[:size]), two(x[:size])
        assert torch.equal(a.logits, b.logits)
        assert a.logits.shape == (size, 10)
        assert torch.equal(a.synops, b.synops)
    with ThreadPoolExecutor(4) as pool:
        for result in pool.map(lambda _: two(x), range(8)):
            assert torch.equal(result.logits, one(x).logits)


def test_an_image_does_not_see_the_one_before_it() -> None:
    net, x = small(), torch.randn(9, 1, 8, 8)
    engine = events.compile(net, x)
    together = engine(x)
    for i in (8, 3, 0):
        alone = engine(x[i : i + 1])
        assert torch.equal(alone.logits[0], together.logits[i])
        assert alone.synops[0] == together.synops[i]


def test_layouts_and_types_of_images() -> None:
    net, x = small(), torch.randn(3, 1, 8, 8)
    engine = events.compile(net.to(memory_format=torch.channels_last), x)  # type: ignore[call-overload]
    expected = engine(x).logits
    for given_images in (x.contiguous(memory_format=torch.channels_last), x.double(), x.numpy(), x.requires_grad_()):
        assert torch.equal(engine(given_images).logits, expected)


def test_the_model_stays_as_it_was() -> None:
    net = small().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    events.compile(net, torch.zeros(1, 1, 8, 8))
    assert net.training
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_pruned_synapses_are_not_counted() -> None:
    net = small()
    prune.random_unstructured(net[4], "weight", amount=0.4)
    prune.random_unstructured(net[7], "weight", amount=0.4)
    agree(net, torch.randn(4, 1, 8, 8))


# --- int8 ------------------------------------------------------------------------------------------------------------


def test_bytes_are_exact_where_weights_are_whole_numbers() -> None:
    """More rows than sixteen bits can hold, and average pools, whose spikes are repeated."""
    net = (
        nn.Sequential(
            nn.Conv2d(1, 40, 3, bias=False),
            pj.Spike(0.0, TRIANGLE),
            nn.AvgPool2d(2),
            nn.Flatten(),
            nn.Linear(40 * 49, 70),
            pj.Spike(64),
        )
        .append(nn.Linear(70, 3))
        .eval()
    )
    with torch.no_grad():
        net[4].weight.copy_(torch.randint(-127, 128, (70, 40 * 49)))
        net[4].weight[:, 0] = 127
        net[4].weight[0] = 127
        net[6].weight.copy_(torch.randint(-127, 128, (3, 70)))
        net[6].weight[:, 0] = -127
    x = torch.randn(5, 1, 16, 16)
    exact, narrow = events.compile(net, x)(x), events.compile(net, x, weights="int8")(x)
    assert torch.equal(exact.synops, narrow.synops)
    assert exact.synops.min() > 300 * 70
    assert torch.equal(exact.spikes["5"], narrow.spikes["5"])
    torch.testing.assert_close(narrow.logits, exact.logits, rtol=1e-6, atol=1e-3)


def test_bytes_are_near_and_count_what_they_do() -> None:
    net, x = small(), torch.randn(6, 1, 8, 8)
    engine = events.compile(net, x, weights="int8")
    result, own = engine(x), engine.watch(x)
    assert result.synops.tolist() == metered(engine.synapses, own)
    with torch.no_grad(), pj.watch(net) as dense:
        net(x)
    assert (own["5"] != dense["5"]).float().mean() < 0.05
    assert torch.equal(own["2"], dense["2"]), "the pixels' layer keeps its weights"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"weights": "int4"}, "int8"), ({"threads": 0}, "threads=0"), ({"threads": True}, "True")],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(pj.PicojouleError, match=message):
        events.compile(small(), torch.zeros(1, 1, 8, 8), **arguments)


def test_a_network_of_doubles_is_run_in_float32() -> None:
    net = small().double()
    x = torch.randn(4, 1, 8, 8)
    torch.testing.assert_close(events.compile(net, x.double())(x).logits, net(x.double()).float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "images",
    [
        [1, 2],
        None,
        "picture.png",
        3.0,
        torch.zeros(1, 1, 8, 8).to_sparse(),
        torch.zeros(1, 1, 8, 8, device="meta"),
        torch.zeros(1, 1, 8, 8, dtype=torch.complex64),
        np.full((1, 1, 8, 8), "a"),
        np.full((1, 1, 8, 8), None),
    ],
)
def test_what_is_no_batch_of_images_is_refused_in_a_sentence(images: Any) -> None:
    engine = events.compile(small(), torch.zeros(1, 1, 8, 8))
    for call in (engine, engine.watch):
        with pytest.raises(pj.PicojouleError, match=r"a tensor or a NumPy array.*\(1, 8, 8\)"):
            call(images)


@pytest.mark.parametrize("example", [[1, 2], None, (torch.zeros(1, 1, 8, 8),)])
def test_an_example_is_a_tensor(example: Any) -> None:
    with pytest.raises(pj.PicojouleError, match="needs a tensor as its example"):
        events.compile(small(), example)


def test_a_norm_by_the_statistics_of_the_batch_is_refused_in_a_sentence() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.BatchNorm1d(4, track_running_stats=False), pj.Spike())
    net.append(nn.Linear(4, 2))
    with pytest.raises(pj.PicojouleError, match=r"Sequential fails for a batch of one in evaluation mode .*dense"):
        events.compile(net, torch.zeros(5, 1, 8, 8))


def test_a_threshold_is_a_plain_number() -> None:
    net = small()
    next(layer for layer in net.modules() if isinstance(layer, pj.Spike)).threshold = torch.tensor(0.5)  # type: ignore[assignment]
    with pytest.raises(pj.PicojouleError, match="whose threshold is of the type Tensor: give it a plain number"):
        events.compile(net, torch.zeros(1, 1, 8, 8))


def test_images_of_another_shape() -> None:
    engine = events.compile(small(), torch.zeros(1, 1, 8, 8))
    for shape in ((1, 8, 8), (1, 1, 9, 8), (1, 3, 8, 8)):
        with pytest.raises(pj.PicojouleError, match="compiled for samples of shape"):
            engine(torch.zeros(shape))
