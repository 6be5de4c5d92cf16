"""Budget, guard and a first strength for training loops of one's own, in three lines: create, charge, step.

    budget = pj.Budget(net, images[:200], "30%", updates=epochs * len(loader))
    ...
        loss = F.cross_entropy(logits, labels) + budget(activity)      # activity: what pj.watch recorded
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        budget.step()

The law is that of recipes (`budget`), with all updates of the loop in the place of its epochs.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.energy.hardware import DEFAULT, PriceList
from picojoule.energy.hardware import get as price_list
from picojoule.energy.meter import EnergyMeter
from picojoule.energy.units import format_joules
from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import BatchNorm
from picojoule.penalty import Penalty, PenaltyKind
from picojoule.spikes.activity import Activity
from picojoule.spikes.watch import watch
from picojoule.synapses.snapshot import unchanged
from picojoule.synapses.table import Synapses
from picojoule.synapses.trace import trace
from picojoule.training.budget.batch_norm import by_batch_statistics, recompute_running_averages
from picojoule.training.budget.control_law import ENOUGH_UPDATES, ControlLaw, tolerance
from picojoule.training.budget.guard import FLOOR, LayerGuard
from picojoule.training.loop_arguments import (
    check_inputs,
    check_number,
    check_one_number,
    check_state,
    check_steps,
    checked_batch,
    checked_budget,
)

_STRETCHES = 20
_FEWEST = 60
"""Updates, below which a budget cannot be steered: some show what the network spends, the rest bring it down."""
_SHARE = 0.1


class Guard:
    """A guard for any training loop: a penalty that never silences a layer.

    A layer near the least firing rate is not charged, and one below it is rewarded for firing. With `classes`, and the
    cross-entropy given to each call, the charge also waits until the network is better than chance, and rests when it
    has lost most of what it had learned.

    Args:
        synapses: What `picojoule.trace` gave for the network.
        classes: The number of classes.
        kind: The penalty, as `Penalty` takes it.
        floor: The least firing rate, in spikes per neuron and step.

    Raises:
        PicojouleError: An argument is not valid.

    >>> import picojoule as pj
    >>> net = nn.Sequential(nn.Linear(4, 8), pj.Spike(), nn.Linear(8, 2))
    >>> guard = Guard(pj.trace(net, torch.zeros(1, 4)), classes=2)
    >>> with pj.watch(net) as activity:
    ...     entropy = nn.functional.cross_entropy(net(torch.rand(16, 4)), torch.zeros(16, dtype=torch.long))
    >>> loss = entropy + 4.0 * guard(activity, entropy)
    >>> guard.step()
    """

    def __init__(
        self,
        synapses: Synapses,
        classes: int | None = None,
        kind: PenaltyKind = "syn",
        floor: float = FLOOR,
    ) -> None:
        if classes is not None and (type(classes) is not int or classes < 2):
            raise PicojouleError(f"classes={classes!r} is not a number of classes: give a whole number from 2 up")
        check_number("floor", floor, "a firing rate", below=1.0)
        self.penalty = Penalty(synapses, kind)
        self._floor, self._classes = floor, classes
        self._law: LayerGuard | None = None
        self._seen: list[float] = []

    def __call__(self, activity: Activity, cross_entropy: Tensor | None = None) -> Tensor:
        """Compute the guarded penalty Σ_l w_l Ω_l of a batch, to be multiplied by a strength and added to the loss.

        Args:
            activity: The spikes of one `picojoule.watch` block.
            cross_entropy: The mean cross-entropy of the batch, where `classes` were given.

        Returns:
            A scalar with a gradient.

        Raises:
            PicojouleError: The activity is that of another network, or the cross-entropy is missing or not one number.
        """
        if (cross_entropy is None) is not (self._classes is None):
            raise PicojouleError(
                "a guard with classes= needs the cross-entropy of each batch, and one without has none: give both or "
                "neither"
            )
        if cross_entropy is not None:
            check_one_number("the cross-entropy", cross_entropy, "give the mean over the batch, as it is in the loss")
        shares = self.penalty.by_layer(activity)
        law = self._guard(activity.steps)
        self._seen = law.observations(shares, 0.0 if cross_entropy is None else cross_entropy.item())
        return law.charge(shares)

    def _guard(self, steps: int) -> LayerGuard:
        if self._law is None:
            self._law = LayerGuard(self.penalty.by_layer_at_one(steps), self._floor, self._classes)
        return self._law

    def step(self) -> None:
        """Take note of the latest batch, after the optimiser's step."""
        if self._law is not None and self._seen:
            self._law.observe(self._seen)

    @property
    def holding(self) -> list[str]:
        """The layers that are near or below the least firing rate."""
        return self._law.holding if self._law is not None else []

    def state_dict(self) -> dict[str, Any]:
        """Return the state in plain types, to be saved with a checkpoint."""
        return self._law.state_dict() if self._law is not None else {}

    def load_state_dict(self, state: Mapping[str, Any], steps: int = 1) -> None:
        """Go on from a stored state.

        Args:
            state: What `state_dict` gave.
            steps: Time steps of a sample.

        Raises:
            PicojouleError: It is no state of a guard, or one of another network.
        """
        if state == {}:  # of a guard that has seen nothing
            return
        law = self._guard(steps)
        check_state("guard", state, law.state_dict())
        if state["rates"] is not None and len(state["rates"]) != len(law.weights):
            raise PicojouleError(
                f"this state guards {len(state['rates'])} layers and the network has {len(law.weights)}: load it into "
                "a guard of the network it came from"
            )
        law.load_state_dict(state)


