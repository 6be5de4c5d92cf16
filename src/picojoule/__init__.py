"""picojoule: spiking neural networks that spend less energy, and an honest measure of what they spend."""

from picojoule import hardware, rules, surrogate, zoo
from picojoule.activity import Activity, declare_spiking, watch
from picojoule.energy import EnergyMeter, EnergyReport
from picojoule.errors import PicojouleError
from picojoule.neuron import Spike
from picojoule.penalty import Penalty
from picojoule.rules import declare_rule
from picojoule.synapse import Layer, Synapses, trace

__version__ = "0.1.0"

__all__ = [
    "Activity",
    "EnergyMeter",
    "EnergyReport",
    "Layer",
    "Penalty",
    "PicojouleError",
    "Spike",
    "Synapses",
    "declare_rule",
    "declare_spiking",
    "hardware",
    "rules",
    "surrogate",
    "trace",
    "watch",
    "zoo",
]
