"""What a structural pass records of one call of the model: emitted spikes, and every call of a synaptic operation."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field

from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.synapses.expression import Expression


@dataclass
class SynapticCall:
    """The multiply-accumulates of one call of an operation that costs, for everything and for what is not spikes."""

    weight: int | str
    """The identity of the weight: the same for every call of one synaptic layer. Without one, the operation's name."""
    name: str
    """The layer of weights, or the operation where there is none, as tables show it."""
    place: str
    """The operation and its module, in words."""
    fed: tuple[int, ...]
    """The shape of what it was fed."""
    macs: int
    encoder_macs: int
    """Those that the input feeds."""
    analog_macs: int
    """Those that currents, potentials and other analog values feed."""
    weights: int
    """Weights of the layer, without those that were pruned; over all samples, the other factor of a product."""
    outputs: int
    """Elements that it puts out, over all samples."""
    reached: Tensor | None
    """Σ x·n of this call, if spikes feed it."""
    unit: bool = False
    """Whether spikes arrive without a weight."""
    fixed: bool = True
    """Whether what stands for its weights is the same for every sample."""


@dataclass
class MadeCall:
    """One execution of an operation that makes spikes of spikes (a gate, a max pool) or counts pairs of them."""

    expression: Expression
    covered: frozenset[int]
    """Which calls of the layers have a part in it: those of one time step, or one that holds all of them."""
    product: SynapticCall | None = None


@dataclass
class Recording:
    """What one structural pass found."""

    leaves: dict[str, list[Tensor]] = field(default_factory=dict)
    """The emissions of each spiking layer and relay, call by call, in the order of first use."""
    fed_by: dict[str, list[int | str | None]] = field(default_factory=dict)
    """The weight that ran last before each of those emissions."""
    stateful: set[str] = field(default_factory=set)
    """Spiking layers that hold a state."""
    relays: set[str] = field(default_factory=set)
    made: dict[str, list[MadeCall]] = field(default_factory=dict)
    """Gates, functional max pools and products of spikes, call by call."""
    order: dict[str, None] = field(default_factory=dict)
    """All layers, relays and products in the order of first use."""
    calls: list[SynapticCall] = field(default_factory=list)
    reached: list[Tensor] = field(default_factory=list)
    """Σ x·n of each synaptic call that spikes feed."""
    touched: set[int] = field(default_factory=set)
    """The identities of the parameters (and of pruned weights) that an operation took."""
    sites: dict[str, int] = field(default_factory=dict)
    """At how many places a module without a state is called, where it is more than one."""
    refusal: PicojouleError | None = None
    """Kept, because a model (or TorchScript) may catch the error and go on."""

    def emitted(self) -> dict[str, list[Tensor]]:
        """Return the emissions, each place apart at which a module is called."""
        return {
            site_name(name, site): calls[site :: self.sites.get(name, 1)]
            for name, calls in self.leaves.items()
            for site in range(self.sites.get(name, 1))
        }

    def find_sites(self, calls_expected: int) -> None:
        """Tell the places apart at which modules without a state are called.

        Before each place other weights run; in a loop over time the same do, so that a forgotten number of steps is
        not taken for places.

        Args:
            calls_expected: How often a module at one place is called.
        """
        self.sites = {
            name: len(calls)
            for name, calls in self.leaves.items()
            if calls_expected == 1 < len(calls) == len(set(self.fed_by[name])) and name not in self.stateful
        }


def site_name(name: str, site: int) -> str:
    """Name a place at which a module is called, the first by the module alone.

    Args:
        name: The module's name.
        site: The number of the place, from 0.

    Returns:
        The name in tables.

    >>> site_name("spike", 0), site_name("spike", 1)
    ('spike', 'spike@2')
    """
    return name if site == 0 else f"{name}@{site + 1}"


def module_of(name: str, modules: Container[str]) -> str:
    """Find the module of a place at which it is called.

    Args:
        name: The name of the place in tables.
        modules: The names of modules.

    Returns:
        The module's name.

    >>> module_of("spike@2", {"spike"}), module_of("spike", {"spike"})
    ('spike', 'spike')
    """
    return name if name in modules else name.rpartition("@")[0] or name
