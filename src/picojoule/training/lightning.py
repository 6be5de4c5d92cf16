"""The penalty, the budget and the meter as a callback of Lightning: nothing in the user's module changes."""

from __future__ import annotations

import importlib
import sys
from contextlib import ExitStack, suppress
from typing import Any

from torch import Tensor, nn

from picojoule.energy.hardware import DEFAULT, PriceList
from picojoule.energy.metric import EnergyMetric
from picojoule.energy.report import EnergyReport
from picojoule.errors import PicojouleError
from picojoule.io.extras import explained
from picojoule.penalty import Penalty, PenaltyKind
from picojoule.spikes.activity import Activity
from picojoule.spikes.watch import watch
from picojoule.synapses.trace import trace
from picojoule.training.any_loop import Budget, one_sample
from picojoule.training.loop_arguments import check_inputs, check_steps


def _callback_class() -> Any:
    """Find the base class in the package that the user has: `lightning` or `pytorch_lightning`."""
    both = ("lightning.pytorch", "pytorch_lightning")
    for name in sorted(both, key=lambda name: name not in sys.modules):
        try:
            return importlib.import_module(name).Callback
        except ModuleNotFoundError as error:
            fault = error
    raise explained(ModuleNotFoundError(str(fault), name="pytorch_lightning"), "picojoule.EnergyCallback") from None


_Callback: Any = _callback_class()


class EnergyCallback(_Callback):  # type: ignore[misc]  # one of two packages has it
    """A Lightning callback that charges for spikes in training, and measures the energy in validation and test.

    It adds the penalty to the loss of `training_step` before its gradient is taken, and logs through whatever loggers
    the trainer has: `train_strength`, and `val_joules`, `val_synops`, `val_rate`, `val_dead_rate` and
    `val_total_joules` after each validation (`test_…` after a test).

    Args:
        sample: A few hundred inputs as the network takes them; for a strength or the meter alone, one is enough.
        strength: The strength of the normalised penalty; 0 only measures.
        budget: In its place a budget, as `picojoule.Budget` takes it; over all batches of `trainer.fit`.
        steps: Time steps that one call of the network holds.
        hardware: The price list.
        kind: The penalty, as `picojoule.Penalty` takes it.
        classes: For a budget, as `picojoule.Guard` takes it; the loss is then the cross-entropy.

    Raises:
        PicojouleError: Lightning is not installed, an argument is not valid, or both strength and budget are given.

    >>> import torch, picojoule as pj
    >>> callback = pj.EnergyCallback(torch.rand(1, 4), strength=2.0)
    >>> callback.report is None
    True
    """

    def __init__(
        self,
        sample: Tensor,
        strength: float = 0.0,
        budget: float | str | None = None,
        *,
        steps: int = 1,
        hardware: str | PriceList = DEFAULT,
        kind: PenaltyKind = "syn",
        classes: int | None = None,
    ) -> None:
        super().__init__()
        check_inputs("sample", sample)
        check_steps(steps)
        if budget is not None and strength:
            raise PicojouleError("strength and budget exclude each other: give one of them")
        self._sample, self._strength, self._steps = sample, strength, steps
        self._hardware, self._kind, self._classes, self._wanted = hardware, kind, classes, budget
        self.budget: Budget | None = None
        """The budget, once training has begun."""
        self.report: EnergyReport | None = None
        """What the latest validation or test measured in this process."""
        self._metric: EnergyMetric | None = None
        self._penalty: Penalty | None = None
        self._stored: dict[str, Any] | None = None
        self._open = ExitStack()
        self._activity: Activity | None = None
        self._updates = 0

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """Trace the network.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
            stage: What Lightning is about to do.
        """
        sample = self._sample.to(pl_module.device)
        synapses = trace(pl_module, one_sample(sample, self._steps), steps=self._steps)
        self._metric = EnergyMetric(synapses, self._hardware)
        self._penalty = Penalty(synapses, self._kind)

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the budget, for as many updates as the trainer is to make.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.

        Raises:
            PicojouleError: If the number of updates is not known, or a budget cannot be met with so many.
        """
        if self._wanted is None:
            return
        updates, sample = trainer.estimated_stepping_batches, self._sample.to(pl_module.device)
        if not isinstance(updates, int):
            raise PicojouleError("a budget needs the number of updates: give the trainer max_epochs or max_steps")
        self.budget = Budget(
            pl_module,
            sample,
            self._wanted,
            updates,
            steps=self._steps,
            hardware=self._hardware,
            kind=self._kind,
            classes=self._classes,
        )
        if self._stored is not None:
            self.budget.load_state_dict(self._stored)

    def _abandon(self) -> None:
        """End a block in which the network may not have run, because something failed before."""
        with suppress(PicojouleError):
            self._open.close()
        self._activity = None

    def _begin(self, module: nn.Module) -> None:
        self._abandon()
        self._activity = self._open.enter_context(watch(module, self._steps))

    def _seen(self) -> Activity:
        self._open.close()
        assert self._activity is not None  # a batch has begun
        return self._activity

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Begin to watch.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
            batch: The batch.
            batch_idx: The number of the batch in its epoch.
        """
        self._updates = trainer.global_step
        if self._strength or self._wanted is not None:
            self._begin(pl_module)

    def on_before_backward(self, trainer: Any, pl_module: Any, loss: Tensor) -> None:
        """Add the charge to the loss.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
            loss: The loss of this batch, to which the charge is added.
        """
        if self._activity is None or self._penalty is None:
            return
        activity, self._activity = self._seen(), None
        if self.budget is not None:
            charge = self.budget(activity, None if self._classes is None else loss.detach())
            strength = self.budget.strength
        else:
            charge, strength = self._strength * self._penalty(activity), self._strength
        scaler = getattr(
            trainer.precision_plugin, "scaler", None
        )  # of float16, by which the loss is multiplied already
        loss.add_(charge * (1.0 if scaler is None else scaler.get_scale()) / trainer.accumulate_grad_batches)
        pl_module.log("train_strength", strength)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Update the strength after each update of the weights.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
            outputs: What the step returned.
            batch: The batch.
            batch_idx: The number of the batch in its epoch.
        """
        self._abandon()
        if self.budget is not None and trainer.global_step > self._updates:
            self.budget.step()

    def _measure(self) -> None:
        if self._metric is not None:
            self._metric.update(self._seen())
        self._activity = None

    def _log(self, pl_module: Any, stage: str) -> None:
        assert self._metric is not None  # it was set up
        self.report = self._metric.report()
        values = self._metric.compute()
        pl_module.log_dict({f"{stage}_{name}": value.float() for name, value in values.items()})
        self._metric.reset()

    def on_validation_batch_start(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        """Begin to watch.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
        """
        self._begin(pl_module)

    def on_validation_batch_end(self, trainer: Any, pl_module: Any, *_: Any, **__: Any) -> None:
        """Count the batch.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
        """
        self._measure()

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what the network spends.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
        """
        self._log(pl_module, "val")

    on_test_batch_start = on_validation_batch_start
    on_test_batch_end = on_validation_batch_end

    def on_test_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Log what the network spends.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
        """
        self._log(pl_module, "test")

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Leave nothing on the network.

        Args:
            trainer: Lightning's trainer.
            pl_module: The network that is trained.
            exception: What ended the training.
        """
        self._abandon()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the budget, which Lightning puts into its checkpoints."""
        return {} if self.budget is None else {"budget": self.budget.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a checkpoint.

        Args:
            state_dict: What `state_dict` gave.
        """
        self._stored = state_dict.get("budget")
