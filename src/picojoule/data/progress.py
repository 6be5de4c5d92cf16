"""Progress of a long step: one function of the caller's, called often, that decides for itself what to show."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A function that is told how far a long step has come."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Take note of what is being done, how many bytes are done, and how many there are (None: not known)."""


def quiet(what: str, done: int, total: int | None) -> None:
    """Show nothing."""
