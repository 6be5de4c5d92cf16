"""The programs that read NIR: what each knows of it, and the neurons that it makes of a node.

NIR's own equations are those of `Reader`. Others leave kinds of nodes out, or read the same node as another neuron; a
graph for one of them says the same network in the words that it understands. One step of a neuron is, for all of them,

    u = (1 − leak)·v + gain·I,   s = u > threshold,   v = 0 where it fired, else u

with another way of firing and reset for those that have one (`Equations`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import nir
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.deploy.graph.refusal import Unsupported
from picojoule.errors import unknown
from picojoule.neurons.lif import Membrane

Array = NDArray[np.float32]
MEMORYLESS = Membrane(leak=1.0, reset="zero", max_spikes=1)
"""`picojoule.Spike`: a potential that lasts for one step."""


@dataclass(frozen=True)
class Equations:
    """What a reader computes for a node of neurons in one step.

    Attributes:
        threshold: Of each neuron.
        leak: The share of the potential that is lost from one step to the next.
        gain: What the current is multiplied by.
        inclusive: Whether a potential that equals the threshold fires.
        subtract: Whether a spike takes the threshold off the potential, in place of setting it to zero.
        max_spikes: In one step; None is as many as the potential has thresholds.
        floor: The least potential that is kept; None is no limit.
    """

    threshold: Tensor
    leak: Tensor
    gain: Tensor
    inclusive: bool = False
    subtract: bool = False
    max_spikes: int | None = 1
    floor: Tensor | None = None

    def step(self, v: Tensor | None, current: Tensor) -> tuple[Tensor, Tensor]:
        """Take one time step.

        Args:
            v: The potential that the step before left; None is 0.
            current: What the synapses give.

        Returns:
            The spikes, and the potential that is left.
        """
        driven = self.gain * current
        u = driven if v is None else driven + (1 - self.leak) * v
        if self.max_spikes == 1:
            spikes = (u >= self.threshold if self.inclusive else u > self.threshold).float()
        else:
            spikes = (u / self.threshold).floor().clamp(0, self.max_spikes)
        v = u - spikes * self.threshold if self.subtract else u.masked_fill(spikes > 0, 0)
        return spikes, v if self.floor is None else torch.maximum(v, self.floor)


@dataclass(frozen=True)
class Reader:
    """A program that reads NIR; this one takes every node by NIR's own equations.

    Attributes:
        name: What `--reader` calls it.
        load: How its users load the file.
        lacks: Kinds of nodes that it does not know.
        one_threshold: Whether all neurons of a layer need the same threshold there.
        groups: Whether it takes convolutions with groups.
        unread: Fields of nodes that it stumbles over.
    """

    name: str = "nir"
    load: str = "one step has length 1; NIR's own equations"
    lacks: frozenset[str] = frozenset()
    one_threshold: bool = False
    groups: bool = True
    unread: tuple[str, ...] = ()

    def knows(self, kind: type[nir.NIRNode]) -> bool:
        """Return whether it has this kind of node."""
        return kind.__name__ not in self.lacks

    def neurons(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> nir.NIRNode:
        """Write a layer of neurons.

        Args:
            membrane: Its equations.
            threshold: The threshold of each neuron, at which it fires.
            steps: Time steps of a sample.

        Returns:
            The node.

        Raises:
            Unsupported: If the reader has no such neurons.
        """
        self.check(membrane, threshold, steps)
        if steps == 1:  # from rest only the current counts
            membrane = MEMORYLESS
        return self.node(membrane, threshold, steps)

    def check(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> None:
        """Refuse neurons that the reader has not.

        Raises:
            Unsupported: If it has not.
        """
        if self.one_threshold and np.unique(threshold).size > 1:
            raise Unsupported(
                because=f"whose neurons have thresholds of their own, which {self.name} does not read",
                remedy="put a batch norm or a bias directly behind a convolution without padding, or take no reader",
            )
        if membrane.max_spikes != 1:
            raise Unsupported("let the neurons have max_spikes=1, or take --reader sinabs", because=_MANY)
        if steps > 1 and membrane.leak < 1 and (membrane.reset != "zero" or membrane.floor is not None):
            raise Unsupported("let the neurons have reset='zero' and floor=None, or take --reader sinabs", because=_SUB)

    def node(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> nir.NIRNode:
        """Write neurons that `check` has let pass, firing strictly above a threshold that is the next smaller number.

        Returns:
            `IF`, or `LIF` with τ = r = 1/leak.
        """
        if steps == 1 or membrane.leak == 0:
            return integrators(_below(threshold))
        return leaky(_below(threshold), 1 / membrane.leak, 1 / membrane.leak)

    def equations(self, node: Any, max_spikes: int | None) -> Equations:
        """Read a node of neurons as the program does.

        Args:
            node: `IF` or `LIF`.
            max_spikes: What its users were told to set, where it has a choice.

        Returns:
            What it computes.
        """
        threshold, r = tensor_of(node.v_threshold), tensor_of(node.r)
        if isinstance(node, nir.IF):
            return Equations(threshold, torch.zeros(()), r)
        tau = tensor_of(node.tau)
        return Equations(threshold, 1 / tau, r / tau)


_MANY = "which may fire more than once in a step, as NIR's do not"
_SUB = "which subtract the threshold or have a floor, where NIR's neurons start again from 0"
_POOLS = frozenset({"AvgPool2d", "SumPool2d"})


class _Norse(Reader):
    """Norse takes r = 1 for granted, so that the threshold has to bear the gain."""

    def node(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> nir.NIRNode:
        if steps == 1 or membrane.leak == 0:
            return integrators(_below(threshold))
        return leaky(_below(threshold * membrane.leak), 1 / membrane.leak, 1.0)


class _SpikingJelly(Reader):
    def check(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> None:
        super().check(membrane, threshold, steps)
        if steps > 1 and membrane.leak == 1:
            raise Unsupported(
                because="which keep nothing from one step to the next, and spikingjelly reads only neurons that do",
                remedy="let them have a leak below 1",
            )


class _SnnTorch(Reader):
    """In snnTorch's reader `IF` does not run between layers and the step is fixed, so that all neurons are `LIF`."""

    def node(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> nir.NIRNode:
        ratio = 1 / membrane.leak if membrane.leak else _NEVER
        return leaky(_below(threshold), _SNNTORCH_STEP * ratio, ratio)

    def equations(self, node: Any, max_spikes: int | None) -> Equations:
        leak = torch.from_numpy(np.asarray(_SNNTORCH_STEP / node.tau))
        return Equations(tensor_of(node.v_threshold), leak, torch.ones(()))


_SNNTORCH_STEP = 1e-4
_NEVER = 1e9
"""A time constant in steps that makes 1 − 1/τ equal 1 in float32."""


class _Sinabs(Reader):
    """sinabs subtracts the threshold, and its `IF` keeps the potential above −threshold."""

    def check(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> None:
        if steps == 1:
            return
        integrates = membrane.leak == 0
        floor = -float(membrane.threshold) if integrates else None
        if membrane.leak == 1 or membrane.reset != "subtract" or membrane.floor != floor:
            raise Unsupported(
                because="and sinabs reads only neurons that subtract the threshold, those without a leak with a floor "
                "of −threshold",
                remedy=f"let them have reset='subtract' and floor={floor}",
            )

    def node(self, membrane: Membrane, threshold: NDArray[Any], steps: int) -> nir.NIRNode:
        exact = threshold.astype(np.float32)
        if steps == 1 or membrane.leak == 0:
            return integrators(exact)
        return leaky(exact, -1 / math.log(1 - membrane.leak), 1.0)

    def equations(self, node: Any, max_spikes: int | None) -> Equations:
        threshold, one = tensor_of(node.v_threshold), torch.ones(())
        firing = {"inclusive": True, "subtract": True, "max_spikes": max_spikes}
        if isinstance(node, nir.IF):
            return Equations(threshold, torch.zeros(()), one, floor=-threshold, **firing)  # type: ignore[arg-type]
        return Equations(threshold, 1 - torch.exp(-1 / tensor_of(node.tau)), one, **firing)  # type: ignore[arg-type]


READERS: Mapping[str, Reader] = MappingProxyType(
    {
        reader.name: reader
        for reader in (
            Reader(),
            _Norse(
                "norse",
                "norse.torch.from_nir(nir.read(FILE), dt=1.0)",
                lacks=_POOLS | {"Scale", "Conv1d"},
            ),
            _SnnTorch(
                "snntorch",
                "snntorch.import_nir.import_from_nir(nir.read(FILE)); reset its neurons between samples",
                lacks=_POOLS | {"Scale", "Conv1d"},
                one_threshold=True,
            ),
            _SpikingJelly(
                "spikingjelly",
                "spikingjelly.activation_based.nir_exchange.import_from_nir(FILE, dt=1.0)",
                lacks=frozenset({"SumPool2d", "Scale"}),
                one_threshold=True,
                groups=False,
            ),
            _Sinabs(
                "sinabs",
                "sinabs.nir.from_nir(nir.read(FILE), batch_size=…)",
                lacks=_POOLS | {"Linear", "Scale", "Conv1d"},
                unread=("v_reset", "metadata"),
            ),
        )
    }
)
"""Readers by name, each as its tested version reads (docs/export.md); "nir" is NIR as its documentation has it."""


def reader_named(name: str) -> Reader:
    """Find a reader by its name.

    Args:
        name: A name of `READERS`.

    Returns:
        The reader.

    Raises:
        PicojouleError: There is none of that name.

    Example:
        >>> reader_named("sinabs").knows(nir.AvgPool2d)
        False
    """
    if name not in READERS:
        raise unknown("reader", str(name), READERS)
    return READERS[name]


def integrators(threshold: Array) -> nir.IF:
    """Make neurons without a leak that start again from 0.

    Args:
        threshold: Of each neuron, above which it fires.

    Returns:
        The node.
    """
    return nir.IF(r=np.ones_like(threshold), v_threshold=threshold, v_reset=np.zeros_like(threshold))


def leaky(threshold: Array, tau: float, r: float) -> nir.LIF:
    """Make neurons with a leak towards 0 that start again from 0.

    Args:
        threshold: Of each neuron, above which it fires.
        tau: The time constant.
        r: The resistance.

    Returns:
        The node.
    """
    zeros = np.zeros_like(threshold)
    return nir.LIF(
        tau=np.full_like(threshold, tau),
        r=np.full_like(threshold, r),
        v_leak=zeros,
        v_threshold=threshold,
        v_reset=zeros.copy(),
    )


def tensor_of(numbers: Any) -> Tensor:
    """Take numbers of a node as a tensor of float32.

    Args:
        numbers: An array.

    Returns:
        The tensor.
    """
    return torch.from_numpy(np.ascontiguousarray(numbers, dtype=np.float32))


def _below(threshold: NDArray[Any]) -> Array:
    """Return the next smaller float32: NIR fires above the threshold, picojoule's neurons at it."""
    below: Array = np.nextafter(threshold.astype(np.float32), np.float32(-np.inf))
    return below
