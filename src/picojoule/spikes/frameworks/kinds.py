"""What can be said of a neuron module from its type alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from torch import nn

from picojoule.spikes.layout import Clock

STEP = Clock()
TIME_FIRST = Clock(time_axis=0)
BATCH_FIRST = Clock(time_axis=1)


@dataclass(frozen=True)
class Fires:
    """The module emits spikes; where it returns a tuple, element 0 is the spikes."""

    clock: Clock | None = None
    """None where any layout of time passes through it alike."""


@dataclass(frozen=True)
class Silent:
    """The module emits no spikes: what it emits must not feed a synapse."""

    emits: str = "its potential"


@dataclass(frozen=True)
class Refused:
    """The module cannot be counted."""

    because: str
    instead: str


Kind = Fires | Silent | Refused


@dataclass(frozen=True)
class Framework:
    """One framework: the classes of its package that picojoule knows, by name."""

    name: str
    package: str
    tested: str
    """The version that the tests run with."""
    kinds: Mapping[str, Kind | Callable[[nn.Module], Kind | None]]
    """A class is known by its own name or by that of its nearest known base. A function decides where the type does not
    alone."""
    spare: Mapping[str, str] = field(default_factory=dict)
    """Classes that keep a network beside the one that they run, and the attribute that holds it."""
