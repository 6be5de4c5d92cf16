"""Each layer's share of the energy and of every penalty: where a penalty presses, and where the energy goes.

Ω_syn weighs a spike by the synapses that it reaches, as the energy does, so the two have the same shares; Ω_total
weighs all spikes alike, Ω_balance all layers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from picojoule import zoo
from picojoule.energy import hardware
from picojoule.recipe import Recipe
from picojoule.runs.model import build_model, count_synapses
from picojoule.runs.result import LayerResult
from picojoule.synapses.table import Synapses

Terms = Mapping[str, list[float]]
"""By layer, for "energy" and each penalty."""


def terms_at_one(synapses: Synapses, prices: str = hardware.DEFAULT) -> dict[str, list[float]]:
    """Compute energy and penalties by layer if every neuron fires, as in the paper's figures.

    Args:
        synapses: The network's synapses.
        prices: The name of the price list.

    Returns:
        Joules, Ω_syn, Ω_total and Ω_balance for p = 1, each by layer.

    >>> import torch, picojoule as pj
    >>> net = torch.nn.Sequential(pj.Spike(), torch.nn.Linear(4, 3))
    >>> terms_at_one(pj.trace(net, torch.zeros(1, 4)))["Ω_syn"]
    [12.0]
    """
    layers = list(synapses.values())
    reached = [float(layer.fan_out.double().sum()) for layer in layers]
    return {
        "energy": [count * hardware.get(prices).accumulate for count in reached],
        "Ω_syn": reached,
        "Ω_total": [0.0 if layer.relay else float(layer.neurons) for layer in layers],
        "Ω_balance": [0.0 if layer.relay else 1.0 for layer in layers],
    }


def terms_measured(layers: Iterable[LayerResult]) -> dict[str, list[float]]:
    """Compute energy and penalties by layer for the spikes that a run fired on the test images.

    Args:
        layers: The layers of the run's result.

    Returns:
        As `terms_at_one`; exact for binary spikes, up to the factor 1/p.

    >>> terms = terms_measured(finished_run.result.test.layers)  # of a run that `fit` returned
    >>> sum(terms["energy"]) == finished_run.result.test.joules
    True
    """
    layers = list(layers)
    return {
        "energy": [layer.joules for layer in layers],
        "Ω_syn": [layer.synops for layer in layers],
        "Ω_total": [(layer.rate or 0.0) * layer.neurons for layer in layers],
        "Ω_balance": [layer.rate or 0.0 for layer in layers],
    }


def share_rows(names: Iterable[str], terms: Terms) -> list[dict[str, Any]]:
    """Make rows for `figures.penalty_by_layer`.

    Args:
        names: Names of the layers.
        terms: Energy and penalties by layer.

    Returns:
        The share of each layer in each term.

    Example:
        >>> share_rows(["a", "b"], {"energy": [1.0, 3.0]})
        [{'layer': 'a', 'term': 'energy', 'share': 0.25}, {'layer': 'b', 'term': 'energy', 'share': 0.75}]
    """
    names = list(names)
    return [
        {"layer": name, "term": term, "share": value / (sum(values) or 1.0)}
        for term, values in terms.items()
        for name, value in zip(names, values, strict=True)
    ]


def synapses_of(recipe: Recipe) -> Synapses | None:
    """Count the synapses of a recipe's network.

    Args:
        recipe: The recipe.

    Returns:
        ψ of a zoo model; None for others, because a report runs no code that a run folder names.

    >>> synapses_of(Recipe.loads('model.name = "cnn7"', "data.name=fashion-mnist", "energy.psi=paper")).synapses
    98895888
    """
    if recipe.model.name not in zoo.names():
        return None
    return count_synapses(build_model(recipe), recipe)
