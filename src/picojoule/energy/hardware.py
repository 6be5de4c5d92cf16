"""Price lists of hardware: joules per operation, each with its source.

Convention: joules per operation, counted per sample. A synaptic operation (a spike that reaches a synapse) is one
``accumulate``; a spike that leaves its neuron is one ``spike``; a synapse fed by anything but spikes is one
``multiply_accumulate``; ``neuron_update`` is paid once per neuron and time step, spike or not. ``None`` means that the
source gives no figure: that kind of operation is *not priced*, which is not the same as free, and a report has to say
so.

Every list is a metric of the form

    E = T · Σ_l N_l · per_update(l)  +  E[Σ_t Σ_l Σ_i c_{l,i} s_{l,i,t}],
    c = Σ_targets per_synop(target) · ψ_target + per_spike(l)

The first part is what no spike changes, the second is what the meter calls ``joules``. Called with a layer, a list
gives c: ``Penalty(synapses, kind=hardware.get("loihi"))`` is the second part itself, in joules.

The Horowitz lists price arithmetic only, without memory traffic; no list contains idle power.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from picojoule.errors import PicojouleError, unknown
from picojoule.synapses.table import Layer, Target

DEFAULT = "horowitz-45nm-fp32"

_PJ = 1e-12


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """A price list: joules per operation, with the source they come from.

    Attributes:
        name: A short name.
        accumulate: Of a synaptic operation.
        multiply_accumulate: Of a synapse fed by anything but spikes; None is not priced.
        neuron_update: Of one neuron in one time step, spike or not; None is not priced.
        spike: Of a spike that leaves its neuron; None is not priced.
        source: Where the numbers come from.

    Raises:
        PicojouleError: A price is not a finite number of 0 or more, or name or source is missing.

    >>> mine = PriceList(name="my-chip", accumulate=2e-12, source="measured on our board, 2026-01-31")
    >>> mine.multiply_accumulate is None
    True
    """

    name: str
    accumulate: float
    multiply_accumulate: float | None = None
    neuron_update: float | None = None
    spike: float | None = None
    source: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise PicojouleError("a price list needs a name: give it a short one such as 'my-chip'")
        if not isinstance(self.source, str) or not self.source.strip():
            raise PicojouleError(f"price list {self.name!r} needs a source: say where its numbers come from")
        self._check_price("accumulate", self.accumulate)
        for field, joules in (
            ("multiply_accumulate", self.multiply_accumulate),
            ("neuron_update", self.neuron_update),
            ("spike", self.spike),
        ):
            if joules is not None:
                self._check_price(field, joules)

    def _check_price(self, field: str, joules: object) -> None:
        if type(joules) is bool or not isinstance(joules, int | float) or not 0 <= joules <= sys.float_info.max:
            raise PicojouleError(
                f"price list {self.name!r}: {field} must be a finite number of joules, 0 or more, not {joules!r}"
            )

    def per_synop(self, target: Target) -> float:
        """Price one synaptic operation on the weights of a target, in joules.

        Args:
            target: The layer of weights that the spike reaches.

        Returns:
            Joules.
        """
        return self.accumulate

    def per_spike(self, layer: Layer) -> float:
        """Price one spike of the layer beside its synaptic operations, in joules; a relay only passes spikes on.

        Args:
            layer: A layer of `Synapses`.

        Returns:
            Joules; 0 where the list has no such price.
        """
        return 0.0 if layer.relay or self.spike is None else self.spike

    def per_update(self, layer: Layer) -> float | None:
        """Price one neuron of the layer in one step, spike or not, in joules.

        Args:
            layer: A layer of `Synapses`.

        Returns:
            Joules; None where that is not priced.
        """
        return self.neuron_update

    def __call__(self, layer: Layer) -> Tensor:
        """Price a spike of each neuron: c = Σ_targets per_synop(target) · ψ_target + per_spike(layer), in joules.

        Args:
            layer: A layer of `Synapses`.

        Returns:
            c in the shape of the layer's map, float64: the coefficients of `Penalty(synapses, kind=prices)`.
        """
        c = torch.full(layer.shape, self.per_spike(layer), dtype=torch.float64)
        for target in layer.targets:
            c += self.per_synop(target) * target.fan_out.double()
        return c


LEAKY = frozenset(
    {
        *("LIF", "Leaky", "Synaptic", "Alpha", "RLeaky", "RSynaptic", "Lapicque"),
        *("LIFNode", "ParametricLIFNode", "LIFRecurrent", "ALIF", "ExpLeak"),
        *("LIFCell", "LIFBoxCell", "LIFRecurrentCell", "LIFRefracCell", "LIFExCell", "LIFAdEx", "LICell", "LIBoxCell"),
    }
)
"""Classes of neurons, of picojoule and other frameworks, whose potential is multiplied by a leak in every step."""


@dataclass(frozen=True, kw_only=True)
class MemoryPriceList(PriceList):
    """A price list of arithmetic and memory, an access priced by the size of its memory (Lemaire et al., 2022).

    A synaptic operation adds a weight to a potential and works out its address (two ``accumulate``), reads the weight,
    reads and writes the potential. A spike is written once by its layer, which resets its neuron (one ``accumulate``),
    and read once by each target, which works out where to begin (two products and sums). Every step each neuron adds
    its bias to its potential, which is read and written; a neuron that leaks (`LEAKY`) multiplies it as well, one
    product more. A neuron of a class that is not known is priced without a leak.

    The output's potentials, whose neurons never fire, and the dense twin are not priced.

    Attributes:
        multiply: Joules of one multiplication.
        word: Bytes of a weight, a potential or the address of a spike.
        memory: Bytes of a memory and joules of an access, rising; the line through them goes on beyond both ends.
    """

    multiply: float
    word: int = 4
    memory: tuple[tuple[int, float], ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_price("multiply", self.multiply)
        if type(self.word) is not int or self.word < 1:
            raise PicojouleError(f"price list {self.name!r}: word must be 1 byte or more, not {self.word!r}")
        try:
            pairs = [(float(size), float(price)) for size, price in self.memory]
        except (TypeError, ValueError, OverflowError):
            pairs = []
        sizes, prices = [size for size, _ in pairs], [price for _, price in pairs]
        rising = all(a < b for a, b in itertools.pairwise(sizes)) and list(prices) == sorted(prices)
        if len(sizes) < 2 or not rising or not all(map(math.isfinite, prices)) or self.access(0) < 0:
            raise PicojouleError(
                f"price list {self.name!r}: memory must be two or more (bytes, joules), both rising, with no price "
                f"below 0 on the line through the first two, not {self.memory!r}"
            )

    def access(self, elements: int) -> float:
        """Price one access to a memory of that many words, in joules.

        Args:
            elements: Words that the memory holds.

        Returns:
            Joules, on the line through the known sizes.
        """
        size = self.word * elements
        below = max(1, min(sum(size > known for known, _ in self.memory), len(self.memory) - 1))
        (left, low), (right, high) = self.memory[below - 1 : below + 1]
        return low + (high - low) * (size - left) / (right - left)

    def per_synop(self, target: Target) -> float:
        """Price two additions, a read of the weight, a read and a write of the potential, in joules.

        Args:
            target: The layer of weights that the spike reaches.

        Returns:
            Joules.

        Raises:
            PicojouleError: The size of the target is not known, because its ψ was written by hand.
        """
        if not target.weights:
            raise PicojouleError(
                f"{self.name} prices a memory by its size, which synapses written by hand do not tell: take those that "
                "picojoule.trace gives"
            )
        return 2 * self.accumulate + self.access(target.weights) + 2 * self.access(target.outputs)

    def per_spike(self, layer: Layer) -> float:
        """Price the write of a spike, its reset, and the read by each target, in joules.

        Args:
            layer: A layer of `Synapses`.

        Returns:
            Joules; of a relay, the reads alone.
        """
        stored = self.access(math.prod(layer.shape))
        read = len(layer.targets) * (stored + 2 * (self.multiply + self.accumulate))
        return read if layer.relay else read + stored + self.accumulate

    def per_update(self, layer: Layer) -> float:
        """Price the addition of the bias to the potential, read and written, and the product of a leak, in joules.

        Args:
            layer: A layer of `Synapses`.

        Returns:
            Joules.
        """
        leak = self.multiply if layer.kind in LEAKY else 0.0
        return self.accumulate + leak + 2 * self.access(layer.neurons)


_HOROWITZ = "M. Horowitz, Computing's energy problem (and what we can do about it), ISSCC 2014, 45 nm, 0.9 V"

PRICE_LISTS: Mapping[str, PriceList] = MappingProxyType(
    {
        prices.name: prices
        for prices in (
            PriceList(
                name="horowitz-45nm-fp32",
                accumulate=0.9 * _PJ,
                multiply_accumulate=4.6 * _PJ,
                source=f"{_HOROWITZ}: fp32 add 0.9 pJ, multiply 3.7 pJ",
            ),
            PriceList(
                name="horowitz-45nm-fp16",
                accumulate=0.4 * _PJ,
                multiply_accumulate=1.5 * _PJ,
                source=f"{_HOROWITZ}: fp16 add 0.4 pJ, multiply 1.1 pJ",
            ),
            PriceList(
                name="horowitz-45nm-int8",
                accumulate=0.03 * _PJ,
                multiply_accumulate=0.23 * _PJ,
                source=f"{_HOROWITZ}: int8 add 0.03 pJ, multiply 0.2 pJ",
            ),
            MemoryPriceList(
                name="lemaire-45nm-int32",
                accumulate=0.1 * _PJ,
                multiply=3.1 * _PJ,
                memory=((8 << 10, 10 * _PJ), (32 << 10, 20 * _PJ), (1 << 20, 100 * _PJ)),
                source="E. Lemaire et al., An analytical estimation of spiking neural networks energy efficiency, "
                f"ICONIP 2022, with the prices of {_HOROWITZ}: int32 add 0.1 pJ, multiply 3.1 pJ, access to an SRAM of "
                "8 kB 10 pJ, 32 kB 20 pJ, 1 MB 100 pJ",
            ),
            PriceList(
                name="loihi",
                accumulate=27.1 * _PJ,
                neuron_update=81 * _PJ,
                source="M. Davies et al., Loihi: a neuromorphic manycore processor with on-chip learning, IEEE Micro "
                "2018, as read by keras-spiking: 27.1 pJ a synaptic operation (23.6 + 3.5), 81 pJ a neuron update",
            ),
            PriceList(
                name="spinnaker2",
                accumulate=450 * _PJ,
                neuron_update=2190 * _PJ,
                source="S. Höppner et al., Dynamic power management for neuromorphic many-core systems, IEEE "
                "TCAS-I 2019 (arXiv:1903.08941), as read by keras-spiking: 450 pJ a synaptic operation, "
                "2.19 nJ a neuron update",
            ),
        )
    }
)
"""The price lists by name. Loihi and SpiNNaker 2 publish no figure for a dense multiply-accumulate."""


def names() -> tuple[str, ...]:
    """List the names of the price lists that ``get`` knows.

    Returns:
        The names, the default first.

    >>> DEFAULT in names()
    True
    """
    return tuple(PRICE_LISTS)


def get(prices: str | PriceList = DEFAULT) -> PriceList:
    """Find a price list by its name.

    Args:
        prices: A name of `names()`, or a ``PriceList`` of your own, which is returned as it is.

    Returns:
        The price list.

    Raises:
        PicojouleError: There is none of that name; the message names the nearest one.

    >>> get("loihi").neuron_update
    8.1e-11
    """
    if isinstance(prices, PriceList):
        return prices
    if not isinstance(prices, str):
        raise PicojouleError(
            f"hardware is a name or a PriceList, not {prices!r}: choose one of {', '.join(PRICE_LISTS)}"
        )
    if prices in PRICE_LISTS:
        return PRICE_LISTS[prices]
    raise unknown("hardware", prices, PRICE_LISTS, ", or pass a PriceList of your own")
