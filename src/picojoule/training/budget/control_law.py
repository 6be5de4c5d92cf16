"""The control law of a budget: λ as a Lagrange multiplier that rises while the network spends too much.

The problem is min CE subject to E ≤ target. A run has three stretches:

1. *reference*, the first tenth of the epochs (at least one): no penalty; E on the validation images at its end is the
   reference energy E₀, unless a finished run was named for it;
2. *descent*, up to 85 % of the run: the share x of E₀ that is wanted falls from 1 to the budget so that 1/x grows
   evenly;
3. *hold*: it stays there while the learning rate runs out.

    λ = (1/Ω₀) · (1/x − 1) · exp(I) · (1 + K(τ)·e within [−3, 5]),   e = log(E / (x·E₀)),   I ← I + 12·e·Δτ in the hold

The first two factors are a forecast: trained networks follow E/E₀ ≈ 1/(1 + λΩ₀) within a factor of two in λ, so λ grows
about evenly in the descent, as the schedule "linear" has it. The other two correct it. τ is the learning rate spent
after the first stretch as a share of all that is to be spent, and K(τ) = min(2/(1 − τ), 60): the less the network can
still move, the harder it is pushed. I rests in the descent, where e is mostly the way that is still to go. Spikes are
lost much faster than they come back, so a network that fell below the target is pulled up by a λ that may turn negative
for a while, unless the target is no less than the reference: then there is nothing to spend more on.

E is seen every tenth batch (oftener in a short run): Ω of a fixed sample of training images, times the joules on the
validation images per unit of it. That price is measured after each epoch, and in a short hold several times, because it
changes as the network does. The same images every time: with fresh ones the estimate would carry their differences, and
averaged over many batches it would come too late. So neither prices nor the kind of penalty matter; with Ω_total or
Ω_balance the budget is still one of energy, only less steadily followed between measurements.

The sample is seen without dropout and by its own batch norm statistics: running averages are those of networks that
have been, and in small batches they alone move the energy by several percent. Before every price they are measured
anew, so that what is judged is the network that was controlled (`batch_norm`).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from picojoule.energy.units import parse_joules
from picojoule.errors import PicojouleError
from picojoule.training.learning_rate import Annealing

ENOUGH_UPDATES = 250
"""Updates that come down to a budget within a few percent."""
_REFERENCE = 0.1
_DESCENDED = 0.85
_INTEGRAL = 12.0
_LARGEST_ERROR = 0.25
"""The largest |e| that the integral takes note of."""
_LARGEST_INTEGRAL = 5.0
"""λ stays within a factor of the forecast, also where a target is out of reach."""
_PROPORTIONAL = 2.0
_LARGEST_PROPORTIONAL = 60.0
_PUSH = (-3.0, 5.0)
_BETWEEN_LOOKS = 10
"""Batches; fewer where a run has fewer than _LOOKS times as many."""
_LOOKS = 120
_CHECKS = 4
"""How often the price is measured in the hold, at least."""
_NEARLY_ALL = 0.95
"""A budget of the whole reference energy or more is controlled like one of this share: λ = 0 cannot be corrected."""
_NOTHING = 1e-30
"""Stands in for an energy of zero, which has no logarithm."""


def tolerance(target: float, reference: float) -> float:
    """Return by how many joules a network may miss a target and still meet it.

    Args:
        target: The budget in joules per image.
        reference: The unpenalised energy in joules per image.

    Returns:
        3 % of the target, or 0.6 % of the reference where that is more.

    >>> tolerance(0.5, 1.0), tolerance(0.05, 1.0)
    (0.015, 0.006)
    """
    return max(0.03 * target, 0.006 * reference)


@dataclass
class _State:
    """The state of the law, which a resumed run takes up again."""

    omega: float | None = None
    """log Ω of the sample when it was last looked at."""
    price: float = 0.0
    """log(joules on the validation images / Ω of the sample)."""
    reference: float | None = None
    """E₀, in joules."""
    omega_at_reference: float = 0.0
    integral: float = 0.0
    strength: float = 0.0


class ControlLaw:
    """The control law of one run: the strength λ of the penalty, batch by batch, that ends at the budget.

    Args:
        budget: A share of the reference energy, or an energy with its unit, such as "2 uJ".
        epochs: All epochs of the run.
        batches: Batches per epoch.
        reference: The reference energy E₀ in joules per image, where a finished run was named for it.
        fixed: Joules per image that no spike changes, where the budget counts them too; the law is one of spikes.
        aim: The share of the target that is aimed at, below 1 where it must not be exceeded.
        annealing: How the learning rate falls; from epoch to epoch unless given.

    >>> budget = ControlLaw(0.5, epochs=10, batches=100)
    >>> budget.strength
    0.0
    """

    def __init__(
        self,
        budget: float | str,
        epochs: int,
        batches: int,
        reference: float | None = None,
        *,
        fixed: float = 0.0,
        aim: float = 1.0,
        annealing: Annealing | None = None,
    ) -> None:
        self._budget, self._fixed, self._aim = budget, fixed, aim
        self._epochs, self._batches = epochs, batches
        self._named_reference = reference
        self._first = max(1, round(_REFERENCE * epochs))
        """Epochs of the first stretch."""
        self._between_looks = min(max(epochs * batches // _LOOKS, 1), _BETWEEN_LOOKS)
        self._descended = max(_DESCENDED, (self._first + 1) / epochs)
        self._hold = round(self._descended * epochs * batches)
        """The batches before it."""
        self._between_checks = max((epochs * batches - self._hold) // _CHECKS, 1)
        self._annealing = Annealing(epochs, batches) if annealing is None else annealing
        shares = [self._annealing.mean(epoch) for epoch in range(epochs)]
        self._to_spend = sum(shares[self._first :]) * batches
        self._spent_before = [sum(shares[self._first : epoch]) * batches for epoch in range(epochs)]
        self._state = _State()

    @property
    def strength(self) -> float:
        """λ for the next batch."""
        return self._state.strength

    @property
    def reference(self) -> float | None:
        """E₀ in joules, once it is known."""
        return self._state.reference

    @property
    def target(self) -> float | None:
        """The joules that its spikes are to cost, once they are known."""
        if isinstance(self._budget, str):
            return parse_joules(self._budget) - self._fixed
        if self.reference is None:
            return None
        return max(self._budget * (self.reference + self._fixed) - self._fixed, _NOTHING)

    def needs_measurement(self, epoch: int, batch: int) -> bool:
        """Return whether `calibrate` is wanted after this batch; never after the last one of an epoch.

        Args:
            epoch: The epoch, counted from 0.
            batch: The batch in it, counted from 0.
        """
        held = epoch * self._batches + batch + 1 - self._hold
        return (
            self.reference is not None and held > 0 and held % self._between_checks == 0 and batch + 1 < self._batches
        )

    def needs_estimate(self, epoch: int, batch: int) -> bool:
        """Return whether `update` wants Ω of the sample after this batch.

        Args:
            epoch: The epoch, counted from 0.
            batch: The batch in it, counted from 0.
        """
        return self.reference is not None and (epoch * self._batches + batch) % self._between_looks == 0

    def update(self, epoch: int, batch: int, omega: float | None) -> None:
        """Choose the strength for the batch after this one.

        Args:
            epoch: The epoch, counted from 0.
            batch: The batch in it, counted from 0.
            omega: Ω of the sample where `needs_estimate` asks for it, else None.
        """
        state = self._state
        if omega is not None:
            state.omega = _log(omega)
        if state.reference is not None and state.omega is not None:
            self._control(state.reference, state.omega + state.price, epoch, batch)

    def _control(self, reference: float, log_joules: float, epoch: int, batch: int) -> None:
        """Apply the law: forecast · exp(I) · push (the equation above)."""
        state = self._state
        progress = (epoch + (batch + 1) / self._batches) / self._epochs
        share = self._wanted_share(reference, progress)
        error = log_joules - math.log(share * reference)
        now = self._annealing.share(epoch, batch)
        if progress >= self._descended:
            step = _INTEGRAL * min(max(error, -_LARGEST_ERROR), _LARGEST_ERROR) * now / self._to_spend
            state.integral = min(max(state.integral + step, -_LARGEST_INTEGRAL), _LARGEST_INTEGRAL)
        left = 1 - (self._spent_before[epoch] + self._annealing.sum(epoch, batch + 1)) / self._to_spend
        gain = min(_PROPORTIONAL / max(left, 1e-6), _LARGEST_PROPORTIONAL)
        push = min(max(1 + gain * error, _PUSH[0] if share < 1 else 0.0), _PUSH[1])
        forecast = (1 / min(share, _NEARLY_ALL) - 1) / math.exp(state.omega_at_reference)
        state.strength = forecast * math.exp(state.integral) * push

    def _wanted_share(self, reference: float, progress: float) -> float:
        """Return the share x of the reference energy that is wanted after a share of all batches."""
        target = self.target
        assert target is not None  # the reference is known
        began = self._first / self._epochs
        descended = min(max((progress - began) / (self._descended - began), 0), 1)
        return 1 / max(1 + (reference / (target * self._aim) - 1) * descended, _NOTHING)

    def calibrate(self, joules: float, omega: float) -> None:
        """Take note of the price of Ω: the joules on validation images per unit of Ω of the sample.

        Args:
            joules: What the network spends now per validation image.
            omega: Its Ω of the sample.
        """
        self._state.omega = _log(omega)
        self._state.price = _log(joules) - self._state.omega

    def finish_epoch(self, epoch: int, joules: float, omega: float) -> None:
        """Calibrate after an epoch; at the end of the first stretch, take note of the reference energy.

        Args:
            epoch: The epoch, counted from 0.
            joules: What the network spends per validation image.
            omega: Its Ω of the sample.

        Raises:
            PicojouleError: If the network spends nothing at the end of the first stretch.
        """
        self.calibrate(joules, omega)
        state = self._state
        if state.reference is None and epoch + 1 >= self._first:
            if joules == 0:
                raise PicojouleError(
                    f"the network spends nothing after {epoch + 1} of {self._epochs} epochs without a penalty, so "
                    "there is nothing to bring down to a budget: lower neuron.threshold or optimizer.lr until it fires"
                )
            state.reference = self._named_reference or joules
            state.omega_at_reference = _log(omega)
            if self._fixed and self.target == _NOTHING:
                raise PicojouleError(
                    f"a budget of {self._budget:.3g} of all that the network spends leaves nothing for spikes, for "
                    "encoder and neuron updates alone cost more: ask for more energy"
                )

    def wanted_joules(self, epoch: int) -> float | None:
        """Return the joules that are wanted at the end of an epoch.

        Args:
            epoch: The epoch, counted from 0.

        Returns:
            Joules per image; None in the first stretch.
        """
        if self.reference is None or epoch < self._first:
            return None
        return self.reference * self._wanted_share(self.reference, (epoch + 1) / self._epochs)

    def weaken(self, factor: float) -> None:
        """Go on with a lower strength, because the run went back to an earlier network.

        Args:
            factor: What the strength is multiplied by, below 1.
        """
        state = self._state
        state.integral = max(state.integral + math.log(factor), -_LARGEST_INTEGRAL)
        state.strength *= factor

    def state_dict(self) -> dict[str, Any]:
        """Return the state in plain types, as a checkpoint stores it."""
        return dataclasses.asdict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a stored state.

        Args:
            state: What `state_dict` gave.
        """
        self._state = _State(**state)


def _log(value: float) -> float:
    return math.log(max(value, _NOTHING))
