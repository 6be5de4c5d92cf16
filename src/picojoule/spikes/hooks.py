"""Forward hooks that leave nothing behind: not on the model, not on copies of it, not when threads meet.

A hook lies in a dictionary of its module, so a deep copy of the model takes it along. The copy of a hook made here does
nothing, and is removed when the hook itself is.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeAlias

from torch import nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import forward_hooks, forward_pre_hooks

OnModule: TypeAlias = tuple[nn.Module, Callable[..., Any]]
"""A module and the function that is called with it."""

_model_lock = threading.RLock()


@contextmanager
def exclusive_hooks() -> Iterator[None]:
    """Keep other threads from changing hooks while the block runs.

    Putting a model back as it was brings back the hooks that it had. Those that another thread puts on or takes off in
    the meantime would be lost, or stay for good.

    Yields:
        Nothing.
    """
    with _model_lock:
        yield


def _renew_lock() -> None:
    """Make a new lock in a forked process, which has none of the threads that may hold the old one."""
    global _model_lock
    _model_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextmanager
def hooked(after: Iterable[OnModule], before: Iterable[OnModule] = ()) -> Iterator[None]:
    """Call each function after (before) each forward pass of its module while the block runs.

    Args:
        after: Modules and their forward hooks.
        before: Modules and their forward pre-hooks.

    Yields:
        Nothing.

    >>> calls, net = [], nn.Identity()
    >>> with hooked([(net, lambda module, arguments, output: calls.append(output))]):
    ...     _ = net(3)
    >>> _ = net(4)
    >>> calls
    [3]
    """
    copies: list[_Hook] = []
    handles = []
    try:
        with exclusive_hooks():
            for module, function in after:
                handles.append(module.register_forward_hook(_Hook(function, forward_hooks(module), copies)))
            for module, function in before:
                handles.append(module.register_forward_pre_hook(_Hook(function, forward_pre_hooks(module), copies)))
        yield
    finally:
        with exclusive_hooks():
            for handle in handles:
                handle.remove()
            for copied in copies:
                copied.remove()


class _Hook:
    """A hook whose copies do nothing and are removed with it."""

    def __init__(self, function: Callable[..., Any], holder: dict[Any, Any], copies: list[_Hook]) -> None:
        self._function = function
        self._holder = holder
        """The module's dictionary that this hook lies in."""
        self._copies = copies
        """The copies of all hooks of the block."""

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __deepcopy__(self, memo: dict[int, Any]) -> _Hook:
        copied = _Hook(_do_nothing, memo.get(id(self._holder), {}), self._copies)
        self._copies.append(copied)
        return copied

    def __reduce__(self) -> NoReturn:
        raise PicojouleError("a model cannot be pickled while it is watched: save it after the `with` block")

    def remove(self) -> None:
        for key in [key for key, hook in self._holder.items() if hook is self]:
            del self._holder[key]


def _do_nothing(*arguments: Any) -> None:
    """Stand in for the hook in a copy, which is not watched."""