class Budget:
    """An energy budget for any training loop: the strength of the penalty is found from update to update.

    The first tenth of the updates shows what the network spends without a penalty; then the strength brings it down to
    the budget and holds it there. What it spends is measured on `sample`, always the same, every few updates. The
    learning rate should fall to zero at the end, or the network does not come to rest on the budget. A network that
    is not within 3 % of it after the last update is told of by a warning.

    Args:
        net: The network.
        sample: A few hundred training inputs as the network takes them, on which its energy is measured, and the
            averages of its batch norms; with `steps`, inputs over time are [T, B, …].
        budget: A share of the unpenalised energy (0.3 or "30%"), or joules ("2 uJ").
        updates: How often `step` will be called in all.
        steps: Time steps that one call of the network holds.
        hardware: The price list.
        kind: The penalty, as `Penalty` takes it.
        classes: As for `Guard`.

    Raises:
        PicojouleError: An argument is not valid, there are too few updates, or the network cannot be traced.

    >>> import picojoule as pj
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), pj.Spike(), nn.Linear(8, 2))
    >>> budget = Budget(net, torch.rand(64, 4), "50%", updates=100)
    >>> with pj.watch(net) as activity:
    ...     loss = net(torch.rand(16, 4)).square().mean()
    >>> loss = loss + budget(activity)
    >>> budget.step()
    """

    def __init__(
        self,
        net: nn.Module,
        sample: Tensor,
        budget: float | str,
        updates: int,
        *,
        steps: int = 1,
        hardware: str | PriceList = DEFAULT,
        kind: PenaltyKind = "syn",
        classes: int | None = None,
    ) -> None:
        wanted = checked_budget(budget)
        if type(updates) is not int or updates < _FEWEST:
            raise PicojouleError(
                f"updates={updates!r} are too few to bring a network down to a budget: take {_FEWEST} or more, by more "
                "epochs or smaller batches"
            )
        check_steps(steps)
        check_inputs("sample", sample)
        if updates < ENOUGH_UPDATES:
            logging.getLogger("picojoule").warning(
                "a budget needs about %d updates to be met, and this loop has %d: take more epochs or smaller batches, "
                "or it may miss by far",
                ENOUGH_UPDATES,
                updates,
            )
        self.net, self._sample, self._steps, self._hardware = net, sample, steps, price_list(hardware)
        self.synapses = trace(net, one_sample(sample, steps), steps=steps)
        self.guard = Guard(self.synapses, classes, kind)
        self._law = ControlLaw(wanted, _STRETCHES, updates // _STRETCHES)
        self._length, self._update, self._updates = updates // _STRETCHES, 0, updates
        self._asked = {"budget": wanted, "updates": updates}

    @property
    def strength(self) -> float:
        """The strength λ of the next update."""
        return self._law.strength

    @property
    def target(self) -> float | None:
        """The joules that the network is to spend, once they are known."""
        return self._law.target

    @property
    def reference(self) -> float | None:
        """What it spent without a penalty, in joules, once it is known."""
        return self._law.reference

    def __call__(self, activity: Activity, cross_entropy: Tensor | None = None) -> Tensor:
        """Compute λ times the guarded penalty of a batch, to be added to the loss.

        Args:
            activity: The spikes of one `picojoule.watch` block.
            cross_entropy: As for `Guard`.

        Returns:
            A scalar with a gradient.
        """
        charge = self.guard(activity, cross_entropy)
        return self.strength * charge if self.strength else 0.0 * charge.detach()

    def step(self) -> None:
        """Update the strength, after the optimiser's step."""
        self.guard.step()
        last = _STRETCHES * self._length - 1
        epoch, batch = divmod(min(self._update, last), self._length)
        self._update += 1
        self._law.update(epoch, batch, self._omega() if self._law.needs_estimate(epoch, batch) else None)
        if batch == self._length - 1:
            self._refresh_batch_norm()
            self._law.finish_epoch(epoch, self.joules(), self._omega())
        elif self._law.needs_measurement(epoch, batch):
            self._refresh_batch_norm()
            self._law.calibrate(self.joules(), self._omega())
        if self._update == self._updates:
            self._judge()

    def _judge(self) -> None:
        """Warn, after the last update, of a network that does not rest on the budget."""
        target, reference = self.target, self.reference
        if target is None or reference is None:
            return
        self._refresh_batch_norm()
        joules = self.joules()
        if tolerance(target, reference) < joules - target or joules < min(target, reference) - tolerance(
            target, reference
        ):
            logging.getLogger("picojoule").warning(
                "the network spends %s, %+.1f %% of the budget of %s: let the learning rate fall to zero at the end, "
                "or take more updates",
                format_joules(joules),
                100 * (joules / target - 1),
                format_joules(target),
            )

    def _refresh_batch_norm(self) -> None:
        """Recompute the running averages of batch norms on the sample, for the network as it is now.

        Evaluation goes by these averages. As training leaves them they follow the last few batches, whose noise alone
        moves the energy by several percent. Before the reference energy is known they stay as they are.
        """
        if self._law.reference is None:
            return
        with _same_modes(self.net) as frozen:
            recompute_running_averages(self.net, [self._sample], frozen)

    @torch.no_grad()
    def _omega(self) -> float:
        """Measure Ω of the sample by its own batch-norm statistics."""
        with (
            _same_modes(self.net) as frozen,
            by_batch_statistics(self.net, frozen),
            watch(self.net, self._steps) as activity,
        ):
            self.net(self._sample)
        return self.guard.penalty(activity).item()

    @torch.no_grad()
    def joules(self) -> float:
        """Measure what the network spends on the sample now, in evaluation mode.

        Returns:
            Joules per sample.
        """
        with _same_modes(self.net):
            self.net.eval()
            with watch(self.net, self._steps) as activity:
                self.net(self._sample)
        meter = EnergyMeter(self.synapses, self._hardware)
        meter.update(activity)
        return meter.compute().joules

    @property
    def met(self) -> bool:
        """Whether the network now spends what was asked for, within 3 % of it (0.6 % of the unpenalised energy)."""
        if self.target is None or self.reference is None:
            return False
        return self.joules() <= self.target + tolerance(self.target, self.reference)

    def state_dict(self) -> dict[str, Any]:
        """Return the state in plain types, to be saved with a checkpoint."""
        law, guard = self._law.state_dict(), self.guard.state_dict()
        return {"update": self._update, "law": law, "guard": guard, **self._asked}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a stored state.

        Args:
            state: What `state_dict` gave.

        Raises:
            PicojouleError: It is no state of a budget, or one of another budget, number of updates or network.
        """
        check_state("budget", state, self.state_dict(), optional=frozenset(self._asked))
        check_state("budget", state["law"], self._law.state_dict())
        for name, own in self._asked.items():
            if state.get(name, own) != own:
                raise PicojouleError(
                    f"this state is of a budget with {name}={state[name]!r}, and this one has {own!r}: make the budget "
                    "with the same arguments as the one that was saved"
                )
        self.guard.load_state_dict(state["guard"], self._steps)
        self._law.load_state_dict(state["law"])
        self._update = state["update"]


@contextlib.contextmanager
def _same_modes(net: nn.Module) -> Iterator[list[nn.Module]]:
    """Give each module its mode back after the block, and yield the batch norms that are frozen in training."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        yield [module for module, on in modes if net.training and not on and isinstance(module, BatchNorm)]
    finally:
        for module, on in modes:
            module.training = on


def one_sample(sample: Tensor, steps: int) -> Tensor:
    """Take one input; of data over time, [T, B, D] or [T, B, C, H, W], all of its steps."""
    over_time = sample.dim() == 5 or (sample.dim() == 3 and len(sample) == steps)
    return sample[:, :1] if steps > 1 and over_time else sample[:1]


def suggest_strength(
    net: nn.Module,
    batch: tuple[Tensor, Tensor],
    loss: Callable[[Tensor, Tensor], Tensor] = nn.functional.cross_entropy,
    *,
    steps: int = 1,
    kind: PenaltyKind = "syn",
    share: float = _SHARE,
) -> float:
    """Suggest a first strength for the normalised penalty: that at which its gradient is a share of the loss's.

        λ = share · ‖∇ loss‖ / ‖∇ Ω‖,  the gradients by all weights, on one batch

    The network comes back as it was. Ask it of the network before it is trained: later the loss's gradient is small. A
    first strength is where to begin; raise it with a schedule (`picojoule.schedule`), or name the energy and take a
    `Budget`.

    Args:
        net: The network, untrained, with its neurons firing.
        batch: Inputs and labels.
        loss: The loss of outputs and labels; [T, B, classes] is averaged over time first.
        steps: Time steps that one call of the network holds.
        kind: The penalty, as `Penalty` takes it.
        share: How strong the penalty's gradient is to be, as a share of the loss's.

    Returns:
        The strength.

    Raises:
        PicojouleError: The network cannot be traced, an argument is not valid, or there is no gradient.

    >>> import picojoule as pj
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), pj.Spike(), nn.Linear(8, 2))
    >>> suggest_strength(net, (torch.rand(32, 4), torch.arange(32) % 2)) > 0
    True
    """
    check_number("share", share, "a share of the loss's gradient")
    check_steps(steps)
    inputs, labels = checked_batch(batch)
    if not torch.is_grad_enabled():
        raise PicojouleError("a strength is suggested from gradients, which are off here: call it outside no_grad")
    penalty = Penalty(trace(net, one_sample(inputs, steps), steps=steps), kind)
    weights = [weight for weight in net.parameters() if weight.requires_grad]
    if not weights:
        raise PicojouleError(
            "all weights of the network are frozen, so no strength can be suggested: let those that are to be trained "
            "require gradients"
        )
    with unchanged(net):
        with watch(net, steps) as activity:
            outputs = net(inputs)
        lost = loss(outputs.mean(0) if outputs.dim() == 3 else outputs, labels)
        check_one_number("the loss", lost, "let it be the mean over the batch")
        wanted, charged = (_norm(value, weights) for value in (lost, penalty(activity)))
    if not wanted:
        raise PicojouleError(
            "the loss has no gradient on this batch, so no strength can be suggested: compute it from the outputs by "
            "weights that require gradients"
        )
    if not charged:
        raise PicojouleError(
            "the penalty has no gradient on this batch, so no strength can be suggested: let the network fire first, "
            "with a lower threshold or larger weights"
        )
    return share * wanted / charged


def _norm(value: Tensor, weights: list[nn.Parameter]) -> float:
    if not value.requires_grad:
        return 0.0
    gradients = torch.autograd.grad(value, weights, retain_graph=True, allow_unused=True)
    return math.sqrt(sum(g.double().square().sum().item() for g in gradients if g is not None))
