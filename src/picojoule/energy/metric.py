"""The energy meter as a metric of torchmetrics, which adds up over processes and goes into a `MetricCollection`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from picojoule.energy.hardware import DEFAULT, PriceList
from picojoule.energy.meter import EnergyMeter
from picojoule.energy.report import EnergyReport
from picojoule.spikes.activity import Activity
from picojoule.synapses.table import Synapses


class EnergyMetric(Metric):
    """A `torchmetrics.Metric` of the energy that a network spends: exact counts, summed over all processes.

    Args:
        synapses: What `picojoule.trace` gave for the network.
        hardware: The name of a price list, or one of your own.
        **kwargs: Those of `torchmetrics.Metric`.

    Raises:
        PicojouleError: `synapses` is something else, or the price list is unknown.

    >>> import picojoule as pj
    >>> net = torch.nn.Sequential(pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(4, 3))
    >>> metric = EnergyMetric(pj.trace(net, torch.zeros(1, 4)))
    >>> for image in torch.tensor([[[1.0, 0.0, 1.0, 0.0]], [[1.0, 1.0, 1.0, 1.0]]]):
    ...     with pj.watch(net) as activity:
    ...         _ = net(image)
    ...     metric.update(activity)
    >>> metric.compute()["synops"].item()
    9.0
    """

    higher_is_better = False
    is_differentiable = False
    full_state_update = False

    def __init__(self, synapses: Synapses, hardware: str | PriceList = DEFAULT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._meter = EnergyMeter(synapses, hardware)
        head, *counts = self._meter.state_dict().values()
        self.add_state("samples", torch.zeros_like(head[0]), dist_reduce_fx="sum")
        self.add_state("steps", torch.zeros_like(head[0]), dist_reduce_fx="max")
        for number, count in enumerate(counts):
            self.add_state(f"counts{number}", torch.zeros_like(count), dist_reduce_fx="sum")

    def update(self, activity: Activity) -> None:
        """Add one batch.

        Args:
            activity: The spikes of one `picojoule.watch` block, which has ended.

        Raises:
            PicojouleError: As `EnergyMeter.update`.
        """
        self._meter.load_state_dict(self._counted())
        self._meter.update(activity)
        head, *counts = self._meter.state_dict().values()
        self.samples, self.steps = (value.to(self.device) for value in head)
        for number, count in enumerate(counts):
            setattr(self, f"counts{number}", count.to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """Price all that was counted, in all processes.

        Returns:
            Joules, synaptic operations, mean firing rate and share of dead neurons, per sample; `total_joules`, with
            encoder and neuron updates, where the price list covers the encoder.

        Raises:
            PicojouleError: Nothing was counted yet.
        """
        report = self.report()
        values = {
            "joules": report.joules,
            "synops": report.synops,
            "rate": report.rate_mean,
            "dead_rate": report.dead_rate,
        }
        if report.total_joules is not None:
            values["total_joules"] = report.total_joules
        return {name: torch.tensor(value, dtype=torch.float64, device=self.device) for name, value in values.items()}

    def report(self) -> EnergyReport:
        """Return the whole report of what was counted: of all processes inside `compute`, else of this one.

        Raises:
            PicojouleError: Nothing was counted yet.
        """
        self._meter.load_state_dict(self._counted())
        return self._meter.compute()

    def _counted(self) -> dict[str, Tensor]:
        names = [name for name in self._meter.state_dict() if name != "samples_and_steps"]
        head = torch.stack([self.samples, self.steps])
        return {"samples_and_steps": head, **{name: getattr(self, f"counts{i}") for i, name in enumerate(names)}}
