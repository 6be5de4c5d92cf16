"""The failures by what failed, each with the smallest case that shows it and the command that runs it again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from fuzz.cases import Case
from fuzz.outcome import Outcome


def summary(done: list[tuple[Case, Outcome]], smallest: Callable[[Case, str], str], shown: int) -> str:
    failures: dict[tuple[str, str], list[tuple[Case, str]]] = defaultdict(list)
    notes: Counter[str] = Counter()
    for case, outcome in done:
        notes.update(f"{case.kind}: {note}" for note in set(outcome.notes))
        for name, details in outcome.failures:
            failures[case.kind, name].append((case, details))
    lines = []
    for (kind, name), cases in sorted(failures.items(), key=lambda entry: -len(entry[1])):
        lines.append(f"\n{kind}: {name} ({len(cases)} cases)")
        for case, details in cases[:shown]:
            lines += [f"  {details}", f"    {smallest(case, name)}", f"    again: {case.command}"]
    lines += ["", *(f"{count:7} {note}" for note, count in sorted(notes.items()))]
    kinds = Counter(case.kind for case, _ in done)
    failed = sum(bool(outcome.failures) for _, outcome in done)
    by_kind = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return "\n".join([*lines, f"{len(done)} cases ({by_kind}), {failed} failed"])
