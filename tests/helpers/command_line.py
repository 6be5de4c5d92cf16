"""The type of the fixture that runs a command."""

from __future__ import annotations

from collections.abc import Callable

Command = Callable[..., tuple[int, str, str]]
"""Arguments of `picojoule` → exit status, standard output, standard error."""
