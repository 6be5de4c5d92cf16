"""The network of a recipe: building it, loading its weights, counting its synapses."""

from __future__ import annotations

import os
import shlex
from typing import TypeAlias

import torch
import torch.distributed
from torch import Tensor, nn

from picojoule import zoo
from picojoule.data import Data, Given
from picojoule.errors import PicojouleError
from picojoule.recipe import Recipe
from picojoule.runs.folder import Run
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace

Trust: TypeAlias = bool | str
"""Whether code that a run folder names may run: False is none, True is any, and a name is that factory only."""


def build_model(recipe: Recipe, trust: Trust = False, origin: str = "the recipe") -> nn.Module:
    r"""Build the network that a recipe names, with fresh weights: the one place where a recipe makes code run.

    A model of the zoo is always built. Any other name is code to be imported and called, which needs `trust`.

    Args:
        recipe: The recipe; `model.name` is a model of the zoo or `package.module:factory`.
        trust: Whether a factory may run: True, or its very name. Where the caller wrote the recipe, give True.
        origin: Where the recipe came from, for errors.

    Returns:
        The network.

    Raises:
        PicojouleError: If the factory is not trusted or cannot be built, or the network has nothing to train.

    Example:
        >>> net = build_model(Recipe.loads('model.name = "cnn7"\ndata.name = "digits"'))
        >>> sum(parameter.numel() for parameter in net.parameters())
        1559096
    """
    name, steps = recipe.model.name, recipe.neuron.steps
    if isinstance(trust, str) and trust != name:
        raise PicojouleError(
            f"{origin} names the model {name!r}, not {trust!r}, so nothing was run: look at the recipe, and name the "
            "model that you trust"
        )
    classes, channels, neuron = recipe.classes, recipe.input_shape[0], recipe.build_neuron()
    if ":" not in name:
        shape, spiking = recipe.input_shape, recipe.spiking_input
        return zoo.create(name, classes, channels, neuron, steps, input_shape=shape, spiking_input=spiking)
    if not trust:
        raise PicojouleError(
            f"{origin} names the model {name!r}, which is not picojoule's own code, so nothing of it was imported: if "
            f"you trust that code, add --trust, or --model {shlex.quote(name)} (in Python, trust=True)"
        )
    settings = {"classes": classes, "in_channels": channels, "neuron": neuron, "steps": steps}
    settings |= {"input_shape": recipe.input_shape, "spiking_input": recipe.spiking_input}
    model = zoo.imported.build(name, recipe.model.args, **settings)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise PicojouleError(f"{name} has no parameters to train: name a class or a function that returns a network")
    return model


def load_model(run: Run | str | os.PathLike[str], trust: Trust = False) -> nn.Module:
    """Load the trained network of a run, in evaluation mode.

    A run folder may be somebody else's, and a recipe whose `model.name` is `package.module:factory` makes code run. It
    is run only with `trust=True`, or `trust="package.module:factory"` if it is that very one, or for the `Run` that
    `fit`, `sweep.run` or `frontier` returned, whose recipe the caller gave. Weights never run code.

    Args:
        run: The run, or the path of its folder.
        trust: Whether code that its recipe names may run.

    Returns:
        The network with the run's weights.

    Raises:
        PicojouleError: If its code is not trusted, or weights and model do not fit each other.

    >>> net = load_model(finished_run)  # a run that `fit` returned, or the path of its folder
    >>> type(net).__name__, net.training
    ('CNN7', False)
    """
    run = Run.opened(run)
    recipe, weights = run.recipe, run.weights  # all that the folder holds is read before any code runs
    if trust is False:  # what the caller himself gave to be trained needs no second word
        trust = recipe.model.name == run.given_model
    with torch.random.fork_rng(devices=[]):  # initial weights are drawn, but nobody sees them
        model = build_model(recipe, trust, f"the recipe of {run.path}")
    load_weights(model, weights, f"the weights of {run.path}")
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # missing from torch's annotations
    return model.eval()


def load_data(run: Run | str | os.PathLike[str], trust: Trust = False, given: Given | None = None) -> Data:
    """Load the data that a run was trained on.

    Args:
        run: The run, or the path of its folder.
        trust: Whether code that its recipe names as `data.name` may run: True only, for a name stands for the model.
            The `Run` that `fit` returned needs no second word.
        given: The data that were given to `fit`, for a run with `data.name = "own"`.

    Returns:
        The data, with the content that the recipe names.

    Raises:
        PicojouleError: If they are not there, have changed, or their code is not trusted.
    """
    run = Run.opened(run)
    section = run.recipe.data
    return section.load(trust is True or section.name == run.given_data, f"the recipe of {run.path}", given)


def load_weights(model: nn.Module, weights: dict[str, Tensor], what: str, remedy: str | None = None) -> None:
    """Put weights into a model.

    Args:
        model: The model.
        weights: Its state, as `state_dict` gives it.
        what: What these weights are, in the plural, to begin the error with.
        remedy: What to do if they do not fit.

    Raises:
        PicojouleError: If they do not fit the model.
    """
    try:
        model.load_state_dict(weights)
    except RuntimeError as fault:
        reason = " ".join(str(fault).split())[:300]
        remedy = remedy or "bring back the code that it was trained with, or move the folder away and train again"
        raise PicojouleError(f"{what} do not fit the model of its recipe ({reason}): {remedy}") from None


def count_synapses(model: nn.Module, recipe: Recipe, steps: int | None = None) -> Synapses | None:
    """Count a network's synapses by the convention of its recipe.

    Args:
        model: The network.
        recipe: Its recipe, which says how ψ is counted.
        steps: Time steps of a converted network; None takes the recipe's.

    Returns:
        ψ by layer; None for a ReLU network, which has no spikes.

    Raises:
        PicojouleError: If something between the layers cannot be counted.
    """
    if recipe.neuron.kind == "relu":
        return None
    example = recipe.example().to(next(model.parameters()).device)
    energy, steps = recipe.energy, recipe.neuron.steps if steps is None else steps
    return trace(model, example, psi=energy.psi, steps=steps, chains=energy.chains or "run")
