"""How a long step tells its caller how far it is: one function, called often, that decides for itself what to show."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Called with what is being done, how many bytes are done, and how many there are (None: not known)."""

    def __call__(self, what: str, done: int, total: int | None) -> None: ...


def quiet(what: str, done: int, total: int | None) -> None:
    """The default: show nothing."""
