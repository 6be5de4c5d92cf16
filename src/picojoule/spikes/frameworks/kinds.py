"""What can be said of a neuron module from its type alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from picojoule.spikes.layout import LayerLayout
from picojoule.spikes.unit import Unit

STEP = LayerLayout()
TIME_FIRST = LayerLayout(time_axis=0)
BATCH_FIRST = LayerLayout(time_axis=1)


Once = Callable[[str, Callable[[], Tensor]], Tensor]
"""Makes a tensor of a module by a name, the first time that it is asked for."""
Weigh = Callable[[Any, Tensor, Once], object]
"""Applies weights of a module to what arrives at them, as the module does; what comes out does not matter."""


@dataclass(frozen=True)
class Inside:
    """Synapses inside a neuron module, by what feeds them."""

    fed: Weigh | None = None
    """Fed by what the module takes; without it, that goes to the neurons as it is."""
    fed_back: Weigh | None = None
    """Fed by the module's own spikes of the step before."""
    hidden: Weigh | None = None
    """Fed by a state that is no spikes."""
    hidden_shape: Callable[[Any, Tensor], tuple[int, ...]] | None = None
    """The shape of that state, by what the module takes."""
    across_calls: bool = True
    """Whether spikes are fed back from one call to the next as well, if the module keeps its state."""


@dataclass(frozen=True)
class Fires:
    """A module that emits spikes; where it returns a tuple, element 0 is the spikes."""

    layout: LayerLayout | None = None
    """Where the time steps are; None where any layout passes through the module alike."""
    inside: Inside | None = None
    """The synapses that it holds, if it holds any."""
    unit: Unit = field(default_factory=Unit)
    """What one spike is worth."""


@dataclass(frozen=True)
class Silent:
    """A module that emits no spikes: what it emits must not feed a synapse."""

    emits: str = "its potential"
    """What it emits in place of spikes, as the object of a sentence."""


@dataclass(frozen=True)
class Refused:
    """A module that cannot be counted: why, and what to use instead."""

    because: str
    """The reason, as a clause."""
    instead: str
    """The remedy, as an imperative."""


Kind = Fires | Silent | Refused


@dataclass(frozen=True)
class Framework:
    """A framework: the classes of its package that picojoule knows, by name."""

    name: str
    """As it writes itself."""
    package: str
    """The name by which it is imported."""
    tested: str
    """The version that the tests run with."""
    kinds: Mapping[str, Kind | Callable[[nn.Module], Kind | None]]
    """By the name of the class or of its nearest known base; a function decides where the type alone cannot."""
    spare: Mapping[str, str] = field(default_factory=dict)
    """Classes that keep a network beside the one that they run, and the attribute that holds it."""
