"""Batches: complete, reproducible from any position, and shared fairly between processes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from picojoule.data import Batches, Images, Normalization
from picojoule.data.batches import POOL
from picojoule.errors import PicojouleError

NORMALIZATION = Normalization(mean=(0.25, 0.5), std=(0.5, 2.0))


def numbered(count: int) -> Images:
    """Images whose label is their number, and whose pixels say it too."""
    numbers = torch.arange(count)
    pixels = (numbers % 256).to(torch.uint8).view(-1, 1, 1, 1).expand(-1, 2, 3, 3).contiguous()
    return Images(pixels, numbers)


def jitter(batches: Sequence[Tensor], key: Sequence[int]) -> list[Tensor]:
    """A stand-in augmentation: noise drawn from the key and from how many images there are in all."""
    images = torch.cat(list(batches))
    generator = torch.Generator().manual_seed(hash((*key, len(images))))
    return list((images + torch.rand(images.shape, generator=generator)).split([len(batch) for batch in batches]))


def flat(lists: list[list[int]]) -> list[int]:
    return [number for numbers in lists for number in numbers]


def labels(batches: Batches, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [numbers.tolist() for _, numbers in batches.epoch(epoch, start)]


def test_evaluation_is_in_order_and_complete() -> None:
    assert labels(Batches(numbered(7), 3)) == [[0, 1, 2], [3, 4, 5], [6]]


def test_pixels_are_normalised_by_channel() -> None:
    (images, numbers), *_ = Batches(numbered(200), 50, NORMALIZATION, seed=0).epoch(0)
    assert images.dtype == torch.float32
    pixels = numbers.double() / 255
    for channel, (mean, std) in enumerate(zip(NORMALIZATION.mean, NORMALIZATION.std, strict=True)):
        expected = ((pixels - mean) / std).float().view(-1, 1, 1).expand(-1, 3, 3)
        torch.testing.assert_close(images[:, channel], expected)


def test_without_normalisation_pixels_are_fractions() -> None:
    ((images, _),) = Batches(numbered(256), 256)
    torch.testing.assert_close(images[:, 0, 0, 0], torch.linspace(0, 1, 256))


def test_the_data_are_not_changed() -> None:
    part = numbered(50)
    list(Batches(part, 10, NORMALIZATION, seed=0, augment=jitter))
    assert torch.equal(part.images, numbered(50).images)


def test_an_epoch_is_a_permutation_decided_by_seed_and_epoch() -> None:
    part = numbered(100)
    orders = {
        (seed, epoch): tuple(flat(labels(Batches(part, 9, seed=seed), epoch))) for seed in (0, 1) for epoch in (0, 1)
    }
    assert len(set(orders.values())) == 4
    assert orders[0, 1] == tuple(flat(labels(Batches(part, 25, seed=0), 1))[: len(orders[0, 1])])
    for order in orders.values():
        assert len(set(order)) == len(order)


@pytest.mark.parametrize(("count", "sizes"), [(20, [10, 10]), (21, [10, 10]), (22, [10, 10, 2]), (9, [9])])
def test_training_drops_a_last_batch_of_one(count: int, sizes: list[int]) -> None:
    batches = Batches(numbered(count), 10, seed=3)
    assert [len(batch) for batch in labels(batches)] == sizes
    assert len(batches) == len(sizes)


@pytest.mark.parametrize("augment", [None, jitter], ids=["plain", "augmented"])
@pytest.mark.parametrize("start", [0, 1, POOL - 1, POOL, POOL + 1, 2 * POOL + 3, 25])
def test_a_resumed_epoch_has_the_same_remaining_batches(start: int, augment: object) -> None:
    batches = Batches(numbered(250), 10, NORMALIZATION, seed=5, augment=augment)  # type: ignore[arg-type]
    whole, rest = list(batches.epoch(4)), list(batches.epoch(4, start))
    assert len(whole) == 25
    assert len(rest) == 25 - start
    for (images, numbers), (same_images, same_numbers) in zip(whole[start:], rest, strict=True):
        assert torch.equal(images, same_images)
        assert torch.equal(numbers, same_numbers)


def test_augmentation_differs_between_epochs_and_seeds() -> None:
    def first(seed: int, epoch: int) -> Tensor:
        batches = Batches(
            Images(torch.zeros(40, 1, 4, 4, dtype=torch.uint8), torch.arange(40)), 10, seed=seed, augment=jitter
        )
        return next(batches.epoch(epoch))[0]

    draws = [first(0, 0), first(0, 1), first(1, 0)]
    assert torch.equal(draws[0], first(0, 0))
    assert not any(torch.equal(a, b) for a, b in [(draws[0], draws[1]), (draws[0], draws[2]), (draws[1], draws[2])])


@given(
    count=st.integers(8, 120),
    world=st.integers(1, 4),
    each=st.integers(2, 6),
    augmented=st.booleans(),
    start=st.integers(0, 3),
)
def test_the_processes_together_train_on_the_batches_of_one(
    count: int, world: int, each: int, augmented: bool, start: int
) -> None:
    part, augment, size = numbered(count), jitter if augmented else None, world * each
    ranks = [
        Batches(part, size, NORMALIZATION, seed=1, augment=augment, rank=rank, world_size=world)
        for rank in range(world)
    ]
    one = list(Batches(part, size, NORMALIZATION, seed=1, augment=augment).epoch(2, start))
    shares = [list(batches.epoch(2, start)) for batches in ranks]
    assert len({len(share) for share in shares}) == 1
    assert len(one) - len(shares[0]) in (0, 1)
    for position, pieces in enumerate(zip(*shares, strict=True)):
        images, numbers = one[position]
        kept = len(numbers) - len(numbers) % world
        assert len({len(share) for _, share in pieces}) == 1
        for rank, (mine, my_numbers) in enumerate(pieces):
            assert torch.equal(my_numbers, numbers[:kept][rank::world])
            assert torch.equal(mine, images[:kept][rank::world])


@given(count=st.integers(1, 60), world=st.integers(1, 4), size=st.integers(1, 12))
def test_the_processes_together_evaluate_every_image_once(count: int, world: int, size: int) -> None:
    ranks = [Batches(numbered(count), size, rank=rank, world_size=world) for rank in range(world)]
    shares = [labels(batches) for batches in ranks]
    assert [len(batches) for batches in ranks] == [len(share) for share in shares]
    assert all(batch for share in shares for batch in share)
    assert sorted(flat([batch for share in shares for batch in share])) == list(range(count))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"batch_size": 0}, "batch_size = 0"),
        ({"rank": 2, "world_size": 2}, "rank = 2 of 2"),
        ({"seed": -1}, "seed = -1"),
        ({"seed": 0, "batch_size": 5, "world_size": 2}, "take a multiple of 2"),
        ({"seed": 0, "batch_size": 1}, "make no batch"),
        ({"seed": 0, "batch_size": 30, "world_size": 10}, "make no batch"),
        ({"augment": jitter}, "needs a seed"),
    ],
)
def test_impossible_batches(arguments: dict[str, object], reason: str) -> None:
    with pytest.raises(PicojouleError, match=reason):
        Batches(numbered(10), **{"batch_size": 4, **arguments})  # type: ignore[arg-type]


def test_labels_and_images_stay_together_on_the_way_to_the_device() -> None:
    for images, numbers in Batches(numbered(64), 16, seed=9, device="cpu").epoch(1):
        assert torch.equal((images[:, 0, 0, 0] * 255).round().long(), numbers)
