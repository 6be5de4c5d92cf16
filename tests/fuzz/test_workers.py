"""A case that dies or hangs is a failure with a command, and the others go on; what is done is not done again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import workers
from fuzz.cases import Case
from fuzz.journal import Journal
from fuzz.outcome import Outcome
from fuzz.summary import summary

STAND_IN = """
import json, os, sys, time
for line in sys.stdin:
    seed = json.loads(line)["seed"]
    if seed == 1:
        os.abort()
    if seed == 2:
        time.sleep(3600)
    while seed == 5 and time.process_time() < 1:
        pass
    print(json.dumps({"notes": [f"ran {seed}"], "failures": []}), flush=True)
"""


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    def started() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", STAND_IN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    monkeypatch.setattr(workers, "_started", started)


def test_a_case_that_ends_its_process_fails_and_the_others_go_on() -> None:
    done: dict[int, Outcome] = {}
    workers.run_all([Case("recipes", seed) for seed in (0, 1, 3, 4)], 2, lambda case, o: done.update({case.seed: o}))
    assert sorted(done) == [0, 1, 3, 4]
    assert done[1].names == {"ends the process"}
    assert [done[seed].notes for seed in (0, 3, 4)] == [["ran 0"], ["ran 3"], ["ran 4"]]


def test_a_case_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = workers.Worker()
    try:
        assert worker.run(Case("recipes", 0)).notes == ["ran 0"]
        monkeypatch.setattr(workers, "SECONDS", 0.2)
        assert worker.run(Case("recipes", 2)).names == {"takes for ever"}
        monkeypatch.undo()
    finally:
        worker.close()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux says whether a process waits for a core")
def test_a_case_that_computes_on_a_busy_machine_has_time(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = workers.Worker()
    try:
        assert worker.run(Case("recipes", 0)).notes == ["ran 0"]
        monkeypatch.setattr(workers, "SECONDS", 0.2)
        assert worker.run(Case("recipes", 5)).notes == ["ran 5"]
        monkeypatch.undo()
    finally:
        worker.close()


def test_a_journal_knows_what_is_done_also_when_its_last_line_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "made" / "journal.jsonl"
    journal = Journal(path)
    journal.add(Case("recipes", 1), Outcome(["refused"], [("odd words", "x")]))
    journal.add(Case("files", 2), Outcome())
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole[:-10], encoding="utf-8")
    assert Journal(path).known == {Case("recipes", 1): Outcome(["refused"], [("odd words", "x")])}
    Journal(path).add(Case("files", 2), Outcome())
    assert path.read_text(encoding="utf-8") == whole


def test_a_failure_is_told_with_the_command_that_shows_it_again() -> None:
    told = summary([(Case("recipes", 7), Outcome([], [("odd words", "x")]))], lambda case, name: "small", shown=3)
    assert "make fuzz KIND=recipes ONLY=7" in told
    assert told.endswith("1 cases (1 recipes), 1 failed")
