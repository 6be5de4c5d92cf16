"""What every command promises: exit status 0, or one sentence and 2, or 1 for a failure; and nothing lost."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

from fuzz.outcome import Outcome
from fuzz.sandbox import Ended

READS_ONLY = ("profile", "evaluate", "infer", "pick", "data")
TRAINS = ("train", "sweep", "frontier", "demo", "paper")
Contents = dict[str, tuple[Any, ...]]


def check(ended: Ended, before: Contents, after: Contents, *, may_take_long: bool) -> Outcome:
    """Hold one command against the promises."""
    outcome = Outcome()
    command = next((a for a in ended.arguments if not a.startswith("-")), "")
    shown = " ".join(map(repr, ended.arguments))
    fail = outcome.failures.append
    if ended.too_long:
        if may_take_long:
            outcome.notes.append("stopped: it trains")
        else:
            fail((f"{command} takes for ever", shown))
        return outcome
    if ended.raised is not None:
        kind, _, rest = ended.raised.partition(": ")
        fail((f"{command} raised {kind}", f"{rest} <- {shown}"))
        return outcome
    outcome.notes.append(f"status {ended.status}")
    if ended.status not in (0, 1, 2):
        fail((f"{command} ended with {ended.status}", shown))
    if "Traceback" in ended.err or "Traceback" in ended.out:
        fail((f"{command} shows a traceback", shown))
    if ended.status == 2:
        _check_sentence(command, ended, fail, shown)
    elif ended.status == 1 and not ended.err.strip():
        fail((f"{command} fails without a word", shown))
    elif ended.status == 0 and _asks_for_json(ended.arguments):
        _check_json(command, ended, fail, shown)
    _check_files(command, ended, before, after, fail, shown)
    return outcome


def _asks_for_json(arguments: list[str]) -> bool:
    """Whether `--json` is there as an option, not as the value of the one before it."""
    if "--json" not in arguments or "--help" in arguments:
        return False
    before = arguments[arguments.index("--json") - 1]
    return not before.startswith("-") or before == "--trust"


def _check_sentence(command: str, ended: Ended, fail: Any, shown: str) -> None:
    lines = ended.err.splitlines()
    said = [line for line in lines if line.startswith("picojoule: ")]
    if ended.out.strip() and not ended.out.lstrip().startswith("Usage"):
        fail((f"{command} prints a result and refuses", f"{ended.out[:100]!r} <- {shown}"))
    if len(said) != 1 or lines[-1] != said[0]:
        if ended.out.lstrip().startswith("Usage"):  # a group without a command shows its help
            return
        fail((f"{command} does not say one sentence", f"{ended.err[:300]!r} <- {shown}"))
    elif re.search(r"[\x00-\x08\x0b-\x1f\x7f]", ended.err):
        fail((f"{command} sends control characters to the terminal", f"{ended.err[:300]!r} <- {shown}"))
    elif re.search(r"\bno key ([\w.]+): did you mean \1\?", said[0]):
        fail((f"{command} suggests what was given", f"{said[0]} <- {shown}"))


def _check_json(command: str, ended: Ended, fail: Any, shown: str) -> None:
    def no_constant(name: str) -> Any:
        raise ValueError(name)

    try:
        json.loads(ended.out, parse_constant=no_constant)
    except ValueError as error:
        fail((f"{command} --json prints no JSON", f"{str(error)[:100]} <- {shown}"))


def _check_files(command: str, ended: Ended, before: Contents, after: Contents, fail: Any, shown: str) -> None:
    new = [path for path in after if path not in before and "__pycache__" not in path]
    left = [path for path in new if _is_temporary(PurePath(path).name)]
    if left:
        fail((f"{command} leaves temporary files", f"{left[:3]} <- {shown}"))
    lost = [path for path in before if path not in after]
    changed = [path for path in before if path in after and before[path] != after[path]]
    touched = [path for path in (*lost, *changed) if not _may_change(command, path, ended.arguments)]
    if touched:
        fail((f"{command} touches other files", f"{touched[:3]} <- {shown}"))
    if command in READS_ONLY and "fetch" not in ended.arguments:
        made = [path for path in new if PurePath(path).name != ".lock" and not path.startswith("data")]
        if made:
            fail((f"{command} writes files", f"{made[:3]} <- {shown}"))
    elif ended.status == 2 and [path for path in new if after[path][0] == "file" and PurePath(path).name != ".lock"]:
        fail((f"{command} refuses and writes files", f"{new[:3]} <- {shown}"))


def _is_temporary(name: str) -> bool:
    return bool(re.search(r"^\.(?!lock$)|\.tmp|\.part$|~$|^tmp", name))


def _may_change(command: str, path: str, arguments: list[str]) -> bool:
    """A run that is trained again may change in its own folder; a file named for a result is replaced."""
    named = any(a and PurePath(path).name == PurePath(a.partition("=")[2] or a).name for a in arguments)
    if command in ("export", "report"):
        return named or "report" in PurePath(path).parts
    return command in TRAINS and len(PurePath(path).parts) > 1 and not path.startswith("elsewhere")
