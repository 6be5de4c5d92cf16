"""RandAugment: works on grey, keeps shape and range, draws from its key alone."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from kornia.augmentation.auto.rand_augment.rand_augment import default_policy
from torch import Tensor

from picojoule.data import Batches, Images, RandAugment, load
from picojoule.errors import PicojouleError


def images(channels: int, count: int = 20) -> Tensor:
    return torch.rand(count, channels, 32, 32, generator=torch.Generator().manual_seed(1))


@pytest.mark.slow
def test_many_draws_on_grey_images() -> None:
    augment = RandAugment()
    digits = load("digits").train.images[:20].float() / 255
    unchanged = 0
    for draw in range(60):
        (changed,) = augment([digits], (0, draw))
        assert changed.shape == digits.shape
        assert changed.isfinite().all()
        assert changed.min() >= 0
        assert changed.max() <= 1
        unchanged += torch.equal(changed, digits)
    assert unchanged == 0


@pytest.mark.parametrize("operation", range(len(default_policy)), ids=lambda number: default_policy[number][0][0])
def test_each_operation_treats_grey_like_the_same_picture_in_colour(operation: int) -> None:
    augment = RandAugment()
    augment._operations = [augment._operations[operation]] * 2
    grey = images(1)
    (as_grey,) = augment([grey], (0,))
    (as_colour,) = augment([grey.expand(-1, 3, -1, -1).contiguous()], (0,))
    assert as_grey.shape == grey.shape
    assert torch.equal(as_grey, as_colour[:, :1])


@pytest.mark.parametrize("channels", [1, 3])
def test_the_key_decides_and_the_global_state_is_left_alone(channels: int) -> None:
    augment, batches = RandAugment(), [images(channels), images(channels, 7)]
    before = torch.get_rng_state()
    first = augment(batches, (0, 3, 1))
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(99)
    again = RandAugment()(batches, (0, 3, 1))
    other = augment(batches, (0, 3, 2))
    assert [len(batch) for batch in first] == [20, 7]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_given_images_are_not_changed() -> None:
    for channels in (1, 3):
        given = images(channels)
        RandAugment()([given], (0,))
        assert torch.equal(given, images(channels))


def test_a_batch_has_ten_groups_with_an_operation_sequence_each() -> None:
    augment = RandAugment()
    torch.manual_seed(0)
    sequences = augment._sequences([100, 100, 25, 3])
    assert sequences.shape == (228, 2)
    assert (sequences[:, 0] != sequences[:, 1]).all()
    for first in (0, 100):
        groups = sequences[first : first + 100].view(10, 10, 2)
        assert (groups == groups[:, :1]).all()
    assert len({tuple(row) for row in sequences[:200].tolist()}) > 12
    assert set(sequences.flatten().tolist()) <= set(range(15))


def test_every_operation_is_drawn_equally_often_in_each_place() -> None:
    torch.manual_seed(0)
    sequences = RandAugment()._sequences([10] * 1500)
    for place in (0, 1):
        counts = sequences[:, place].bincount(minlength=15)
        # 15000 draws over 15 operations: 1000 each, with a deviation of 31.
        assert (counts - 1000).abs().max() < 160


def test_batches_of_augmented_images() -> None:
    part = load("digits", limit=120).train
    batches = Batches(part, 20, seed=0, augment=RandAugment())
    plain = Batches(part, 20, seed=0)
    for (changed, labels), (original, same_labels) in zip(batches.epoch(0), plain.epoch(0), strict=True):
        assert torch.equal(labels, same_labels)
        assert changed.shape == original.shape
        assert not torch.equal(changed, original)
    resumed = list(batches.epoch(0, start=4))
    for (a, _), (b, _) in zip(list(batches.epoch(0))[4:], resumed, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"n": 0}, "randaugment_n = 0"),
        ({"n": 16}, "randaugment_n = 16 .* take 1 to 15"),
        ({"m": 0}, "randaugment_m = 0"),
        ({"m": 30}, "randaugment_m = 30"),
        ({"groups": 0}, "groups = 0"),
    ],
)
def test_impossible_settings(arguments: dict[str, int], reason: str) -> None:
    with pytest.raises(PicojouleError, match=reason):
        RandAugment(**arguments)


@pytest.mark.slow
def test_kornia_is_imported_only_when_augmentation_is_on() -> None:
    script = (
        "import sys, torch, picojoule.data as data\n"
        "part = data.Images(torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.zeros(4, dtype=torch.int64))\n"
        "list(data.Batches(part, 2, seed=0))\n"
        "assert 'kornia' not in sys.modules and 'sklearn' not in sys.modules and 'PIL' not in sys.modules\n"
        "data.RandAugment()\n"
        "assert 'kornia' in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_images_of_one_class_keep_their_labels() -> None:
    part = Images(torch.full((30, 3, 32, 32), 128, dtype=torch.uint8), torch.arange(30))
    seen = torch.cat([labels for _, labels in Batches(part, 10, seed=2, augment=RandAugment()).epoch(0)])
    assert sorted(seen.tolist()) == list(range(30))
