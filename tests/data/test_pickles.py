"""CIFAR's Python batches are read, and nothing in a pickle can ever run."""

from __future__ import annotations

import contextlib
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from picojoule.data import pickles
from picojoule.data.pickles import cifar_records, read_batch
from picojoule.errors import PicojouleError


def text(value: bytes) -> bytes:
    return b"U" + bytes([len(value)]) + value if len(value) < 256 else b"T" + struct.pack("<i", len(value)) + value


def numbers(values: list[int]) -> bytes:
    return b"](" + b"".join(b"K" + bytes([value]) for value in values) + b"e"


def array(pixels: bytes, rows: int, columns: int, *, kind: bytes = b"u1", order: bytes = b"\x89") -> bytes:
    """An array as Python 2's numpy described it: reconstruct, then shape, type, memory order and content."""
    start = b"cnumpy.core.multiarray\n_reconstruct\nq\x0acnumpy\nndarray\nK\x00\x85U\x01b\x87R("
    shape = b"K\x01" + b"M" + struct.pack("<H", rows) + b"M" + struct.pack("<H", columns) + b"\x86"
    dtype = b"cnumpy\ndtype\n" + text(kind) + b"K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
    return start + shape + dtype + order + text(pixels) + b"tb"


def batch(entries: dict[bytes, bytes]) -> bytes:
    """A protocol-2 dictionary of values that are pickled already."""
    return b"\x80\x02}q\x01(" + b"".join(text(key) + value for key, value in entries.items()) + b"u."


PIXELS = bytes(np.random.PCG64(5).random_raw(768).tobytes())
GENUINE = batch(
    {
        b"filenames": b"](" + text(b"a.png") + text(b"b.png") + b"e",
        b"batch_label": text(b"testing batch 1 of 1"),
        b"fine_labels": numbers([49, 33]),
        b"coarse_labels": numbers([10, 9]),
        b"data": array(PIXELS, 2, 3072),
    }
)


def test_the_oracle_writes_what_python_2_wrote() -> None:
    """Python's own unpickler agrees that the bytes above mean what we say (they are ours, so it is safe here)."""
    with warnings.catch_warnings():
        # numpy moved the module named in the official files and may say so.
        warnings.simplefilter("ignore", DeprecationWarning)
        meant = pickle.loads(GENUINE, encoding="bytes")
    read = read_batch(GENUINE, "batch")
    assert read.keys() == meant.keys()
    assert np.array_equal(read.pop(b"data"), meant.pop(b"data"))
    assert read == meant


def test_a_batch_becomes_the_binary_form() -> None:
    expected = bytes([10, 49]) + PIXELS[:3072] + bytes([9, 33]) + PIXELS[3072:]
    assert cifar_records(GENUINE, ("coarse_labels", "fine_labels"), "batch") == expected


def test_arrays_by_columns_are_read_by_columns() -> None:
    read = read_batch(batch({b"data": array(bytes(range(6)), 2, 3, order=b"\x88")}), "batch")
    assert read[b"data"].tolist() == [[0, 2, 4], [1, 3, 5]]


class Attack:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[Any, tuple[object, ...]]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("nested", [False, True], ids=["bare", "nested"])
@pytest.mark.parametrize("target", ["system", "eval", "open", "exec"])
def test_a_malicious_pickle_is_refused_by_name_and_does_not_run(
    tmp_path: Path, target: str, nested: bool, protocol: int
) -> None:
    canary = tmp_path / "canary"
    attack = {
        "system": Attack(os.system, f"touch {canary}"),
        "eval": Attack(eval, f"open({str(canary)!r}, 'w')"),
        "open": Attack(open, str(canary), "w"),
        "exec": Attack(exec, f"open({str(canary)!r}, 'w')"),
    }[target]
    value: object = {b"data": [b"x", [attack]], b"labels": [1]} if nested else attack
    with pytest.raises(PicojouleError, match=rf"evil names .*\.{target}, which no CIFAR batch does"):
        read_batch(pickle.dumps(value, protocol=protocol), "evil")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("evil", "reason"),
    [
        pytest.param(b"cos\nsystem\nU\x04true\x85RcR.", "truncated", id="a call in front of an unfinished one"),
        pytest.param(b"(U\x04trueios\nsystem\n.", "os.system", id="INST"),
        pytest.param(
            b"\x8c\x02osq\x00\x8c\x06systemq\x010\x300h\x00h\x01\x93.", "os.system", id="names through the memo"
        ),
        pytest.param(b"U\x02osU\x06system\x93.", "os.system", id="names as byte strings"),
        pytest.param(b"\x80\x02\x82\x01.", "EXT1", id="extension registry"),
        pytest.param(b"\x80\x02Pmine\n.", "PERSID", id="persistent object"),
        pytest.param(b"cnumpy\nndarray\n)\x81.", "NEWOBJ|EMPTY_TUPLE", id="an allowed name, called otherwise"),
        pytest.param(b"cnumpy\ndtype\nU\x02O8\x85R.", "other than an array of uint8", id="an array of objects"),
        pytest.param(b"cnumpy\nndarray\nK\x05\x85R.", "other than an array of uint8", id="a call of an allowed name"),
        pytest.param(b"cnumpy\nndarray\n}b.", "sets the state", id="state for a name"),
        pytest.param(batch({b"data": array(b"12345678", 1, 1, kind=b"i8")}), "uint8", id="an array of another type"),
        pytest.param(batch({b"data": array(b"123", 2, 2)}), "disagree", id="a shape larger than its content"),
    ],
)
def test_anything_else_is_refused_too(evil: bytes, reason: str) -> None:
    with pytest.raises(PicojouleError, match=reason):
        read_batch(evil, "evil")


