"""Data sets of recordings: Braille and N-MNIST in small, with files made here and checksums of their own."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from picojoule.data import Batches, braille, datasets, fetch, listing, load
from picojoule.data.event_frames import averaged_in_frames, change_events, count_events, summed_in_frames
from picojoule.data.n_mnist import events, read_recordings
from picojoule.errors import PicojouleError

Recording = list[tuple[int, int, int, int]]
"""(time, polarity, row, column) of each event."""


def binary(recording: Recording) -> bytes:
    return b"".join(bytes([x, y, p << 7 | t >> 16, t >> 8 & 255, t & 255]) for t, p, y, x in recording)


def recorded(label: int, number: int) -> Recording:
    draw = np.random.default_rng([label, number])
    times = np.sort(draw.integers(0, 300_000, (20, 1)), axis=0)
    return [(t, p, y, x) for t, p, y, x in np.hstack([times, draw.integers(0, (2, 34, 34), (20, 3))]).tolist()]


def zipped(folder: str, each: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{folder}/readme.txt", "not a recording")
        for number in range(each):
            for label in range(10):
                archive.writestr(f"{folder}/{label}/{number:05}.bin", binary(recorded(label, number)))
    return buffer.getvalue()


@pytest.fixture
def n_mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with small official files; the registry knows their checksums, and no source has them."""
    folder = tmp_path / "mine"
    folder.mkdir()
    contents = {"train.zip": zipped("Train", 6), "test.zip": zipped("Test", 2)}
    files = []
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        files.append(("http://127.0.0.1:9/x", name, hashlib.md5(content).hexdigest()))
    monkeypatch.setattr(datasets, "_N_MNIST_FILES", tuple(files))
    small = dataclasses.replace(datasets.N_MNIST, splits=(40, 20, 20), sources=())
    monkeypatch.setattr(datasets, "DATASETS", {**datasets.DATASETS, "n-mnist": small})
    return folder


def readings() -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    draw = np.random.default_rng(0)
    labels = np.repeat(np.arange(27, dtype=np.uint8), 10)
    return draw.integers(200, 256, (270, 76, 12)).astype(np.uint8), labels


@pytest.fixture
def letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    taxels, labels = readings()
    folder = tmp_path / "mine"
    folder.mkdir()
    np.savez(folder / "braille.npz", taxels=taxels, labels=labels)
    content = hashlib.md5(taxels.tobytes() + labels.tobytes()).hexdigest()
    read: Callable[..., object] = braille.read_readings
    monkeypatch.setattr(datasets, "read_readings", lambda path: read(path, content))
    small = dataclasses.replace(datasets.BRAILLE, splits=(189, 27, 54))
    monkeypatch.setattr(datasets, "DATASETS", {**datasets.DATASETS, "braille": small})
    return folder


# ------------------------------------------------------------------------------------------------------------- N-MNIST


