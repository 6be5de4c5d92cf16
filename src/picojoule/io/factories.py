"""Functions of the user's own code, named `package.module:function`: finding one and calling it with what it takes.

This runs code: whoever calls it has been told the name by the user, or has the user's consent.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any

from picojoule.errors import PicojouleError, reason_of


def is_factory(name: str) -> bool:
    """Return whether a name is of the form `package.module:factory`.

    Args:
        name: Any text.

    >>> is_factory("package.module:build"), is_factory("cnn7"), is_factory("a:b:c")
    (True, False, False)
    """
    module, colon, factory = name.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), *factory.split(".")))


def find(name: str, what: str) -> Callable[..., Any]:
    """Import the module of `package.module:factory` and return the function; the current folder is searched too.

    Args:
        name: The module and the class or function in it.
        what: What it makes, such as "model".

    Returns:
        The class or function.

    Raises:
        PicojouleError: The module cannot be imported, or has no such function.
        SystemExit: The module ended the process.

    >>> find("math:sqrt", "model").__name__
    'sqrt'
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise PicojouleError(f"{name!r} does not name a {what}: write package.module:factory")
    try:
        with contextlib.redirect_stdout(sys.stderr), _current_folder_first():  # standard output is the command's
            module = importlib.import_module(module_name)
    except SystemExit as end:
        raise exited(module_name, end, what, 'put what it runs under `if __name__ == "__main__":`') from end
    except Exception as error:  # the user's module may raise anything
        raise PicojouleError(
            f"cannot import {module_name!r} ({reason_of(error)}): run from the folder that holds it, or install it"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        valid = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise PicojouleError(
            f"{module_name!r} has no function {attribute!r}: it has {', '.join(valid) or 'none at all'}"
        )
    found: Callable[..., Any] = factory
    return found


def accepted(factory: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Choose the settings that a factory takes.

    Args:
        factory: The class or function.
        settings: All that it may be given, by name.

    Returns:
        Those that are parameters of it; none where it does not tell.

    >>> accepted(lambda classes: None, {"classes": 10, "steps": 4})
    {'classes': 10}
    """
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return {}
    return {key: value for key, value in settings.items() if key in parameters}


def exited(name: str, end: SystemExit, what: str, remedy: str) -> SystemExit:
    """Make the exception that ends the process, as the code under that name wants it, with a failure's status.

    Args:
        name: The code.
        end: What it raised.
        what: What it should have made.
        remedy: What to do.

    Returns:
        The exception, to be raised.
    """
    return SystemExit(f"{name} ended the process (SystemExit: {end}) and returned no {what}: {remedy}")


@contextlib.contextmanager
def _current_folder_first() -> Iterator[None]:
    """Search the current folder first for the user's module; afterwards it comes last, so that it hides no library."""
    here = os.getcwd()
    if here in sys.path:
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # the module may have changed the path itself
            sys.path.remove(here)
        sys.path.append(here)
