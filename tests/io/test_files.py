"""Files: nothing that is no file is read or replaced, and what is written is whole or absent."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.cli import main
from picojoule.data.containers import Archive, Folder
from picojoule.data.picture import read_picture
from picojoule.io import files
from picojoule.io.files import make_folder, write_atomically

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and devices have no names in its folders")

Special = Callable[[Path], str]


@pytest.fixture(params=["a pipe", "a socket", "a device"])
def special(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Special]:
    """Puts something at a path that is neither file nor folder, and returns the word for it."""
    kind: str = request.param
    sockets = []

    def put(path: Path) -> str:
        if kind == "a pipe":
            os.mkfifo(path)
        elif kind == "a socket":
            monkeypatch.chdir(path.parent)  # an address is at most a hundred letters long
            sockets.append(socket.socket(socket.AF_UNIX))
            sockets[-1].bind(path.name)
        else:
            path.symlink_to(os.devnull)  # through a link, so that a fault harms no device
        return kind

    yield put
    for each in sockets:
        each.close()


# --- Reading ---------------------------------------------------------------------------------------------------------


READERS: dict[str, Callable[[Path], object]] = {
    "bytes": files.read_bytes,
    "text": files.read_text,
    "JSON": files.read_json,
}


@pytest.mark.parametrize("read", READERS.values(), ids=READERS)
def test_only_files_are_read(tmp_path: Path, special: Special, read: Callable[[Path], object]) -> None:
    kind = special(tmp_path / "odd")
    with pytest.raises(OSError, match=f"it is {kind}, not a file"):
        read(tmp_path / "odd")


def test_a_pipe_that_takes_the_place_of_a_file_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "odd")
    monkeypatch.setattr(files, "check_regular", lambda path: None)  # as if it had come after that
    with pytest.raises(files.NotAFile, match="a pipe"):
        files.read_bytes(tmp_path / "odd")


COMMANDS: dict[str, Callable[[Path], object]] = {
    "recipe": pj.Recipe.load,
    "sweep": pj.sweep.load,
    "picture": lambda path: read_picture(path, (1, 32, 32), 0),
    "data file": lambda path: Folder(path.parent).read(path.name),
    "archive": lambda path: Archive.open(path, {"a"}),
}


@pytest.mark.parametrize("read", COMMANDS.values(), ids=COMMANDS)
def test_whatever_is_no_file_is_one_sentence(tmp_path: Path, special: Special, read: Callable[[Path], object]) -> None:
    kind = special(tmp_path / "odd")
    with pytest.raises(
        pj.PicojouleError, match=rf"odd cannot be read \(it is {kind}, not a file\): name a regular file"
    ):
        read(tmp_path / "odd")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("recipe.toml", r"recipe\.toml is a pipe, not a file: choose another place"),
        ("result.json", r"result\.json is a pipe, not a file: choose another place"),
        ("weights.safetensors", r"weights\.safetensors is a pipe, not a file"),
        ("metrics.jsonl", r"metrics\.jsonl is a pipe, not a file"),
    ],
)
def test_a_run_with_a_pipe_in_its_folder_is_not_begun(tmp_path: Path, name: str, message: str) -> None:
    os.mkfifo(tmp_path / name)
    with pytest.raises(pj.PicojouleError, match=message), pj.Run(tmp_path).begun(tiny.recipe()):
        raise AssertionError("it was begun")
    assert stat.S_ISFIFO((tmp_path / name).stat().st_mode)


def test_a_run_with_a_link_to_itself_in_its_folder_is_not_begun(tmp_path: Path) -> None:
    """It would be found out when the result is written, after the training."""
    (tmp_path / "result.json").symlink_to("result.json")
    with (
        pytest.raises(pj.PicojouleError, match=r"cannot write .*result\.json \(.*links"),
        pj.Run(tmp_path).begun(tiny.recipe()),
    ):
        raise AssertionError("it was begun")


def test_pipes_are_no_weights_and_no_metrics(tmp_path: Path) -> None:
    run = pj.Run(tmp_path)
    for name in ("weights.safetensors", "metrics.jsonl", "failure.txt"):
        os.mkfifo(tmp_path / name)
    for attribute in ("weights", "metrics"):
        with pytest.raises(pj.PicojouleError, match=r"\(it is a pipe, not a file\)"):
            getattr(run, attribute)
    assert run.failure is None


def test_a_byte_order_mark_is_no_content(tmp_path: Path) -> None:
    marked = tmp_path / "marked.toml"
    marked.write_text(tiny.recipe("seed=3").to_toml(), encoding="utf-8-sig")
    assert pj.Recipe.load(marked) == pj.Recipe.loads(marked.read_text(encoding="utf-8")) == tiny.recipe("seed=3")
    run = pj.Run(tmp_path)
    result = {split: tiny.figures() for split in ("test", "validation")}
    (tmp_path / "result.json").write_text(json.dumps(result), encoding="utf-8-sig")
    (tmp_path / "metrics.jsonl").write_text(json.dumps(tiny.epoch()) + "\n", encoding="utf-8-sig")
    assert (run.result.to_dict(), run.metrics[0].to_dict()) == (result, tiny.epoch())
    assert files.parse_json(b"\xef\xbb\xbf[1]") == [1]


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000], ids=["lists", "objects"])
def test_json_that_is_nested_too_deeply_is_a_fault_of_the_file(text: str) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        files.parse_json(text)


# --- Writing ---------------------------------------------------------------------------------------------------------


def test_nothing_but_a_file_is_ever_replaced(tmp_path: Path, special: Special) -> None:
    kind = special(tmp_path / "odd")
    before = os.lstat(tmp_path / "odd"), os.stat(tmp_path / "odd").st_mode
    with pytest.raises(pj.PicojouleError, match=f"odd is {kind}, not a file: choose another place"):
        write_atomically(tmp_path / "odd", b"new")
    after = os.lstat(tmp_path / "odd"), os.stat(tmp_path / "odd").st_mode
    assert (after[0].st_ino, after[0].st_mode, after[1]) == (before[0].st_ino, before[0].st_mode, before[1])
    assert [path.name for path in tmp_path.iterdir()] == ["odd"]


def test_an_export_is_refused_before_the_work(tmp_path: Path, special: Special) -> None:
    kind = special(tmp_path / "odd")
    with pytest.raises(pj.PicojouleError, match=f"odd is {kind}, not a file"):
        pj.export.write(torch.nn.Identity(), torch.zeros(1), "onnx", tmp_path / "odd", print)  # no network at all


@pytest.mark.parametrize("there", [True, False])
def test_a_symbolic_link_is_followed(tmp_path: Path, there: bool) -> None:
    (tmp_path / "disk").mkdir()
    file, link, second = tmp_path / "disk" / "file", tmp_path / "link", tmp_path / "second"
    if there:
        file.write_bytes(b"old")
    link.symlink_to(file)
    second.symlink_to("link")
    write_atomically(second, b"new")
    assert (second.is_symlink(), link.is_symlink(), file.is_symlink()) == (True, True, False)
    assert file.read_bytes() == b"new"
    assert list((tmp_path / "disk").iterdir()) == [file]


def test_a_folder_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(pj.PicojouleError, match="a is a folder: name a file in it, or move it away"):
        write_atomically(tmp_path / "a", b"new")


def test_the_longest_name_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    with pytest.raises(pj.PicojouleError, match=r"\(File name too long\): take a shorter name and run"):
        write_atomically(tmp_path / ("n" * 256), b"new")


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(pj.PicojouleError, match="mend the symbolic links, which lead in a circle"):
        write_atomically(tmp_path / "a", b"new")
    assert (tmp_path / "a").is_symlink()


REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "your quota",
    errno.EFBIG: "ulimit -f",
    errno.EROFS: "not mounted read-only",
    errno.EACCES: "make the folder writable",
    errno.EPERM: "make the folder writable",
    errno.EMFILE: "ulimit -n",
    errno.EIO: "check the disk",
}


@pytest.mark.parametrize("call", ["fsync", "replace"])
@pytest.mark.parametrize("code", REMEDIES, ids=errno.errorcode.get)
def test_a_failed_write_leaves_the_old_file_and_no_other_and_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def fail(*arguments: Any) -> None:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fail)
        with pytest.raises(pj.PicojouleError) as caught:
            write_atomically(path, b"new")
    assert re.fullmatch(
        rf"cannot write {path} \({os.strerror(code)}\): .*{REMEDIES[code]}.* and run the same command again.*",
        str(caught.value),
    )
    assert ("writable" in str(caught.value)) is (code in (errno.EACCES, errno.EPERM))
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_that_cannot_be_flushed_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true_fsync = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not on this file system")
        true_fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"new"


def test_what_is_written_has_the_usual_permissions(tmp_path: Path) -> None:
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "usual").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    assert make_folder(tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").touch()
    for wrong in (tmp_path / "file", tmp_path / "file" / "b"):
        with pytest.raises(pj.PicojouleError, match=f"the folder {wrong} cannot be made .*choose another place"):
            make_folder(wrong)


# --- The command line ------------------------------------------------------------------------------------------------


def test_a_recipe_that_is_a_pipe_ends_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(tmp_path / "odd.toml")
    monkeypatch.setattr(sys, "argv", ["picojoule", "train", str(tmp_path / "odd.toml")])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert (
        said == f"picojoule: {tmp_path / 'odd.toml'} cannot be read (it is a pipe, not a file): name a regular file\n"
    )
