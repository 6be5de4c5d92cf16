"""Neurons with a membrane: integrate-and-fire, with or without a leak, over several time steps.

Convention: all T steps are given in one call and the potential starts at 0 in each, so nothing is kept between calls.

    u_t = (1 − leak)·v_{t−1} + I_t                 charge
    s_t = min(max(⌊u_t / threshold⌋, 0), max_spikes)   fire
    v_t = u_t − threshold·s_t                      reset "subtract"; or 0 where it fired ("zero")
    v_t = max(v_t, floor)

Going backward, ∂s/∂u is the surrogate at the last threshold that was passed, each further spike being a crossing like
the first, and the reset is a constant. The potential is kept in float32 also where the currents are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError, unknown
from picojoule.neurons.spike import Spike, spike
from picojoule.neurons.surrogate import S3NN, Surrogate
from picojoule.neurons.time_steps import check_steps, unfold

Reset = Literal["subtract", "zero"]
_S3NN = S3NN()


@dataclass(frozen=True)
class Membrane:
    """What happens in one time step."""

    threshold: float = 1.0
    leak: float = 0.0
    """The share of the potential that is lost from one step to the next."""
    reset: Reset = "subtract"
    max_spikes: int | None = None
    """In one step; None is as many as the potential has thresholds."""
    floor: float | None = None
    """The least potential that is kept for the next step; None is no limit."""
    surrogate: Surrogate = _S3NN

    def __post_init__(self) -> None:
        Spike(self.threshold, self.surrogate)  # says what is wrong with either
        if self.threshold <= 0:
            raise PicojouleError(
                f"a neuron with a membrane, which starts at 0, needs a threshold above 0, not {self.threshold!r}"
            )
        if not isinstance(self.leak, int | float) or not 0 <= self.leak <= 1:
            raise PicojouleError(f"leak={self.leak!r} is not a valid share of the potential: give a number from 0 to 1")
        if self.reset not in get_args(Reset):
            raise unknown("reset", str(self.reset), get_args(Reset))
        if self.max_spikes is not None and (type(self.max_spikes) is not int or self.max_spikes < 1):
            raise PicojouleError(
                f"max_spikes={self.max_spikes!r} is not allowed: give a whole number from 1 up, or None for any number"
            )
        if self.floor is not None and not (isinstance(self.floor, int | float) and -math.inf < self.floor <= 0):
            raise PicojouleError(
                f"floor={self.floor!r} is not allowed: give a finite number of 0 or less, or None for no limit"
            )


def step(v: Tensor | None, current: Tensor, membrane: Membrane) -> tuple[Tensor, Tensor]:
    """Take one time step: charge, fire, reset.

    Args:
        v: The potential that the step before left; None is 0.
        current: What the synapses give in this step.
        membrane: The equations.

    Returns:
        The spikes, and the potential that is left.

    >>> spikes, v = step(None, torch.tensor([0.6, 2.7, -3.0]), Membrane(floor=-1))
    >>> spikes, v
    (tensor([0., 2., 0.]), tensor([ 0.6000,  0.7000, -1.0000]))
    >>> step(v, torch.tensor([0.6, 0.0, 1.5]), Membrane(floor=-1))[0]
    tensor([1., 0., 0.])
    """
    u = current if v is None else current + (v * (1 - membrane.leak) if membrane.leak else v)
    spikes = fire(u, membrane)
    if membrane.reset == "subtract":
        v = u - spikes.detach() * membrane.threshold
    else:
        v = u.masked_fill(spikes.detach() > 0, 0)
    return spikes, v if membrane.floor is None else v.clamp(min=membrane.floor)


def fire(u: Tensor, membrane: Membrane) -> Tensor:
    """Count the spikes that a potential gives, ``min(max(⌊u / threshold⌋, 0), max_spikes)``.

    Args:
        u: The potential.
        membrane: The equations.

    Returns:
        Whole numbers of spikes, with the surrogate as their derivative.
    """
    threshold, most = membrane.threshold, membrane.max_spikes
    if most == 1:
        return spike(u, threshold, membrane.surrogate)
    earlier = ((u.detach() / threshold).floor() - 1).clamp(0, None if most is None else most - 1)
    return earlier + spike(u - earlier * threshold, threshold, membrane.surrogate)


def integrate(currents: Tensor, membrane: Membrane) -> Tensor:
    """Take all time steps, beginning with a potential of 0.

    Args:
        currents: What the synapses give in each step, [T, B, …].
        membrane: The equations.

    Returns:
        The spikes [T, B, …], in the dtype and memory layout of the currents.

    >>> integrate(torch.full((4, 1), 0.4), Membrane()).flatten()
    tensor([0., 0., 1., 0.])
    """
    v, emitted = None, []
    for current in currents.unbind(0):
        spikes, v = step(v, _precise(current), membrane)
        emitted.append(spikes.to(currents.dtype))
    # `stack` would lose the memory layout of maps that lie channels last.
    all_steps: Tensor = torch.cat(emitted).unflatten(0, currents.shape[:2])
    return all_steps


def _precise(current: Tensor) -> Tensor:
    """Return the current in float32 if it has fewer digits."""
    return current.float() if current.dtype in (torch.float16, torch.bfloat16) else current


class MembraneNeuron(nn.Module):
    """A layer of neurons with a membrane, the base of `IF` and `LIF`.

    Args:
        membrane: The equations of one time step.
        steps: None if it takes [T, B, …], T if it takes [T·B, …].

    Raises:
        PicojouleError: If steps is not a whole number from 1 up.
    """

    def __init__(self, membrane: Membrane, steps: int | None) -> None:
        super().__init__()
        if steps is not None:
            check_steps(steps)
        self.membrane = membrane
        self.steps = steps

    def forward(self, currents: Tensor) -> Tensor:
        """Take all time steps.

        Args:
            currents: What the synapses give, [T, B, …], or [T·B, …] if the layer was told `steps=T`.

        Returns:
            The spikes, in the same form.

        Raises:
            PicojouleError: If the currents have no time and batch axes, or do not divide into the steps.
        """
        if self.steps is not None:
            return integrate(unfold(currents, self.steps), self.membrane).flatten(0, 1)
        if currents.dim() < 2:
            raise PicojouleError(
                f"currents of shape {tuple(currents.shape)} have no time and batch axes: give [T, B, …], or say "
                "steps=T and give [T·B, …]"
            )
        return integrate(currents, self.membrane)

    def extra_repr(self) -> str:
        """Return the settings, as ``print(model)`` shows them."""
        shown = vars(self.membrane) | {"steps": self.steps}
        return ", ".join(f"{name}={value}" for name, value in shown.items())


class IF(MembraneNeuron):
    """The integrate-and-fire neuron without leak; its defaults are those of a converted network (`convert`).

    It takes the currents of all time steps at once, [T, B, …], or, if it is told `steps=T`, [T·B, …], which lets every
    other layer of the network be as it is for one step. Watch and trace it with `steps=T`.

    Args:
        threshold: Where the neuron fires, above 0.
        reset: What a spike leaves: "subtract" the threshold, or "zero".
        max_spikes: How many spikes there may be in one step; None is as many as the potential has thresholds.
        floor: The least potential that is kept for the next step; None is no limit.
        surrogate: Any callable ``(u, threshold) → ∂s/∂u``.
        steps: None if it takes [T, B, …], T if it takes [T·B, …].

    Raises:
        PicojouleError: If one of them is not allowed.

    >>> IF()(torch.tensor([[0.4], [0.4], [0.4], [2.3]])).flatten()
    tensor([0., 0., 1., 2.])
    """

    def __init__(
        self,
        threshold: float = 1.0,
        reset: Reset = "subtract",
        max_spikes: int | None = None,
        floor: float | None = -1.0,
        surrogate: Surrogate = _S3NN,
        *,
        steps: int | None = None,
    ) -> None:
        super().__init__(Membrane(threshold, 0.0, reset, max_spikes, floor, surrogate), steps)


class LIF(MembraneNeuron):
    """The leaky integrate-and-fire neuron: `leak` is the share of its potential that it loses in each step.

    As a rule it fires at most once per step and its potential has no floor; else it is as `IF`.

    Args:
        threshold: Where the neuron fires, above 0.
        leak: The share of the potential that is lost from one step to the next, from 0 to 1.
        reset: What a spike leaves: "subtract" the threshold, or "zero".
        max_spikes: How many spikes there may be in one step; None is as many as the potential has thresholds.
        floor: The least potential that is kept for the next step; None is no limit.
        surrogate: Any callable ``(u, threshold) → ∂s/∂u``.
        steps: None if it takes [T, B, …], T if it takes [T·B, …].

    Raises:
        PicojouleError: If one of them is not allowed.

    >>> LIF(leak=0.5)(torch.tensor([[0.8], [0.4], [0.8], [0.7]])).flatten()
    tensor([0., 0., 1., 0.])
    """

    def __init__(
        self,
        threshold: float = 1.0,
        leak: float = 0.5,
        reset: Reset = "subtract",
        max_spikes: int | None = 1,
        floor: float | None = None,
        surrogate: Surrogate = _S3NN,
        *,
        steps: int | None = None,
    ) -> None:
        super().__init__(Membrane(threshold, leak, reset, max_spikes, floor, surrogate), steps)
