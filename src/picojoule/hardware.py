"""Price lists: what one operation costs on a chip.

Convention: joules per operation, counted per sample. A synaptic operation (a spike that reaches a synapse) is one
``accumulate``; a synapse fed by anything but spikes is one ``multiply_accumulate``; ``neuron_update`` is paid once per
neuron and time step, spike or not. ``None`` means that the source gives no figure: that kind of operation is *not
priced*, which is not the same as free, and a report has to say so.

The Horowitz lists price arithmetic only, without memory traffic; no list contains idle power.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from picojoule.errors import PicojouleError, unknown

DEFAULT = "horowitz-45nm-fp32"

_PJ = 1e-12


@dataclass(frozen=True, kw_only=True)
class PriceList:
    """Joules per operation, with the source they come from.

    >>> mine = PriceList(name="my-chip", accumulate=2e-12, source="measured on our board, 2026-01-31")
    >>> mine.multiply_accumulate is None
    True
    """

    name: str
    accumulate: float
    multiply_accumulate: float | None = None
    neuron_update: float | None = None
    source: str

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise PicojouleError("a price list needs a name: give it a short one such as 'my-chip'")
        if not self.source.strip():
            raise PicojouleError(f"price list {self.name!r} needs a source: say where its numbers come from")
        for field, joules in (
            ("accumulate", self.accumulate),
            ("multiply_accumulate", self.multiply_accumulate),
            ("neuron_update", self.neuron_update),
        ):
            if joules is not None and not (isinstance(joules, int | float) and math.isfinite(joules) and joules >= 0):
                raise PicojouleError(
                    f"price list {self.name!r}: {field} must be a finite number of joules, 0 or more, not {joules!r}"
                )


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
    """The names that ``get`` knows."""
    return tuple(PRICE_LISTS)


def get(prices: str | PriceList = DEFAULT) -> PriceList:
    """The price list of that name; a ``PriceList`` of the user's own is returned as it is.

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
