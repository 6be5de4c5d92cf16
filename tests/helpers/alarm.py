"""A timer whose signal raises an exception, as Ctrl-C does, in code that must survive it."""

from __future__ import annotations


class Rang(Exception):
    """Raised by the handler of a timer's signal."""


class Alarm:
    """Rings after a while, if `armed` still, and counts how often that was."""

    def __init__(self) -> None:
        self.armed, self.rung = False, 0

    def __call__(self, *_: object) -> None:
        if self.armed:
            self.armed = False
            self.rung += 1
            raise Rang
