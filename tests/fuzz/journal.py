"""What is done, a line per case, so that hours of cases can be interrupted."""

from __future__ import annotations

import json
from pathlib import Path

from fuzz.cases import Case
from fuzz.outcome import Outcome


class Journal:
    """Known outcomes by case; without a file nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[Case, Outcome] = {}
        if path is None or not path.exists():
            return
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
        for line in lines:
            if line.endswith("\n"):  # the last one may have been cut off
                entry = json.loads(line)
                failures = [(name, details) for name, details in entry["failures"]]
                self.known[Case(entry["kind"], entry["seed"])] = Outcome(entry["notes"], failures)
        if lines and not lines[-1].endswith("\n"):
            path.write_text("".join(lines[:-1]), encoding="utf-8")

    def add(self, case: Case, outcome: Outcome) -> None:
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        entry = {"kind": case.kind, "seed": case.seed, "notes": outcome.notes, "failures": outcome.failures}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
