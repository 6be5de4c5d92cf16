"""The one error a user's mistake raises."""

from __future__ import annotations


class PicojouleError(ValueError):
    """Something the caller can put right: one sentence that says what is wrong and what to do.

    The command line prints the sentence and exits with status 2; any other exception is a defect of picojoule.
    """