@pytest.mark.parametrize(
    "entries",
    [
        {b"labels": numbers([1, 2])},
        {b"labels": numbers([1]), b"data": array(PIXELS, 2, 3072)},
        {b"labels": numbers([1, 2]), b"data": array(PIXELS, 4, 1536)},
        {b"labels": b"](U\x011U\x012e", b"data": array(PIXELS, 2, 3072)},
        {b"labels": b"](J\xff\xff\xff\xffK\x01e", b"data": array(PIXELS, 2, 3072)},
        {b"labels": text(b"12"), b"data": array(PIXELS, 2, 3072)},
    ],
    ids=["no pixels", "a label short", "other shape", "labels as text", "negative label", "labels not a list"],
)
def test_a_dictionary_that_is_no_batch_is_refused(entries: dict[bytes, bytes]) -> None:
    with pytest.raises(PicojouleError, match="batch"):
        cifar_records(batch(entries), ("labels",), "batch")


def test_every_truncation_is_noticed() -> None:
    for length in [*range(120), *range(120, len(GENUINE), 97)]:
        with pytest.raises(PicojouleError, match="batch"):
            read_batch(GENUINE[:length], "batch")


def test_an_escape_that_is_none_is_no_warning() -> None:
    with pytest.raises(PicojouleError, match="STRING, which no CIFAR batch has"):
        read_batch(b"S'\\q'\n.", "batch")


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_but_our_error(content: bytes) -> None:
    with contextlib.suppress(PicojouleError):
        read_batch(content, "noise")


@given(st.integers(0, len(GENUINE) - 6200), st.integers(0, 255))
def test_a_changed_byte_raises_nothing_but_our_error(position: int, value: int) -> None:
    changed = GENUINE[:position] + bytes([value]) + GENUINE[position + 1 :]
    with contextlib.suppress(PicojouleError):
        cifar_records(changed, ("coarse_labels", "fine_labels"), "changed")


HOSTILE = {
    "small numbers": b"K\x01",
    "lists": b"]",
    "dictionaries": b"}",
    "lists in the memo": b"]r%b",
    "marks": b"(",
    "strings": b"U\x01a",
    "names": b"cos\nsystem%b\n",
    "other text": b"X\x01\x00\x00\x00a",
    "instructions that no batch has": b"G12345678",
}
"""Instructions that take many times their length in memory; %b stands for a number that differs each time."""


def hostile(kind: str, size: int) -> bytes:
    """So many bytes of one instruction, at the beginning of a list."""
    piece = HOSTILE[kind]
    if b"%b" in piece:
        pieces = (piece % struct.pack("<i", 0x21212121 + i) for i in range(size // (len(piece) + 2)))
        return b"\x80\x02](" + b"".join(pieces) + b"e."
    return b"\x80\x02](" + piece * (size // len(piece)) + b"e."


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("instructions", [9_000, 1_000_000], ids=["few enough", "too many"])
def test_a_hostile_pickle_takes_little_memory(kind: str, instructions: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundredth of the real thing: for 1 MB, and 10 000 instructions allowed, less than 10 MB."""
    monkeypatch.setattr(pickles, "_MOST_INSTRUCTIONS", 10_000)
    content = hostile(kind, min(1_000_000, instructions * len(HOSTILE[kind])))
    tracemalloc.start()
    try:
        with pytest.raises(PicojouleError, match="evil"):
            cifar_records(content, ("labels",), "evil")
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


LIMITED = """
import resource, sys
import picojoule
from data.test_pickles import hostile
from picojoule.data.pickles import cifar_records
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 700_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
long = b"X" + (99_999_999).to_bytes(4, "little") + b"a" * 99_999_995 + "\\U0001f600".encode()
for content in (hostile("lists", 100_000_000), long):
    try:
        cifar_records(content, ("labels",), "evil")
    except picojoule.PicojouleError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read from /proc")
@pytest.mark.slow
def test_a_hundred_megabytes_of_a_hostile_pickle_are_refused_within_a_gigabyte() -> None:
    """What importing takes, 250 MB, and 700 MB more, the file's own 100 MB among them."""
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tests), *sys.path])},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("\n") == done.stdout.count("evil is truncated or not a CIFAR batch") == 2


def test_keys_within_keys_do_not_take_for_ever() -> None:
    """The hash of a pair of a pair of … takes twice as long with every level."""
    with pytest.raises(PicojouleError, match="a bytes was expected"):
        read_batch(b"\x80\x02}K\x01" + b"q\x01h\x01\x86" * 60 + b"K\x01s.", "evil")
