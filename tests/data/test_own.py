"""Data of the user's own: files, folders, factories and values, read, split, hashed and streamed."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, TensorDataset

from picojoule.data import Data, load, samples
from picojoule.data.batches import Batches
from picojoule.errors import PicojouleError
from picojoule.recipe.sections import DataSection

CLASSES = 3


def arrays(count: int = 60, shape: tuple[int, ...] = (8, 8), seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    labels = np.arange(count) % CLASSES
    noise = np.random.default_rng(seed).integers(0, 100, (count, *shape))
    return (noise + 50 * labels.reshape(-1, *[1] * len(shape))).astype(np.uint8), labels


def pictures(folder: Path, count: int = 60, colour: bool = False, side: int = 8) -> None:
    images, labels = arrays(count, (side, side, 3) if colour else (side, side))
    for number, (image, label) in enumerate(zip(images, labels, strict=True)):
        place = folder / "abc"[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(place / f"{number:03}.png")


def npz(path: Path, **content: Any) -> Path:
    np.savez(path, **content)
    return path


def everything(data: Data) -> torch.Tensor:
    return torch.cat([part.images[:] for part in (data.train, data.validation, data.test)])


def test_a_file_of_arrays_is_split_with_a_fixed_seed(tmp_path: Path) -> None:
    x, y = arrays()
    data = load(str(npz(tmp_path / "mine.npz", x_train=x, y_train=y)))
    assert (len(data.train), len(data.validation), len(data.test)) == (44, 4, 12)
    assert (data.shape, data.classes, data.train.images.dtype) == ((1, 8, 8), CLASSES, torch.uint8)
    assert sorted(everything(data).flatten(1).tolist()) == sorted(x.reshape(60, -1).tolist())
    assert np.bincount(data.test.labels).tolist() == [4, 4, 4]
    again = load(str(tmp_path / "mine.npz"))
    assert torch.equal(everything(again), everything(data))
    pixels = data.train.images.double() / 255
    assert data.normalization.mean == pytest.approx([pixels.mean().item()])
    assert data.normalization.std == pytest.approx([pixels.std(correction=0).item()])


def test_the_content_names_the_data_whatever_their_source(tmp_path: Path) -> None:
    x, y = arrays()
    file = load(str(npz(tmp_path / "mine.npz", x_train=x, y_train=y)))
    given = load("own", given=[(torch.from_numpy(x), torch.from_numpy(y))])
    dataset = load("own", given={"train": TensorDataset(torch.from_numpy(x)[:, None], torch.from_numpy(y))})
    assert file.content == given.content == dataset.content
    x[0, 0, 0] += 1
    assert load("own", given=[(x, y)]).content != file.content


def test_limits_and_padding_are_no_part_of_the_content(tmp_path: Path) -> None:
    x, y = arrays()
    whole = load("own", given=[(x, y)])
    few = load("own", given=[(x, y)], limit=6, limit_test=3, pad=2)
    assert (few.content, few.normalization) == (whole.content, whole.normalization)
    assert (few.train.images.shape, len(few.test)) == (torch.Size([6, 1, 12, 12]), 3)
    assert (few.shape, few.sample_shape) == ((1, 12, 12), (1, 8, 8))
    with pytest.raises(PicojouleError, match="limit_test = 40 is not possible"):
        load("own", given=[(x, y)], limit_test=40)


def test_a_constant_channel_is_refused_only_where_it_is_normalised() -> None:
    x, y = arrays(60, (2, 8, 8))
    x[:, 1] = 7
    for values in (x, x / 255):
        with pytest.raises(PicojouleError, match=r"channel 1 .* is constant.* or take data\.normalize = false"):
            load("own", given=[(values, y)])
        data = load("own", given=[(values, y)], normalize=False)
        assert (data.normalization.mean, data.normalization.std) == ((0, 0), (1, 1))
        section = DataSection.model_validate({"name": "own", "normalize": False})
        assert section.load(given=[(values, y)]).content == data.content


def test_parts_that_are_given_are_kept(tmp_path: Path) -> None:
    (x, y), (v, w), (t, u) = arrays(30), arrays(9, seed=1), arrays(12, seed=2)
    data = load("own", given=((x, y), (v, w), (t, u)))
    assert data.train.images.flatten(1).tolist() == x.reshape(30, -1).tolist()
    assert torch.equal(data.validation.labels, torch.from_numpy(w))
    assert data.test.images.flatten(1).tolist() == t.reshape(12, -1).tolist()


@pytest.mark.parametrize("shape", [(5,), (2, 6, 6), (4, 2, 6, 6)])
def test_floats_vectors_and_frames_over_time_are_taken_as_they_are(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).normal(3, 2, (60, *shape))
    data = load("own", given=[(x, np.arange(60) % CLASSES)])
    assert (data.shape, data.train.images.dtype) == (shape, torch.float32)
    batches = Batches(data.train, 10, data.normalization, seed=0)
    values = torch.cat([images for images, _ in batches.epoch(0)], dim=1 if len(shape) == 4 else 0)
    expected = (44, *shape) if len(shape) < 4 else (4, 44, 2, 6, 6)  # a short last batch of 4 is kept
    assert values.shape == expected
    assert values.mean().item() == pytest.approx(0, abs=1e-4)
    assert values.std().item() == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize("shape", [(9, 9, 4), (9, 9, 2), (9, 9, 3), (8, 100, 1), (5, 9, 9, 3)])
def test_what_may_be_channels_last_is_refused_with_two_remedies_that_work(shape: tuple[int, ...]) -> None:
    x, y = arrays(60, shape)
    with pytest.raises(PicojouleError, match=r"channels last.*moveaxis.*swapaxes"):
        load("own", given=[(x, y)])
    last = np.moveaxis(x, -1, -3)
    side = np.swapaxes(x, -1, -2)
    assert load("own", given=[(last, y)]).shape == last.shape[1:]
    assert load("own", given=[(side, y)]).shape == side.shape[1:]


@pytest.mark.parametrize("shape", [(8, 3, 3), (8, 1, 100), (3, 9, 3), (1, 9, 1), (4, 2, 9, 4)])
def test_channels_first_are_taken_as_they_are(shape: tuple[int, ...]) -> None:
    assert load("own", given=[arrays(60, shape)]).shape == shape


def test_frames_of_a_batch_belong_to_their_labels() -> None:
    y = np.arange(60) % CLASSES
    x = np.broadcast_to((10.0 * np.arange(4) + y[:, None])[:, :, None, None, None], (60, 4, 1, 2, 2)) + 0.0
    data = load("own", given=[(x, y)])
    for frames, labels in Batches(data.train, 7, seed=3).epoch(0):
        assert torch.equal(frames[:, :, 0, 0, 0], 10.0 * torch.arange(4)[:, None] + labels)


def test_events_become_frames_that_hold_each_of_them_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(30) % CLASSES
    events = np.stack([rng.integers(0, high, 4000) for high in (30, 1000, 5, 4, 2)], axis=1)
    path = npz(tmp_path / "e.npz", events_train=events, y_train=labels, frames=6, height=4, width=5)
    data = load(str(path))
    assert data.shape == (6, 2, 4, 5)
    assert everything(data).sum().item() == 4000
    mine = events[events[:, 0] == 0]
    assert sorted(everything(data).sum((1, 2, 3, 4)).tolist()) == sorted(np.bincount(events[:, 0]).tolist())
    first = mine[:, 1] - mine[:, 1].min()
    assert (first * 6 // (first.max() + 1)).max() == 5
    events[:, 2] += 1
    with pytest.raises(PicojouleError, match="x outside of 0 … 4"):
        load(str(npz(tmp_path / "f.npz", events_train=events, y_train=labels, frames=6, height=4, width=5)))


def test_a_folder_of_pictures_is_read_by_class(tmp_path: Path) -> None:
    pictures(tmp_path / "photos")
    data = load(f"folder:{tmp_path / 'photos'}")
    x, y = arrays()
    assert (data.shape, data.class_names) == ((1, 8, 8), ("a", "b", "c"))
    order = np.argsort(y, kind="stable")
    assert data.content == load("own", given=[(x[order], y[order])]).content


def test_a_folder_has_parts_colours_and_one_size(tmp_path: Path) -> None:
    for part, count in (("train", 30), ("val", 6), ("test", 9)):
        pictures(tmp_path / part, count, colour=True)
    data = load(f"folder:{tmp_path}")
    assert (len(data.train), len(data.validation), len(data.test), data.shape) == (30, 6, 9, (3, 8, 8))
    Image.new("RGB", (9, 10), "red").save(tmp_path / "train" / "a" / "x.png")
    with pytest.raises(PicojouleError, match=r"8×8 pixels and .*x\.png has 10×9: say .* data\.size=32"):
        load(f"folder:{tmp_path}")
    assert load(f"folder:{tmp_path}", size=16).shape == (3, 16, 16)


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        (("train", "val", "valid"), "val and .*valid are both the validation part"),
        (("Train", "train"), "Train and .*train are both the train part"),
        (("train", "tset"), "tset is neither train, validation nor test"),
        (("test", "val"), "has .*test but no train folder"),
    ],
)
def test_a_folder_beside_the_parts_is_named(tmp_path: Path, parts: tuple[str, ...], said: str) -> None:
    for part in parts:
        pictures(tmp_path / part, 6)
    if len(list(tmp_path.iterdir())) < len(parts):
        pytest.skip("the file system does not tell Train from train")
    with pytest.raises(PicojouleError, match=said):
        load(f"folder:{tmp_path}")


def test_an_empty_folder_of_a_class_is_named(tmp_path: Path) -> None:
    pictures(tmp_path)
    (tmp_path / "b2").mkdir()
    with pytest.raises(PicojouleError, match="b2 holds no picture: put"):
        load(f"folder:{tmp_path}")


class Counted(Dataset[Any]):
    def __init__(self, count: int = 60) -> None:
        self.x, self.y = arrays(count)
        self.asked = 0

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, index: int) -> Any:
        self.asked += 1
        return torch.from_numpy(self.x[index])[None], int(self.y[index])


def test_what_is_larger_than_memory_is_streamed_and_gives_the_same_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures(tmp_path / "photos")
    x, y = arrays()
    file = npz(tmp_path / "mine.npz", x_train=np.repeat(x, 300, axis=0), y_train=np.repeat(y, 300))
    dataset = Counted()
    sources: list[tuple[str, Any]] = [(f"folder:{tmp_path / 'photos'}", None), (str(file), None), ("own", [dataset])]
    whole = [load(name, given=given, pad=1) for name, given in sources]
    for module in ("npz", "given", "own"):
        monkeypatch.setattr(f"picojoule.data.{module}.room", lambda: 100)
    for (name, given), kept in zip(sources, whole, strict=True):
        data = load(name, given=given, pad=1)
        assert data.streamed
        assert data.of_bytes
        assert data.train.images.dtype == data.train.images[:1].dtype
        assert not kept.streamed
        assert "larger than memory" in str(data)
        assert (data.content, data.normalization, data.shape) == (kept.content, kept.normalization, kept.shape)
        for mine, theirs in zip(Batches(data.train, 7, seed=1), Batches(kept.train, 7, seed=1), strict=True):
            assert torch.equal(mine[0], theirs[0])
            assert torch.equal(mine[1], theirs[1])
    data = load("own", given=[dataset])
    before = dataset.asked
    next(Batches(data.train, 7, seed=1).epoch(0))
    assert dataset.asked == before + 7


def test_a_compressed_file_that_is_larger_than_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = arrays()
    np.savez_compressed(tmp_path / "mine.npz", x_train=np.repeat(x, 300, axis=0), y_train=np.repeat(y, 300))
    monkeypatch.setattr("picojoule.data.npz.room", lambda: 100)
    with pytest.raises(PicojouleError, match="x_train in it is compressed"):
        load(str(tmp_path / "mine.npz"))


class Unpickled:
    def __reduce__(self) -> Any:
        return (pytest.fail, ("a pickle was run",))


def test_nothing_in_a_file_runs(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x_train=np.array([Unpickled()], dtype=object), y_train=[0])
    with pytest.raises(PicojouleError, match=r"x_train in .*mine\.npz is not an array of numbers .*allow_pickle"):
        load(str(tmp_path / "mine.npz"))


def test_the_parts_of_a_file_may_be_spelt_as_those_of_a_folder(tmp_path: Path) -> None:
    (x, y), (v, w) = arrays(30), arrays(9, seed=1)
    whole = load(str(npz(tmp_path / "a.npz", x_train=x, y_train=y, x_validation=v, y_validation=w)))
    for spelling in ("val", "valid"):
        parts = {f"x_{spelling}": v, f"y_{spelling}": w}
        assert load(str(npz(tmp_path / "b.npz", x_training=x, y_training=y, **parts))).content == whole.content


TRAIN = {"x_train": np.random.default_rng(0).normal(size=(40, 3)), "y_train": np.arange(40) % 2}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"a": 1}, "has no x_train or events_train"),
        ({"x_train": np.zeros((4, 2))}, "has no y_train"),
        ({"x_train": np.zeros((4, 2)), "y_train": [0, 1]}, "4 samples and 2 labels"),
        ({"x_train": np.zeros((2, 2)), "y_train": [0.5, 1]}, "are float64"),
        ({"x_train": np.zeros((2, 2)), "y_train": [-1, 1]}, "from 0 up"),
        ({"x_train": np.zeros((2, 9, 9, 3)), "y_train": [0, 1]}, "channels last"),
        ({"x_train": np.array(["a", "b"]), "y_train": [0, 1]}, "not numbers"),
        ({"x_train": np.full((40, 3), np.nan), "y_train": np.arange(40) % 2}, "infinite or NaN"),
        ({"x_train": np.zeros((40, 3)), "y_train": np.arange(40) % 2 * 2}, "no training sample of class 1"),
        ({"x_train": np.zeros((40, 3)), "y_train": np.arange(40) % 2}, "channel 0 of the training images is constant"),
        ({"x_train": np.zeros((3, 3)), "y_train": [0, 1, 1]}, "has no samples for its (test|validation) part"),
        (
            {"x_train": np.zeros((40, 3)), "y_train": np.arange(40) % 2, "x_test": np.zeros((2, 4)), "y_test": [0, 1]},
            "the test samples",
        ),
        (TRAIN | {"X_test": np.zeros((2, 3)), "y_test": [0, 1]}, "has an array X_test, which is no part"),
        (TRAIN | {"y_test": [0, 1]}, "has y_test but no x_test"),
        (TRAIN | {"x_val": np.zeros((2, 3))}, "has no y_validation"),
        (TRAIN | {"x_val": np.zeros((2, 3)), "x_valid": np.zeros((2, 3))}, "has both x_valid and x_val"),
        (TRAIN | {"events_train": np.zeros((2, 5), int)}, "has both x_train and events_train"),
        (TRAIN | {"y_train": np.arange(40) % 2 * 10**12}, r"of class 1 \(labels go up to 1000000000000\)"),
        (TRAIN | {"y_train": np.arange(40, dtype=np.uint64) % 2 + 2**63}, "go up to 9223372036854775809"),
        (TRAIN | {"class_names": ["a", "b", "c"]}, "no training sample of class 2"),
        (TRAIN | {"class_names": ["a", "a"]}, "class_names in .* has 'a' twice"),
        (TRAIN | {"class_names": ["a"]}, "names 1 classes, and the labels go up to 1: name every class"),
        (TRAIN | {"note": "mine"}, "has an array note"),
        (TRAIN | {"y_train": 3}, r"int64 of the shape \(\): give one class per sample"),
    ],
)
def test_what_is_no_data_set_is_named(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    with pytest.raises(PicojouleError, match=said):
        load(str(npz(tmp_path / "mine.npz", **content)))


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PicojouleError, match=r"there is no file .*gone\.npz"):
        load(str(tmp_path / "gone.npz"))
    (tmp_path / "text.npz").write_text("text")
    with pytest.raises(PicojouleError, match=r"text\.npz is damaged or not an \.npz file"):
        load(str(tmp_path / "text.npz"))
    stream = io.BytesIO()
    np.savez_compressed(stream, x_train=arrays()[0], y_train=arrays()[1])
    damaged = bytearray(stream.getvalue())
    damaged[200:260] = bytes(60)
    (tmp_path / "cut.npz").write_bytes(damaged)
    with pytest.raises(PicojouleError, match=r"cut\.npz"):
        load(str(tmp_path / "cut.npz"))
    with zipfile.ZipFile(tmp_path / "odd.npz", "w") as archive:
        archive.writestr("x_train.npy", b"no array")
        archive.writestr("y_train.npy", b"no array")
    with pytest.raises(PicojouleError, match=r"_train in .*odd\.npz is not an array"):
        load(str(tmp_path / "odd.npz"))


def test_a_file_that_cannot_be_what_it_says_is_named(tmp_path: Path) -> None:
    path = npz(tmp_path / "locked.npz", **TRAIN)
    content = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\3\4", 6), (b"PK\1\2", 8)):  # a local header, and the directory
        content[content.index(mark) + flags] |= 1
    path.write_bytes(content)
    with pytest.raises(PicojouleError, match=r"x_train in .*locked\.npz is encrypted"):
        load(str(path))
    stream = io.BytesIO()
    np.lib.format.write_array_header_1_0(stream, {"descr": "<f4", "fortran_order": False, "shape": (10**12, 9)})
    with zipfile.ZipFile(tmp_path / "huge.npz", "w") as archive:
        archive.writestr("x_train.npy", stream.getvalue())
        with archive.open("y_train.npy", "w") as labels:
            np.save(labels, np.array([0]))
    with pytest.raises(
        PicojouleError, match=r"x_train in .*huge\.npz is not an array .*its shape \(1000000000000, 9\)"
    ):
        load(str(tmp_path / "huge.npz"))
    events = {"events_train": np.zeros((40, 5), int), "y_train": np.arange(40) % 2, "frames": 2}
    with pytest.raises(PicojouleError, match="more than fits into memory: take fewer frames"):
        load(str(npz(tmp_path / "e.npz", **events, height=10**9, width=10**9)))
    with pytest.raises(PicojouleError, match="give one class per sample"):
        load(str(npz(tmp_path / "e.npz", **(events | {"y_train": 1}), height=4, width=4)))
    with pytest.raises(PicojouleError, match=r"~nobody-of-that-name/x\.npz cannot be found .* write the path in full"):
        load("~nobody-of-that-name/x.npz")


def test_a_broken_picture_is_named(tmp_path: Path) -> None:
    pictures(tmp_path)
    (tmp_path / "a" / "note.txt").write_text("text")
    with pytest.raises(PicojouleError, match=r"note\.txt is not named like a picture"):
        load(f"folder:{tmp_path}")
    (tmp_path / "a" / "note.txt").rename(tmp_path / "a" / "note.png")
    with pytest.raises(PicojouleError, match=r"note\.png is neither a PNG nor a JPEG picture"):
        load(f"folder:{tmp_path}")
    whole = (tmp_path / "a" / "000.png").read_bytes()
    (tmp_path / "a" / "note.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(PicojouleError, match=r"note\.png cannot be read"):
        load(f"folder:{tmp_path}")
    (tmp_path / "a" / "note.png").unlink()
    (tmp_path / "a" / "more").mkdir()
    with pytest.raises(PicojouleError, match="more is a folder inside a class"):
        load(f"folder:{tmp_path}")
    with pytest.raises(PicojouleError, match="there is no folder"):
        load("folder:no/such/place")


class Random(Counted):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(1, 8, 8), int(self.y[index])


class Failing(Counted):
    def __getitem__(self, index: int) -> Any:
        if index == 5:
            raise OSError("the disk is gone")
        return super().__getitem__(index)


class Ragged(Counted):
    def __getitem__(self, index: int) -> Any:
        return [[1.0], [1.0, 2.0]], 0


class Mixed(Counted):
    def __getitem__(self, index: int) -> Any:
        image, label = super().__getitem__(index)
        return image / 255 if index == 7 else image, label


class Endless(Counted):
    def __len__(self) -> int:
        raise NotImplementedError("nobody knows")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([Ragged()], "sample 0 of the train part .* has list which is no array of numbers"),
        ([Mixed()], "sample 7 of the train part .* is float32 and the first one uint8"),
        ([Endless()], r"the length of the train part .* cannot be told \(NotImplementedError: nobody knows\)"),
        ([(torch.eye(40).to_sparse(), torch.arange(40) % 2)], "sparse_coo, which is no array of numbers"),
        ([(torch.eye(40).to(torch.float8_e4m3fn), torch.arange(40) % 2)], "float8_e4m3fn, .* give dense tensors"),
        ([(np.full((40, 3), 1e300), np.arange(40) % 2)], "infinite or NaN in float32"),
        ([(np.eye(40), np.array(["cat", "dog"] * 20))], "are names, such as 'cat': give numbers, as names, numbers"),
        ([Random()], "gives another sample 0 each time"),
        ([Failing()], r"sample 5 of the train part .* cannot be read \(OSError: the disk is gone\)"),
        ([None, Counted()], "has no training part"),
        (7, "gave int, which is not a data set"),
        ({"tran": Counted()}, "has a part 'tran'"),
        (
            [(np.eye(40), list(range(40)))],
            r"is \(ndarray, list\): give its samples and its labels as tensors or arrays",
        ),
        ([(np.ma.masked_less(np.eye(40), 0.5), np.arange(40) % 2)], "has masked values: fill them"),
        ([(np.eye(40), np.arange(40) % 2), (np.zeros((0, 40)), np.zeros(0, int))], "validation part .* has no samples"),
        ([(np.eye(40), np.zeros(40, int))], "there is only one class"),
        ([[1, 2, 3]], "is list"),
    ],
)
def test_what_is_given_and_no_data_is_refused(given: Any, said: str) -> None:
    with pytest.raises(PicojouleError, match=said):
        load("own", given=given)


def test_a_summary_is_short() -> None:
    for data in (load("digits"), load("own", given=[arrays()])):
        assert len(str(data)) < 200
        assert "\n" not in str(data)
        assert len(repr(data.train)) < 80
    assert str(load("digits")) == (
        "Data('digits': 1,257 train, 180 validation, 360 test, 1×32×32, 10 classes, from scikit-learn)"
    )


def test_there_is_room_for_small_data() -> None:
    assert samples.room() > 1 << 28
