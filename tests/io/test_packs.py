"""Packs: what is read through them is what was packed, and a damaged one is told."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from picojoule.errors import PicojouleError
from picojoule.io import files, packs

CONTENTS = {"a/recipe.toml": "seed = 0 # ψ".encode(), "a/b/result.json": b"{}", "measured/x.json": b"[1]"}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    path = tmp_path / "all.runs.zip"
    path.write_bytes(packs.packed(CONTENTS))
    return path


def test_files_are_read_through_a_pack(pack: Path) -> None:
    assert packs.members(pack) == tuple(sorted(CONTENTS))
    for name, content in CONTENTS.items():
        assert files.is_file(pack / name)
        assert files.read_bytes(pack / name) == content
        assert files.read_text(pack / name) == content.decode()
    assert files.read_json(pack / "measured/x.json") == [1]
    assert not files.is_file(pack / "a/other.toml")
    with pytest.raises(FileNotFoundError, match=r"the pack holds no a/other\.toml"):
        files.read_text(pack / "a/other.toml")


def test_a_folder_of_that_name_is_no_pack(tmp_path: Path) -> None:
    folder = tmp_path / "all.runs.zip"
    folder.mkdir()
    (folder / "x.txt").write_text("x")
    assert packs.split(folder / "x.txt") is None
    assert files.read_text(folder / "x.txt") == "x"


def test_any_unzip_reads_it_and_equal_contents_make_equal_bytes(pack: Path) -> None:
    with zipfile.ZipFile(pack) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == CONTENTS
    assert packs.packed(dict(reversed(CONTENTS.items()))) == pack.read_bytes()


def test_a_pack_that_is_replaced_is_read_anew(pack: Path) -> None:
    assert files.read_bytes(pack / "measured/x.json") == b"[1]"
    files.write_atomically(pack, packs.packed({"measured/x.json": b"[2, 3]"}))
    assert files.read_bytes(pack / "measured/x.json") == b"[2, 3]"


@pytest.mark.parametrize("content", [b"", b"no archive", packs.packed(CONTENTS)[:-30]])
def test_a_damaged_pack_is_told(content: bytes, tmp_path: Path) -> None:
    pack = tmp_path / "bad.runs.zip"
    pack.write_bytes(content)
    assert not files.is_file(pack / "a/recipe.toml")
    with pytest.raises(OSError, match="the pack is damaged"):
        files.read_text(pack / "a/recipe.toml")


def test_a_changed_byte_is_noticed(pack: Path) -> None:
    content = bytearray(pack.read_bytes())
    content[content.index(b"recipe.toml") + len(b"recipe.toml") + 3] ^= 0xFF
    pack.write_bytes(bytes(content))
    with pytest.raises(OSError, match="the pack is damaged"):
        files.read_text(pack / "a/recipe.toml")


@pytest.mark.parametrize("name", ["../a/recipe.toml", "/a/recipe.toml", "a/../../b"])
def test_no_member_lies_outside(name: str, tmp_path: Path) -> None:
    pack = tmp_path / "bad.runs.zip"
    with zipfile.ZipFile(pack, "w") as archive:
        archive.writestr(name, "x")
    with pytest.raises(OSError, match="is not the name of a file in it"):
        packs.members(pack)


@pytest.mark.parametrize("name", ["all.zip", ".runs.zip", "all"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(PicojouleError, match=r"is not the name of a pack: let it end in \.runs\.zip"):
        packs.check_name(name)


def test_what_is_in_the_folder_comes_before_what_is_packed(pack: Path) -> None:
    assert packs.locate(pack.parent, "a/recipe.toml") == pack / "a/recipe.toml"
    assert packs.locate(pack, "a/recipe.toml") == pack / "a/recipe.toml"
    assert packs.locate(pack.parent, "c/recipe.toml") == pack.parent / "c/recipe.toml"
    (pack.parent / "a").mkdir()
    (pack.parent / "a" / "recipe.toml").touch()
    assert packs.locate(pack.parent, "a/recipe.toml") == pack.parent / "a/recipe.toml"
