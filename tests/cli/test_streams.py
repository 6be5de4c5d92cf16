"""Every command prints, wherever its output goes: terminals without Greek, odd widths, pipes that nobody reads."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import picojoule as pj
from picojoule.cli import main, streams

COMMAND = [sys.executable, "-c", "from picojoule.cli import main; main()"]
ENVIRONMENT = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")} | {
    "PYTHONPATH": str(Path(pj.__file__).parents[1])
}


def printed(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, encoding: str = "utf-8", **environment: str
) -> tuple[int, str]:
    """Exit status and standard output of a command whose output is a file in some encoding."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True)
    monkeypatch.setattr(sys, "argv", ["picojoule", *arguments])
    monkeypatch.setattr(sys, "stdout", file)
    for name in ("COLUMNS", "LINES"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit) as stop:
        main()
    file.seek(0)
    return int(stop.value.code or 0), file.read()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1", "cp437"])
@pytest.mark.parametrize("arguments", [["profile", "cnn7"], ["data"], ["train", "--help"]], ids=lambda a: a[0])
def test_what_an_encoding_lacks_is_spelt_out(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    status, out = printed(arguments, monkeypatch, encoding)
    assert status == 0
    if arguments[0] == "profile":
        assert ("psi = exact" in out) or ("ψ = exact" in out)
        assert ("×32×32" in out) or ("x32x32" in out)
        assert "spike6" in out


@pytest.mark.parametrize(
    ("letter", "spelt"), [("ψ", "psi"), ("µJ", "uJ"), ("Ω_syn", "Omega_syn"), ("\udcff.png", "?.png")]
)
def test_spelling(letter: str, spelt: str) -> None:
    assert letter.encode("ascii", "picojoule.spelling") == spelt.encode()


def test_json_is_json_in_every_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    status, out = printed(["data", "--json"], monkeypatch, "ascii")
    assert status == 0
    assert {entry["name"] for entry in json.loads(out)} == {
        "fashion-mnist",
        "cifar-10",
        "cifar-100",
        "digits",
        "n-mnist",
        "braille",
    }


@pytest.mark.parametrize("columns", ["0", "1", "-5", "²", "many", "", "9" * 30])
def test_absurd_widths_are_not_believed(monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    usual = printed(["data"], monkeypatch)
    assert usual[0] == 0
    assert printed(["data"], monkeypatch, COLUMNS=columns, LINES=columns) == usual


def test_outside_a_terminal_a_table_is_as_wide_as_it_likes(monkeypatch: pytest.MonkeyPatch) -> None:
    _, wide = printed(["data"], monkeypatch)
    assert max(map(len, wide.splitlines())) > 110
    assert len({len(line) for line in wide.splitlines()}) == 1
    assert next(line for line in wide.splitlines() if "fashion-mnist" in line).rstrip().endswith("│")
    _, narrow = printed(["data"], monkeypatch, COLUMNS="70")
    assert max(map(len, narrow.splitlines())) <= 70


def test_a_stream_that_is_not_there_swallows_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "argv", ["picojoule", "--version"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    sys.stdout.close()


@pytest.mark.slow
def test_a_pipe_that_nobody_reads_ends_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        command = [*COMMAND, "profile", "cnn7"]
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, env=ENVIRONMENT, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no full device")
@pytest.mark.parametrize("unbuffered", ["", "1"], ids=["at the end", "at once"])
@pytest.mark.slow
def test_a_full_disk_is_told_of_in_one_sentence(unbuffered: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "--version"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT | {"PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("picojoule: there is no room for the output (")


@pytest.mark.skipif(os.name != "posix", reason="speaks to a shell")
@pytest.mark.parametrize("closed", [">&-", ">&- 2>&- <&-"])
@pytest.mark.slow
def test_closed_streams_are_quiet(closed: str) -> None:
    arguments = ["sh", "-c", f'"$@" {closed}', "sh", *COMMAND, "profile", "cnn7", "--json"]
    done = subprocess.run(arguments, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_interrupted_write_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        monkeypatch.setattr(sys, "stdout", pipe)
        print("for nobody")
        with pytest.raises(BrokenPipeError):
            streams.flush()
        streams.give_up()
        streams.flush()
