"""Whole data sets in memory: shapes, splits, statistics, padding, subsets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from picojoule.data import cache_root, datasets, fetch, load
from picojoule.data.cache import holds
from picojoule.data.datasets import FASHION_MNIST
from picojoule.data.images import Data, Normalization, statistics
from picojoule.errors import PicojouleError

from .conftest import CONTENTS, SPLITS, Contents

FILE_SETS = sorted(CONTENTS)


def parts(data: Data) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [(part.images, part.labels) for part in (data.train, data.validation, data.test)]


@pytest.mark.parametrize("name", FILE_SETS)
def test_a_loaded_set(name: str, tiny: dict[str, Contents], cache: Path) -> None:
    fetch(name)
    data = load(name)
    assert tuple(map(len, (data.train, data.validation, data.test))) == SPLITS[name]
    assert data.shape == (1 if name == "fashion-mnist" else 3, 32, 32)
    assert data.source == str(cache / name)
    for images, labels in parts(data):
        assert images.dtype == torch.uint8
        assert images.shape[1:] == data.shape
        assert labels.dtype == torch.int64
        assert labels.min() >= 0
        assert labels.max() < data.classes


@pytest.mark.parametrize("name", FILE_SETS)
def test_validation_and_training_share_the_official_training_images(
    name: str, tiny: dict[str, Contents], cache: Path
) -> None:
    fetch(name)
    data = load(name, pad=0)
    dataset = datasets.DATASETS[name]
    assert isinstance(dataset, datasets.FileSet)
    images, labels = dataset.decode([tiny[name][file.name] for file in dataset.train])
    official = sorted((image.tobytes(), int(label)) for image, label in zip(images, labels, strict=True))
    both = [
        (image.numpy().tobytes(), int(label))
        for images, labels in parts(data)[:2]
        for image, label in zip(images, labels, strict=True)
    ]
    assert sorted(both) == official
    assert len(set(both)) == len(both)


def test_what_is_not_there_says_how_to_get_it(tiny: dict[str, Contents], cache: Path) -> None:
    with pytest.raises(PicojouleError, match=r"not in the cache .* get it with `picojoule data fetch cifar-10`"):
        load("cifar-10")


@pytest.mark.parametrize("pad", [None, 0, 1, 3])
def test_padding_is_black_and_leaves_the_statistics_alone(
    pad: int | None, tiny: dict[str, Contents], cache: Path
) -> None:
    fetch("fashion-mnist")
    bare, data = load("fashion-mnist", pad=0), load("fashion-mnist", pad=pad)
    border = 2 if pad is None else pad
    for (inner, labels), (images, same_labels) in zip(parts(bare), parts(data), strict=True):
        assert torch.equal(images, torch.nn.functional.pad(inner, (border,) * 4))
        assert torch.equal(labels, same_labels)
    assert data.normalization == bare.normalization


@pytest.mark.parametrize("limit", [1, 10, 57, 180])
def test_a_subset_is_balanced_and_sees_the_same_statistics(limit: int, tiny: dict[str, Contents], cache: Path) -> None:
    fetch("fashion-mnist")
    whole, some = load("fashion-mnist"), load("fashion-mnist", limit=limit)
    counts = some.train.labels.bincount(minlength=10)
    assert len(some.train) == limit
    assert counts.max() - counts.min() <= 1
    assert some.normalization == whole.normalization
    assert torch.equal(some.validation.images, whole.validation.images)
    assert torch.equal(some.test.images, whole.test.images)
    mine = {image.numpy().tobytes() for image in some.train.images}
    assert mine <= {image.numpy().tobytes() for image in whole.train.images}


@pytest.mark.parametrize("part", ["validation", "test"])
def test_evaluation_can_be_limited_too(part: str) -> None:
    whole, some = load("digits"), load("digits", **{f"limit_{part}": 33})  # type: ignore[arg-type] # only these two keys
    for name in ("train", "validation", "test"):
        images, of = getattr(some, name), getattr(whole, name)
        assert len(images) == (33 if name == part else len(of))
        assert {image.numpy().tobytes() for image in images.images} <= {image.numpy().tobytes() for image in of.images}
    counts = getattr(some, part).labels.bincount(minlength=10)
    assert counts.max() - counts.min() <= 1
    assert some.normalization == whole.normalization


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"limit": 0}, "limit = 0"),
        ({"limit": 1253}, r"limit = 1253 .* between 1 and 12\d\d images"),
        ({"limit": 10.0}, "limit = 10.0"),
        ({"limit_test": 361}, "limit_test = 361"),
        ({"limit_validation": 0}, "limit_validation = 0"),
        ({"pad": -1}, "pad = -1"),
        ({"pad": True}, "pad = True"),
    ],
)
def test_impossible_wishes(arguments: dict[str, int], reason: str) -> None:
    with pytest.raises(PicojouleError, match=reason):
        load("digits", **arguments)  # type: ignore[arg-type] # wrong types are the point


def test_statistics_are_those_of_numpy_in_float64() -> None:
    images = np.random.default_rng(0).integers(0, 256, (50, 3, 8, 8), dtype=np.uint8)
    images[:, 2] //= 100
    got = statistics(images)
    pixels = images.astype(np.float64) / 255
    np.testing.assert_allclose(got.mean, pixels.mean(axis=(0, 2, 3)), rtol=1e-13)
    np.testing.assert_allclose(got.std, pixels.std(axis=(0, 2, 3)), rtol=1e-13)


def test_statistics_by_hand() -> None:
    images = np.zeros((2, 1, 1, 1), dtype=np.uint8)
    images[1] = 255
    assert statistics(images) == Normalization(mean=(0.5,), std=(0.5,))


def test_a_constant_channel_cannot_be_normalised() -> None:
    with pytest.raises(PicojouleError, match=r"channel 0 .* constant"):
        statistics(np.full((3, 1, 2, 2), 7, dtype=np.uint8))


def test_normalised_training_images_have_mean_0_and_deviation_1() -> None:
    data = load("digits")
    pixels = data.normalization(data.train.images.double() / 255)
    torch.testing.assert_close(pixels.mean(), torch.tensor(0.0, dtype=torch.float64), atol=1e-9, rtol=0)
    torch.testing.assert_close(pixels.std(correction=0), torch.tensor(1.0, dtype=torch.float64), atol=1e-9, rtol=0)


def test_digits_are_scikit_learns_enlarged_four_times() -> None:
    data = load("digits")
    assert tuple(map(len, (data.train, data.validation, data.test))) == (1257, 180, 360)
    bunch = load_digits()
    small = [image[0, ::4, ::4] for images, _ in parts(data) for image in images]
    for images, _ in parts(data):
        assert torch.equal(images, images[:, :, ::4, ::4].repeat_interleave(4, 2).repeat_interleave(4, 3))
    levels = sorted((image.double() * 16 / 255).round().to(torch.uint8).numpy().tobytes() for image in small)
    assert levels == sorted(image.astype(np.uint8).tobytes() for image in bunch.images)
    for _, labels in parts(data):
        share = labels.bincount() / len(labels)
        torch.testing.assert_close(
            share, torch.from_numpy(np.bincount(bunch.target) / 1797).float(), atol=0.006, rtol=0
        )


def test_every_load_is_the_same() -> None:
    for first, second in zip(parts(load("digits")), parts(load("digits")), strict=True):
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.skipif(
    not holds(FASHION_MNIST, cache_root()),
    reason="fashion-mnist is not in the cache (picojoule data fetch fashion-mnist)",
)
def test_the_real_fashion_mnist() -> None:
    data = load("fashion-mnist")
    assert tuple(map(len, (data.train, data.validation, data.test))) == (54000, 6000, 10000)
    for part, count in ((data.train, 5400), (data.validation, 600), (data.test, 1000)):
        assert part.labels.bincount().tolist() == [count] * 10
    # The well-known figures of all 60000 images are 0.2860 and 0.3530.
    assert data.normalization.mean == pytest.approx((0.2860,), abs=5e-4)
    assert data.normalization.std == pytest.approx((0.3530,), abs=5e-4)
    assert data.test.labels[:10].tolist() == [9, 2, 1, 1, 6, 1, 4, 6, 5, 7]
