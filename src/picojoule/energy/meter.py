"""The energy meter: synaptic operations, joules, firing rates and dead neurons, exact and streaming.

Conventions. Everything is **per sample**, over all T time steps of it:

    synops(l) = E[Σ_t Σ_i ψ_{l,i} s_{l,i,t}],      joules = E_AC · Σ_l synops(l)

with no further factor T; a price list may price each spike and the synapses of each target apart (`hardware`). Where
spikes are fed back into the next step, ψ depends on the step: those of the last one are not. What no spike changes
(`update_joules`) is never part of `joules`. A spike count above one counts that many times. Synapses fed by anything
but spikes are the *encoder*: multiply-accumulates, priced apart and never part of `joules`. A rate is spikes per neuron
and step; a dead neuron is silent in every step of every sample shown. Counts are kept as integers (int64), never as
float32 sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import overload

import torch
from torch import Tensor

from picojoule.energy.hardware import DEFAULT, PriceList
from picojoule.energy.hardware import get as price_list
from picojoule.energy.report import AnalogEnergy, EnergyReport, LayerEnergy, WeightEnergy
from picojoule.energy.side_by_side import SideBySide
from picojoule.errors import PicojouleError
from picojoule.spikes.activity import Activity, check_activity
from picojoule.spikes.sums import summed_over_batch
from picojoule.synapses.table import Synapses


class EnergyMeter:
    """A meter that adds up the activity of any number of batches, in exact integers, and prices it.

    With ψ from `synapses` and E_AC from the price list, per sample:

        synops(l) = E[Σ_t Σ_i ψ_{l,i} s_{l,i,t}],      joules = E_AC · Σ_l synops(l)

    Args:
        synapses: What `picojoule.trace` gave for the network.
        hardware: The name of a price list, or one of your own.

    Raises:
        PicojouleError: `synapses` is something else, or the price list is unknown.

    >>> import picojoule as pj
    >>> net = torch.nn.Sequential(pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(4, 3))
    >>> meter = EnergyMeter(pj.trace(net, torch.zeros(1, 4)))
    >>> with pj.watch(net) as activity:
    ...     _ = net(torch.tensor([[1.0, 0.0, 1.0, 0.0]]))
    >>> meter.update(activity)
    >>> report = meter.compute()
    >>> report.synops, f"{report.joules * 1e12:.1f} pJ"
    (6.0, '5.4 pJ')
    """

    def __init__(self, synapses: Synapses, hardware: str | PriceList = DEFAULT) -> None:
        if not isinstance(synapses, Synapses):
            raise PicojouleError(
                f"a meter needs the Synapses that picojoule.trace gives, not {type(synapses).__name__}"
            )
        self.synapses = synapses
        self.prices = price_list(hardware)
        self.reset()

    def reset(self) -> None:
        """Forget everything that was counted."""
        self._samples = 0
        self._steps: int | None = None
        self._counts = {
            name: torch.zeros(
                layer.shape if layer.by_step is None else (len(layer.kinds), *layer.shape), dtype=torch.int64
            )
            for name, layer in self.synapses.items()
        }
        """Spikes of each neuron; for each kind of step where ψ depends on it."""

    @torch.no_grad()
    def update(self, activity: Activity) -> None:
        """Add one batch; nothing is added if any layer of it cannot be counted.

        Args:
            activity: The spikes of one `picojoule.watch` block.

        Raises:
            PicojouleError: A layer is missing, has another shape, or emitted values that are not whole numbers of
                spikes; or the number of time steps differs from that of earlier batches.
        """
        check_activity("a meter", activity)
        if self._steps not in (None, activity.steps):
            raise PicojouleError(
                f"this meter has counted samples of {self._steps} time steps and got {activity.steps}: use one meter "
                "for each number of steps"
            )
        made = self.synapses.made
        emitted = activity.spikes({name: layer.shape for name, layer in self.synapses.items()}, made)
        counts = {name: self._counted(name, by_step, activity) for name, by_step in emitted.items()}
        self._steps = activity.steps
        self._samples += len(emitted[next(name for name in emitted if name not in made)][0])
        for name, count in counts.items():
            self._counts[name] += count

    def _counted(self, name: str, by_step: list[Tensor], activity: Activity) -> Tensor:
        """Count the spikes of each neuron in one batch."""
        layer, binary = self.synapses[name], activity.is_binary(name)
        if layer.by_step is None:
            return _whole_counts(name, by_step, binary=binary)
        kinds = layer.kinds_of(activity.steps, activity.network_calls, stream=activity.stream)
        counts = torch.zeros((len(layer.kinds), *layer.shape), dtype=torch.int64)
        for kind in set(kinds):
            chosen = [spikes for spikes, each in zip(by_step, kinds, strict=True) if each == kind]
            counts[kind] = _whole_counts(name, chosen, binary=binary)
        return counts

    def merge(self, other: EnergyMeter) -> None:
        """Add what another meter of the same network has counted, for instance in another process.

        One that has counted nothing adds nothing. Between processes, gather each one's `state_dict` and merge them: the
        sum of two states is not a state, because the number of time steps is in each.

        Args:
            other: The other meter, which stays as it is.

        Raises:
            PicojouleError: It is no meter, or one of another network, ψ convention or number of time steps.

        >>> import picojoule as pj
        >>> net = torch.nn.Sequential(pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(4, 3))
        >>> synapses = pj.trace(net, torch.zeros(1, 4))
        >>> here, there, idle = EnergyMeter(synapses), EnergyMeter(synapses), EnergyMeter(synapses)
        >>> for meter in (here, there):
        ...     with pj.watch(net) as activity:
        ...         _ = net(torch.ones(5, 4))
        ...     meter.update(activity)
        >>> for other in (there, idle):
        ...     here.merge(other)
        >>> here.compute().samples
        10
        """
        if not isinstance(other, EnergyMeter):
            raise PicojouleError(
                f"merge needs another EnergyMeter, not {type(other).__name__}: load a state into one with "
                "load_state_dict before"
            )
        same = (self.synapses.psi, self.synapses.keys()) == (other.synapses.psi, other.synapses.keys()) and all(
            len(layer.kinds) == len(other.synapses[name].kinds)
            and all(
                torch.equal(one.fan_out, two.fan_out)
                for one, two in zip(
                    (layer, *layer.kinds), (other.synapses[name], *other.synapses[name].kinds), strict=True
                )
            )
            for name, layer in self.synapses.items()
        )
        if not same or (None not in (self._steps, other._steps) and self._steps != other._steps):
            raise PicojouleError(
                "the meters differ in network, ψ convention or number of time steps: merge only meters that agree in "
                "them"
            )
        self._steps = self._steps if self._steps is not None else other._steps
        self._samples += other._samples
        for name in self._counts:
            self._counts[name] += other._counts[name]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the counts as integer tensors, to be sent or saved."""
        head = torch.tensor([self._samples, self._steps or 0])
        return {"samples_and_steps": head, **{f"counts.{name}": count.clone() for name, count in self._counts.items()}}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take over what `state_dict` of a meter of the same network gave.

        Args:
            state: The counts, in place of those that this meter has.

        Raises:
            PicojouleError: It is not a state of a meter of this network.
        """
        if not isinstance(state, Mapping) or not all(
            isinstance(value, Tensor) and value.dtype == torch.int64 for value in state.values()
        ):
            raise PicojouleError("a meter's state is a dictionary of int64 tensors: give what state_dict() gave")
        own = self.state_dict()
        if {key: value.shape for key, value in state.items()} != {key: value.shape for key, value in own.items()}:
            raise PicojouleError(
                "this state belongs to a meter of another network: load it into a meter of the network it came from"
            )
        samples, steps = state["samples_and_steps"].tolist()
        if samples < 0 or steps < 0 or (samples and not steps) or any(bool((v < 0).any()) for v in state.values()):
            raise PicojouleError(
                f"this state has {samples} samples of {steps} time steps, or negative counts: "
                "give what state_dict() gave"
            )
        self._samples, self._steps = samples, steps or None
        self._counts = {name: state[f"counts.{name}"].cpu().clone() for name in self._counts}

    @overload
    def compute(self, hardware: str | PriceList | None = None) -> EnergyReport: ...

    @overload
    def compute(
        self, hardware: list[str | PriceList] | list[str] | list[PriceList] | tuple[str | PriceList, ...]
    ) -> SideBySide: ...

    def compute(self, hardware: object = None) -> EnergyReport | SideBySide:
        """Price everything that was counted so far.

        Args:
            hardware: A price list to be used instead of this meter's own, or a sequence of them, side by side.

        Returns:
            Synaptic operations, joules, rates and dead neurons, by layer and in total, per sample; for several price
            lists, a `SideBySide` of such reports.

        Raises:
            PicojouleError: Nothing was counted yet, or the price list is unknown.
        """
        if not self._samples or self._steps is None:
            raise PicojouleError("nothing was counted yet: call update(activity) before compute()")
        if hardware is None or isinstance(hardware, str | PriceList):
            return self._report(self.prices if hardware is None else price_list(hardware), self._steps)
        if not isinstance(hardware, Sequence):
            raise PicojouleError(
                f"hardware is a name, a PriceList or a sequence of them, not {type(hardware).__name__}: name one "
                "chip or give a list"
            )
        if not hardware:
            raise PicojouleError("an empty list of price lists prices nothing: name one or more")
        steps, several = self._steps, [price_list(each) for each in hardware]
        return SideBySide(tuple(self._report(prices, steps) for prices in several))

    def _report(self, prices: PriceList, steps: int) -> EnergyReport:
        layers = []
        for name, layer in self.synapses.items():
            by_kind = [self._counts[name]] if layer.by_step is None else list(self._counts[name])
            counts = torch.stack(by_kind).sum(0)
            kinds = list(zip(layer.kinds, by_kind, strict=True))
            layers.append(
                LayerEnergy(
                    name=name,
                    neurons=layer.neurons,
                    synops=sum((kind.fan_out * n).sum().item() for kind, n in kinds) / self._samples,
                    joules=0.0,
                    rate=None if layer.relay else counts.sum().item() / (layer.neurons * self._samples * steps),
                    dead=0 if layer.relay else int((counts == 0).sum()),
                    spikes=counts.sum().item() / self._samples,
                    synops_by_target=tuple(
                        sum((kind.targets[i].fan_out * n).sum().item() for kind, n in kinds) / self._samples
                        for i in range(len(layer.targets))
                    ),
                    layer=layer,
                )
            )
        report = EnergyReport(
            samples=self._samples,
            steps=steps,
            psi=self.synapses.psi,
            prices=prices,
            layers=tuple(layers),
            encoder_macs=self.synapses.encoder_macs * steps / self.synapses.steps,
            dense_macs=self.synapses.dense_macs,
            weights=tuple(
                WeightEnergy(each, 0.0, 0.0, each.encoder_macs * steps / self.synapses.steps, None, None)
                for each in self.synapses.weights
            ),
            analog=tuple(
                AnalogEnergy(entry.name, entry.macs * steps / self.synapses.steps, None)
                for entry in self.synapses.analog
            ),
        )
        return report.priced(prices)


def _whole_counts(name: str, by_step: list[Tensor], *, binary: bool) -> Tensor:
    """Sum Σ_t Σ_b s as int64, looking at the values one by one: two halves of a spike must not pass as one."""
    if not binary and any(s.is_floating_point() and not torch.equal(s, s.round()) for s in by_step):
        raise PicojouleError(
            f"the layer {name!r} emitted values that are not whole numbers of spikes: if each is worth something else "
            "than 1, declare it with unit=; else let it emit spikes and put the scale into the weights"
        )
    sums = [summed_over_batch(spikes, binary=binary).cpu() for spikes in by_step]
    if not all((s < 2**53).all() for s in sums):
        raise PicojouleError(
            f"the layer {name!r} emitted infinite values, or 2^53 spikes and more in one neuron, which cannot be "
            "counted exactly: check what it emits"
        )
    return torch.stack(sums).long().sum(0)
