"""picojoule: spiking neural networks that spend less energy, and an honest measure of what they spend."""

# ruff: noqa: E402  # what is imported below takes seconds, in which somebody may press Ctrl-C
from picojoule.io.signals import go_quietly_while_starting

go_quietly_while_starting()

from picojoule import data, zoo
from picojoule.deploy import convert, events, export
from picojoule.energy import hardware
from picojoule.energy.meter import EnergyMeter
from picojoule.energy.report import EnergyReport
from picojoule.errors import PicojouleError
from picojoule.neurons import surrogate
from picojoule.neurons.lif import IF, LIF
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike
from picojoule.paper import conversion_chain as chain
from picojoule.penalty import Penalty
from picojoule.recipe import Recipe
from picojoule.runs.evaluate import Evaluation, evaluate
from picojoule.runs.folder import Run
from picojoule.runs.infer import infer
from picojoule.runs.model import load_model
from picojoule.search import sweep, tradeoff
from picojoule.spikes import frameworks as peers
from picojoule.spikes.activity import Activity
from picojoule.spikes.spiking import declare_spiking
from picojoule.spikes.watch import watch
from picojoule.synapses import rules
from picojoule.synapses.rules import declare_rule
from picojoule.synapses.table import Layer, Synapses
from picojoule.synapses.trace import trace
from picojoule.training.fit import fit

__version__ = "0.1.0"

__all__ = [
    "IF",
    "LIF",
    "Activity",
    "EnergyMeter",
    "EnergyReport",
    "Evaluation",
    "Layer",
    "Penalty",
    "PicojouleError",
    "QuantizedReLU",
    "Recipe",
    "Run",
    "Spike",
    "Synapses",
    "chain",
    "convert",
    "data",
    "declare_rule",
    "declare_spiking",
    "evaluate",
    "events",
    "export",
    "fit",
    "hardware",
    "infer",
    "load_model",
    "peers",
    "rules",
    "surrogate",
    "sweep",
    "trace",
    "tradeoff",
    "watch",
    "zoo",
]
