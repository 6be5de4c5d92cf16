"""Models of the user's own code, named `package.module:factory`."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from picojoule.errors import PicojouleError


def build(name: str, **settings: Any) -> nn.Module:
    """Call the factory behind `package.module:factory`, with those of the settings that it takes.

    The current folder is searched too. This runs code: whoever calls it has been told the name by the user, or has the
    user's consent (`runs.model.build_model`).

    Args:
        name: The module and the class or function in it.
        **settings: What the factory may take, such as `classes` and `steps`; what it does not name is left out.

    Returns:
        The model.

    Raises:
        PicojouleError: The factory cannot be found or fails, or does not return an `nn.Module`.
        SystemExit: The code under that name ended the process.

    >>> build("torch.nn:Identity")
    Identity()
    """
    factory = find(name)
    accepted = _accepted(factory, settings)
    if settings.get("steps", 1) > 1 and "steps" not in accepted:
        raise PicojouleError(
            f"{name} does not take steps, so it cannot be told to run over {settings['steps']} of them: let it take "
            "steps=T and use picojoule.neurons.time_steps.present at its input and readout at its output"
        )
    try:
        with contextlib.redirect_stdout(sys.stderr):
            model = factory(**accepted)
    except SystemExit as end:
        raise _exited(name, end, "let it return the model") from end
    except Exception as error:
        raise PicojouleError(
            f"{name} failed ({type(error).__name__}: {error}): name a function that builds the model without arguments"
        ) from error
    if not isinstance(model, nn.Module):
        raise PicojouleError(
            f"{name} returned {type(model).__name__}, not an nn.Module: name a function that builds the model"
        )
    return model


def find(name: str) -> Callable[..., Any]:
    """Import the factory behind `package.module:factory`, without calling it.

    Args:
        name: The module and the class or function in it.

    Returns:
        The factory.

    Raises:
        PicojouleError: There is no such module, or nothing in it that could build a model.
        SystemExit: The code of the module ended the process.

    >>> find("torch.nn:Identity").__name__
    'Identity'
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise PicojouleError(f"{name!r} does not name a model: write package.module:factory")
    try:
        with contextlib.redirect_stdout(sys.stderr), _current_folder_first():  # standard output is the command's
            module = importlib.import_module(module_name)
    except SystemExit as end:
        raise _exited(module_name, end, 'put what it runs under `if __name__ == "__main__":`') from end
    except Exception as error:  # the user's module may raise anything
        raise PicojouleError(
            f"cannot import {module_name!r} ({type(error).__name__}: {error}): run from the folder that holds it, or "
            "install it"
        ) from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        valid = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise PicojouleError(
            f"{module_name!r} has no function {attribute!r}: it has {', '.join(valid) or 'none at all'}"
        )
    _check_factory(name, factory)
    found: Callable[..., Any] = factory
    return found


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


def _check_factory(name: str, factory: object) -> None:
    """Refuse what cannot return a model before it is called, for it may do anything else, such as `os.abort`."""
    if isinstance(factory, nn.Module):
        what = "a model, not a function that builds one"
    elif isinstance(factory, type) and not issubclass(factory, nn.Module):
        what = "a class, but not an nn.Module"
    elif isinstance(factory, types.BuiltinFunctionType):
        what = "a function of Python itself, which builds no nn.Module"
    else:
        return
    raise PicojouleError(f"{name} is {what}: name a class or a function that returns the model, an nn.Module")


def _exited(name: str, end: SystemExit, remedy: str) -> SystemExit:
    """End the process, as the code under that name wants it, but with a failure's status and a reason."""
    return SystemExit(f"{name} ended the process (SystemExit: {end}) and returned no model: {remedy}")


def _accepted(factory: Callable[..., Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Choose the settings that a factory takes."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):  # a builtin without a signature
        return {}
    return {key: value for key, value in settings.items() if key in parameters}
