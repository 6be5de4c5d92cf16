"""Progress of a long step: one function of the caller's, called often, that decides for itself what to show."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """A function that is told how far a long step has come."""

    def __call__(self, what: str, done: int, total: int | None) -> None:
        """Take note of how far a step has come.

        Args:
            what: What is being done.
            done: Bytes that are done.
            total: Bytes that there are; None where that is not known.
        """


def quiet(what: str, done: int, total: int | None) -> None:
    """Show nothing.

    Args:
        what: What is being done.
        done: Bytes that are done.
        total: Bytes that there are.
    """
