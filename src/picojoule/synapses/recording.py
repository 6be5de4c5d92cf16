"""What a structural pass records of one call of the model: emitted spikes, and every call of a synaptic operation."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from picojoule.errors import PicojouleError


@dataclass
class SynapticCall:
    """The multiply-accumulates of one call of a synaptic operation, for everything and for the analog inputs alone."""

    weight: int
    """The identity of the weight: the same for every call of one synaptic layer."""
    place: str
    """The operation and its module, in words."""
    module: str
    """The name of the module that runs it; that of the operation where the network itself does."""
    fed: tuple[int, ...]
    """The shape of what it was fed."""
    macs: int
    analog_macs: int
    weights: int
    """Weights of the layer, without those that were pruned."""
    outputs: int
    """Elements that it puts out, over all samples."""
    reached: Tensor | None
    """Σ x·n of this call, if spikes feed it."""


@dataclass
class Recording:
    """What one structural pass found."""

    leaves: dict[str, list[Tensor]] = field(default_factory=dict)
    """The emissions of each spiking layer and relay, call by call, in the order of first use."""
    relays: set[str] = field(default_factory=set)
    calls: list[SynapticCall] = field(default_factory=list)
    reached: list[Tensor] = field(default_factory=list)
    """Σ x·n of each synaptic call that spikes feed."""
    touched: set[int] = field(default_factory=set)
    """The identities of the parameters (and of pruned weights) that an operation took."""
    refusal: PicojouleError | None = None
    """Kept, because a model (or TorchScript) may catch the error and go on."""
