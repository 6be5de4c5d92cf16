"""picojoule: spiking neural networks that spend less energy, and an honest measure of what they spend.

What the four core verbs need (`trace`, `watch`, `Penalty`, `EnergyMeter`), neurons, price lists and the zoo, is here
from the start. Everything else is imported when it is first asked for, because it needs further packages: the extras
`train`, `report`, `events`, `lightning`, `nir`, `onnx`, `ray` and `tensorboard` (`pip install 'picojoule[all]'` has
them all).
"""

# ruff: noqa: E402  # what is imported below takes seconds, in which somebody may press Ctrl-C
from __future__ import annotations

from picojoule.io.signals import go_quietly_while_starting

go_quietly_while_starting()

import importlib
from typing import TYPE_CHECKING, Any

from picojoule import zoo
from picojoule.energy import hardware
from picojoule.energy.meter import EnergyMeter
from picojoule.energy.report import EnergyReport
from picojoule.errors import PicojouleError
from picojoule.io.extras import explained
from picojoule.kernels.event_driven.layers import dense, sparse
from picojoule.neurons import surrogate
from picojoule.neurons.input_spikes import InputSpikes
from picojoule.neurons.lif import IF, LIF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike
from picojoule.penalty import Penalty, TargetPenalty
from picojoule.spikes import frameworks as peers
from picojoule.spikes.activity import Activity
from picojoule.spikes.layout import TimeLayout
from picojoule.spikes.spiking import declare_spiking
from picojoule.spikes.watch import watch
from picojoule.synapses import rules
from picojoule.synapses.rules.declared import declare_rule
from picojoule.synapses.table import Layer, Synapses
from picojoule.synapses.trace import trace

if TYPE_CHECKING:
    from picojoule import data, report
    from picojoule.deploy import events, export
    from picojoule.deploy.convert import convert
    from picojoule.energy.metric import EnergyMetric
    from picojoule.recipe import Recipe
    from picojoule.report import plot
    from picojoule.runs.evaluate import Evaluation, evaluate
    from picojoule.runs.folder import Run
    from picojoule.runs.infer import infer
    from picojoule.runs.model import load_model
    from picojoule.search import sweep, tradeoff
    from picojoule.search.frontier import Plan, frontier
    from picojoule.search.limits import Limits
    from picojoule.search.pick import pick
    from picojoule.training import strength_schedule as schedule
    from picojoule.training.any_loop import Budget, Guard, suggest_strength
    from picojoule.training.fit import fit
    from picojoule.training.lightning import EnergyCallback
    from picojoule.training.reporters import Reporter

__version__ = "0.1.0"

__all__ = [
    "IF",
    "LIF",
    "Activity",
    "Budget",
    "EnergyCallback",
    "EnergyMeter",
    "EnergyMetric",
    "EnergyReport",
    "Evaluation",
    "Guard",
    "InputSpikes",
    "Layer",
    "Limits",
    "Penalty",
    "PicojouleError",
    "Plan",
    "QuantizedReLU",
    "Recipe",
    "Reporter",
    "Run",
    "Spike",
    "Synapses",
    "TargetPenalty",
    "TimeLayout",
    "convert",
    "data",
    "declare_rule",
    "declare_spiking",
    "dense",
    "evaluate",
    "events",
    "export",
    "fit",
    "frontier",
    "hardware",
    "infer",
    "load_model",
    "peers",
    "pick",
    "plot",
    "report",
    "rules",
    "schedule",
    "sparse",
    "suggest_strength",
    "surrogate",
    "sweep",
    "trace",
    "tradeoff",
    "watch",
    "zoo",
]

_LAZY_MODULES = {
    "data": "picojoule.data",
    "events": "picojoule.deploy.events",
    "export": "picojoule.deploy.export",
    "plot": "picojoule.report.plot",
    "report": "picojoule.report",
    "schedule": "picojoule.training.strength_schedule",
    "sweep": "picojoule.search.sweep",
    "tradeoff": "picojoule.search.tradeoff",
}
_LAZY_NAMES = {
    "Budget": "picojoule.training.any_loop",
    "EnergyCallback": "picojoule.training.lightning",
    "EnergyMetric": "picojoule.energy.metric",
    "Evaluation": "picojoule.runs.evaluate",
    "Guard": "picojoule.training.any_loop",
    "Limits": "picojoule.search.limits",
    "Plan": "picojoule.search.frontier",
    "Recipe": "picojoule.recipe.recipe",
    "Reporter": "picojoule.training.reporters",
    "Run": "picojoule.runs.folder",
    "convert": "picojoule.deploy.convert",
    "evaluate": "picojoule.runs.evaluate",
    "fit": "picojoule.training.fit",
    "frontier": "picojoule.search.frontier",
    "infer": "picojoule.runs.infer",
    "load_model": "picojoule.runs.model",
    "pick": "picojoule.search.pick",
    "suggest_strength": "picojoule.training.any_loop",
}


def _published(value: Any) -> Any:
    """Let a class or function say that it belongs to `picojoule`, where users find it, not to the file it is in."""
    value.__module__ = __name__
    return value


for _name in __all__:
    if _name in globals() and hasattr(globals()[_name], "__qualname__"):
        _published(globals()[_name])
del _name


def __getattr__(name: str) -> Any:
    if name not in _LAZY_MODULES and name not in _LAZY_NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name in _LAZY_MODULES:
            value = importlib.import_module(_LAZY_MODULES[name])
        else:
            value = _published(getattr(importlib.import_module(_LAZY_NAMES[name]), name))
    except ModuleNotFoundError as fault:
        raise explained(fault, f"picojoule.{name}") from None
    globals()[name] = value  # so that the next access does not come here
    return value


def __dir__() -> list[str]:
    return [*globals(), *_LAZY_MODULES, *_LAZY_NAMES]
