"""What became of a case."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Outcome:
    """What a case says for the summary, and each way in which it failed."""

    notes: list[str] = field(default_factory=list)
    failures: list[tuple[str, str]] = field(default_factory=list)
    """A short name that stays the same while a case is made smaller, and the details."""

    @property
    def names(self) -> set[str]:
        return {name for name, _ in self.failures}
