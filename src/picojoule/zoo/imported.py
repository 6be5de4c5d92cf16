"""Models of the user's own code, named `package.module:factory`."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from picojoule.errors import PicojouleError, reason_of
from picojoule.io import factories

GIVEN = {
    "classes": "the data",
    "in_channels": "the data",
    "input_shape": "the data",
    "neuron": "the section neuron",
    "steps": "neuron.steps",
    "spiking_input": "data.encoding",
}
"""Arguments that a recipe gives to every factory that takes them, and where it has them from."""


def build(name: str, arguments: Mapping[str, Any] | None = None, /, **settings: Any) -> nn.Module:
    """Call the factory behind `package.module:factory`, with those of the settings that it takes.

    The current folder is searched too. This runs code: whoever calls it has been told the name by the user, or has the
    user's consent (`runs.model.build_model`).

    Args:
        name: The module and the class or function in it.
        arguments: The user's own arguments, which it has to take.
        **settings: What the factory may take, such as `classes` and `steps`; what it does not name is left out.

    Returns:
        The model.

    Raises:
        PicojouleError: The factory cannot be found or fails, an argument has the name of a setting, or it
            does not return an `nn.Module`.
        SystemExit: The code under that name ended the process.

    >>> build("torch.nn:Identity")
    Identity()
    """
    twice = sorted(settings.keys() & (arguments or {}).keys())
    if twice:
        raise PicojouleError(f"model.args.{twice[0]} is given to {name} by picojoule itself: leave it out")
    factory = find(name)
    accepted = factories.accepted(factory, settings) | dict(arguments or {})
    if settings.get("steps", 1) > 1 and "steps" not in accepted:
        raise PicojouleError(
            f"{name} does not take steps, so it cannot be told to run over {settings['steps']} of them: let it take "
            "steps=T and use picojoule.neurons.time_steps.present at its input and readout at its output"
        )
    try:
        with contextlib.redirect_stdout(sys.stderr):
            model = factory(**accepted)
    except SystemExit as end:
        raise factories.exited(name, end, "model", "let it return the model") from end
    except Exception as error:
        remedy = "name a function that builds the model without arguments"
        if arguments:
            remedy = f"check model.args ({', '.join(arguments)}) and the function"
        raise PicojouleError(f"{name} failed ({reason_of(error)}): {remedy}") from error
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
    factory = factories.find(name, "model")
    _check_factory(name, factory)
    return factory


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
