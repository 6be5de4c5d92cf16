"""Experiments without training: the total penalty terms, the layer-wise figures, architectures and hyper-parameters."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import get_args

import torch

from picojoule import report, zoo
from picojoule.io.tables import Cell, Column, Sheet
from picojoule.neurons.surrogate import SURROGATES
from picojoule.paper import comparison, published
from picojoule.paper.context import Context, Experiment, Results
from picojoule.paper.notation import DASH, block_notation, notation
from picojoule.paper.settings import MODELS, OPTIMIZERS, settings
from picojoule.recipe import Recipe
from picojoule.synapses.rules import Psi
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace


@functools.cache  # the totals and the shares read the same
def _synapses(model: str, psi: Psi) -> Synapses:
    """Trace a network of the zoo."""
    net = zoo.create(model)
    return trace(net, torch.zeros(1, *net.input_shape), psi=psi)


class Structural(Experiment):
    """An experiment that is the same at every scale."""

    scaled = False


@dataclass(frozen=True)
class Totals(Structural):
    """The table of Ω(1) of each penalty, which for Ω_syn is E_SNN/E_AC if every neuron fires, by convention for ψ."""

    def results(self, context: Context) -> Results:
        """Make its tables and figures (see `Experiment`)."""
        lines: list[tuple[Cell, ...]] = []
        columns = (Column("model"), Column("term"), Column("ψ"), *comparison.columns("Ω(1)", digits=0))
        for model, printed in published.totals().items():
            counted = {psi: _synapses(model, psi).to_dict()["penalty_at_one"] for psi in get_args(Psi)}
            for term in ("syn", "total", "balance"):
                shown = "E_SNN/E_AC = Ω_syn" if term == "syn" else f"Ω_{term}"
                for psi in ("paper", "uniform", "exact") if term == "syn" else ("paper",):
                    paper = printed[term] if psi == "paper" else None
                    numbers = comparison.cells(counted[psi][term], paper, columns[-1])
                    lines.append((MODELS[model], shown, psi if term == "syn" else "any", *numbers))
        return Results({"totals": Sheet(columns, tuple(lines))})


@dataclass(frozen=True)
class LayerShares(Structural):
    """Each layer's share of the energy and of every penalty, if every neuron fires; ψ by the paper's convention.

    Attributes:
        model: A network of the zoo.
    """

    model: str

    def results(self, context: Context) -> Results:
        """Make its tables and figures (see `Experiment`)."""
        synapses = _synapses(self.model, "paper")
        terms = report.shares.terms_at_one(synapses)
        rows = report.shares.share_rows(synapses, terms)
        shares = {(row["layer"], row["term"]): row["share"] for row in rows}
        columns = (Column("layer"), *(Column(f"{term} [%]", 2, 100) for term in terms))
        lines = tuple((name, *(shares[name, term] for term in terms)) for name in synapses)
        return Results({"shares": Sheet(columns, lines)}, {"shares": report.figures.penalty_by_layer(rows)})


@dataclass(frozen=True)
class Architectures(Structural):
    """The zoo in the paper's notation, and where it is not what the paper prints."""

    def results(self, context: Context) -> Results:
        """Make its tables and figures (see `Experiment`)."""
        ours = {**{name: notation(name) for name in MODELS}, **block_notation()}
        printed = published.architectures()
        whole = [(MODELS.get(name, name), layers, printed[name]) for name, layers in ours.items()]
        differing = [
            (MODELS.get(name, name), place, here, there)
            for name, layers in ours.items()
            for place, (here, there) in enumerate(
                zip(layers.split(DASH), printed[name].split(DASH), strict=True), start=1
            )
            if here != there
        ]
        return Results(
            {
                "architectures": Sheet((Column("network"), Column("layers"), Column("paper")), tuple(whole)),
                "differences": Sheet(
                    (Column("network"), Column("place"), Column("ours"), Column("paper")), tuple(differing)
                ),
            }
        )


@dataclass(frozen=True)
class Hyperparameters(Structural):
    """The recipes of the paper, row by row, beside the table that they come from."""

    def results(self, context: Context) -> Results:
        """Make its tables and figures (see `Experiment`)."""
        recipes: dict[tuple[str, str, str], Recipe] = {
            (r.model.name, r.optimizer.name, r.neuron.surrogate): r for r in settings().values()
        }
        lines: list[tuple[Cell, ...]] = []
        for row in published.hyperparameters():
            recipe = recipes[row.model, row.optimizer, row.surrogate]
            ours = _tuned(recipe)
            printed = {key: getattr(row, key) for key in ours}
            line: list[Cell] = [MODELS[row.model], OPTIMIZERS[row.optimizer], row.surrogate]
            line += [_shown(value) for value in ours.values()]
            same = ours == printed
            lines.append((*line, "the same" if same else f"paper: {', '.join(map(_shown, printed.values()))}"))
        titles = ("model", "optimizer", "surrogate", "learning rate", "λ_WD", "B_BN", "alpha", "tau", "paper")
        return Results({"hyperparameters": Sheet(tuple(map(Column, titles)), tuple(lines))})


def _tuned(recipe: Recipe) -> dict[str, float | bool | None]:
    """Take the hyper-parameters of a recipe that the paper's table has."""
    used = {field.name for field in fields(SURROGATES[recipe.neuron.surrogate])}
    return {
        "lr": recipe.optimizer.lr,
        "weight_decay": recipe.optimizer.weight_decay,
        "decay_batch_norm": recipe.optimizer.decay_batch_norm,
        **{key: getattr(recipe.neuron, key) if key in used else None for key in ("alpha", "tau")},
    }


def _shown(value: float | bool | None) -> str:
    """Write a hyper-parameter as the paper does."""
    return "-" if value is None else f"{int(value)}" if isinstance(value, bool) else f"{value:g}"