def test_every_event_is_in_its_frame(n_mnist: Path, cache: Path) -> None:
    fetch("n-mnist", n_mnist)
    data = load("n-mnist", frames=4)
    assert (len(data.train), len(data.validation), len(data.test)) == (40, 20, 20)
    assert data.shape == (4, 2, 34, 34)
    for part, each in ((read_recordings(n_mnist / "train.zip", 4), 6), (read_recordings(n_mnist / "test.zip", 4), 2)):
        assert part.labels.tolist() == [label for label in range(10) for _ in range(each)]
        for position in (0, 7, len(part.labels) - 1):
            label, number = divmod(position, each)
            recording, expected = recorded(label, number), np.zeros((4, 2, 34, 34))
            begin, span = recording[0][0], recording[-1][0] - recording[0][0] + 1
            for t, p, y, x in recording:
                expected[(t - begin) * 4 // span, p, y, x] += 1
            assert np.array_equal(part.samples.take(np.array([position]))[0], expected)
    frames, labels = next(iter(Batches(data.test, 5, data.normalization)))
    assert frames.shape == (4, 5, 2, 34, 34)
    assert torch.equal(frames, frames.round())
    assert labels.tolist() == [0, 0, 1, 1, 2]


def test_a_recording_that_is_not_one_is_named(tmp_path: Path) -> None:
    for content, fault in ((b"1234", "not made of events of 5"), (bytes([34, 0, 0, 0, 0]), "outside of 34×34")):
        with pytest.raises(Exception, match=fault):
            events(content, "here")
    assert len(events(b"", "here")) == 0
    (tmp_path / "train.zip").write_bytes(b"no zip")
    with pytest.raises(Exception, match="not a zip file"):
        read_recordings(tmp_path / "train.zip", 2)


def test_other_files_are_refused_and_nothing_is_kept(n_mnist: Path, cache: Path) -> None:
    (n_mnist / "test.zip").write_bytes(zipped("Test", 3))
    with pytest.raises(PicojouleError, match=r"could not be taken from .* wrong checksum"):
        fetch("n-mnist", n_mnist)
    with pytest.raises(PicojouleError, match=r"picojoule data fetch n-mnist`, or download Train\.zip and Test\.zip"):
        load("n-mnist")
    assert not list(cache.rglob("*.zip"))


def test_without_a_source_the_way_by_hand_is_told(n_mnist: Path, cache: Path) -> None:
    with pytest.raises(
        PicojouleError, match=r"download Train\.zip .* name the folder that holds train\.zip and test\.zip"
    ):
        fetch("n-mnist")
    with pytest.raises(PicojouleError, match=r"published as a pickle, which may run code: .* scripts/braille\.py"):
        fetch("braille")
    assert {entry.name for entry in listing() if entry.here} == {"digits"}


def test_more_than_memory_is_read_batch_by_batch(n_mnist: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("n-mnist", n_mnist)
    held = load("n-mnist", frames=2, limit=10)
    monkeypatch.setattr("picojoule.data.recorded.room", lambda: 0)
    streamed = load("n-mnist", frames=2, limit=10)
    assert streamed.streamed
    assert not held.streamed
    assert torch.equal(streamed.train.images[:], held.train.images[:])


# ------------------------------------------------------------------------------------------------------------- Braille


def test_readings_become_spikes_by_a_threshold(letters: Path, cache: Path) -> None:
    fetch("braille", letters)
    data = load("braille", frames=38, threshold=3)
    assert (len(data.train), len(data.validation), len(data.test)) == (189, 27, 54)
    assert data.shape == (38, 24, 1, 1)
    taxels = readings()[0].astype(int)
    expected = np.zeros((len(taxels), 76, 24))
    for i, reading in enumerate(taxels[:20]):
        for c in range(12):
            kept = -reading[0, c]
            for t in range(76):
                while -reading[t, c] - kept >= 3:
                    kept, expected[i, t, c] = kept + 3, expected[i, t, c] + 1
                while kept + reading[t, c] >= 3:
                    kept, expected[i, t, 12 + c] = kept - 3, expected[i, t, 12 + c] + 1
    found = change_events(-taxels[:20], 3)
    assert np.array_equal(found, expected[:20])
    assert np.array_equal(summed_in_frames(found, 38), expected[:20].reshape(20, 38, 2, 24).sum(2))


def test_readings_become_currents(letters: Path, cache: Path) -> None:
    fetch("braille", letters)
    data = load("braille", encoding="currents", normalize=False)
    assert data.shape == (76, 12, 1, 1)
    assert 0 <= data.train.images[:].min() < data.train.images[:].max() <= 1
    normalized = load("braille", encoding="currents").normalization
    assert len(normalized.mean) == 12
    ramp = np.arange(6, dtype=np.float32).reshape(1, 6, 1)
    assert averaged_in_frames(ramp, 4)[0, :, 0].tolist() == [0, 1.5, 3, 4.5]


def test_other_readings_are_refused(letters: Path, cache: Path) -> None:
    fetch("braille", letters)
    taxels, labels = readings()
    taxels[3, 4, 5] ^= 1
    np.savez(cache / "braille" / "braille.npz", taxels=taxels, labels=labels)
    with pytest.raises(PicojouleError, match=r"other readings than the official ones .* data fetch braille"):
        load("braille")


@pytest.mark.parametrize(
    ("name", "options", "fault"),
    [
        ("braille", {"frames": 77}, "more than the 76 time steps"),
        ("braille", {"encoding": "currents", "threshold": 2.0}, "threshold = 2 is for readings that become spikes"),
        ("n-mnist", {"threshold": 2.0}, "threshold = 2 is for readings that become spikes"),
        ("n-mnist", {"pad": 1}, "pad = 1 is for images"),
        ("n-mnist", {"encoding": "rates"}, "encoding = 'rates' is not known"),
        ("digits", {"frames": 2}, "takes neither frames nor encoding nor threshold"),
    ],
)
def test_what_does_not_fit_is_told(name: str, options: dict[str, object], fault: str, cache: Path) -> None:
    with pytest.raises(PicojouleError, match=fault):
        load(name, **options)  # type: ignore[arg-type]


def test_events_at_one_time_are_in_the_first_frame() -> None:
    zero = np.zeros(3, dtype=np.int64)
    assert count_events(zero, zero + 7, zero, zero, zero, (2, 3, 1, 1, 1)).flatten().tolist() == [3, 0, 0, 0, 0, 0]
