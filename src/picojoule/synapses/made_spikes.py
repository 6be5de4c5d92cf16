"""Spikes that no module emits: relays made by gates and functional max pools, and the pairs that products count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from picojoule.errors import Clause, PicojouleError
from picojoule.spikes.layout import LayerLayout, PoolLayout, TimeLayout
from picojoule.synapses.expression import Expression, Generalised, Pairs, Replay, sources
from picojoule.synapses.recording import MadeCall, Recording


@dataclass(frozen=True, eq=False)
class MadeSpikes:
    """How the spikes of an entry are made of those that others emit."""

    name: str
    calls: tuple[Expression, ...]
    """One for each call in the traced forward pass."""
    steps: int
    """Time steps of the traced forward pass."""
    samples: int | None
    """The only number of samples that it holds for; None if it holds for any."""
    layout: TimeLayout | None
    """Where the time steps are in what it makes; None for a product, which is a number for all of them."""
    at_one: int = 0
    """For a product: the pairs that meet in one sample and step if everything fires once."""

    @property
    def parents(self) -> tuple[str, ...]:
        """The layers and relays whose spikes take part, each once."""
        return tuple(dict.fromkeys(source.name for call in self.calls for source in sources(call)))

    @property
    def _runs_by_step(self) -> bool:
        """Whether it runs once in every time step, on spikes of that step alone."""
        alone = all(len({source.call for source in sources(call)}) == 1 for call in self.calls)
        return alone and len(self.calls) == self.steps

    def values(
        self,
        emitted: Callable[[str], Sequence[Tensor]],
        layout: TimeLayout,
        samples: int,
        replays: list[Replay],
        network_calls: int | None = None,
    ) -> list[Tensor]:
        """Compute what is made, call by call.

        Args:
            emitted: What each parent emitted, call by call.
            layout: The layout in time of the spikes that were recorded.
            samples: The number of samples.
            replays: One for each call of the network, which all entries share; empty at first.
            network_calls: How often the network was called, if that is known.

        Returns:
            A tensor for each call.

        Raises:
            PicojouleError: The network was traced with another number of time steps or samples.
        """
        repeats, rest = divmod(layout.steps, self.steps)
        one_call = layout.one_call_holds_all_steps or (network_calls not in (None, repeats) and not self._runs_by_step)
        if rest or (repeats > 1 and one_call):
            raise PicojouleError(
                f"{self.name!r} was traced with {self.steps} time steps in a call and cannot be counted in "
                f"{layout.steps}: trace the model with steps={layout.steps}"
            )
        if self.samples not in (None, samples):
            raise PicojouleError(
                f"{self.name!r} was traced with {self.samples} samples, the only number that the model takes, and "
                f"cannot be counted in {samples}: use batches of {self.samples}"
            )

        def of_repeat(repeat: int) -> Callable[[str, int], Tensor]:
            def call_of(name: str, call: int) -> Tensor:
                calls = emitted(name)
                return calls[repeat * (len(calls) // repeats) + call]

            return call_of

        while len(replays) < repeats:
            replays.append(Replay(of_repeat(len(replays)), samples, counting=True))
        try:
            return [replay(call) for replay in replays[:repeats] for call in self.calls]
        except Clause as clause:
            raise PicojouleError(f"{self.name!r} {clause}") from None

    def by_step(self, values: list[Tensor], layout: TimeLayout) -> list[Tensor]:
        """Split what is made into time steps, each [B, …]; that of a product is one number for all.

        Args:
            values: What `values` has computed.
            layout: The layout in time of the spikes that were recorded.
        """
        if self.layout is None:
            return [torch.stack(values).sum().reshape(1)]
        own = self.layout
        return TimeLayout(layout.steps, own.time_axis, own.folded).by_step(self.name, values)


def made_spikes(
    recording: Recording,
    samples: int,
    twin: tuple[Recording, int] | None,
    layout: TimeLayout,
    layer_layouts: dict[str, LayerLayout | PoolLayout | None],
) -> dict[str, MadeSpikes]:
    """Put what two structural passes, on different numbers of samples, have recorded into one.

    Args:
        recording: What the traced call recorded.
        samples: Its number of samples.
        twin: What the call with other samples recorded, and how many, if the model takes any.
        layout: The network's layout in time.
        layer_layouts: The layouts of single layers.

    Returns:
        What is made, by name, in the order in which it runs.

    Raises:
        PicojouleError: It is made otherwise in another batch, mixes samples or time steps.
    """
    found: dict[str, MadeSpikes] = {}
    other, other_samples = twin or (None, samples)
    marks = _Marks(other or recording, other_samples, layout, layer_layouts, found)
    own = _Marks(recording, samples, layout, layer_layouts, found)
    join = Generalised((samples, other_samples))
    for name in recording.order:
        if name not in recording.made:
            continue
        calls = recording.made[name]
        others = calls if other is None else other.made.get(name, [])
        if len(others) != len(calls):
            raise PicojouleError(
                f"{name!r} runs in a batch of {samples} samples and not in one of {other_samples}: let what runs not "
                "depend on the batch"
            )
        try:
            expressions = tuple(
                call.expression if other is None else join(call.expression, twin.expression)
                for call, twin in zip(calls, others, strict=True)
            )
        except PicojouleError as error:
            raise PicojouleError(
                f"a factor of {name!r} {error}: take sizes from the tensors (x.shape, x.flatten), in the same way for "
                "every batch"
            ) from None
        bound = samples if other is None else None
        of_product = isinstance(expressions[0], Pairs)
        where = None if of_product else marks.layout_of(name, others)
        at_one = marks.pairs_at_one(name, others) if of_product else 0
        if of_product and at_one != own.pairs_at_one(name, calls):
            raise PicojouleError(
                f"{name!r} multiplies spikes of different samples: the pairs that meet for one depend on how many "
                "there are in the batch, so keep the samples apart"
            )
        found[name] = MadeSpikes(name, expressions, layout.steps, bound, where, at_one)
    return found


class _Marks:
    """Marks on the spikes of some samples or steps, which show where they are in what is made of them."""

    def __init__(
        self,
        recording: Recording,
        samples: int,
        layout: TimeLayout,
        layer_layouts: dict[str, LayerLayout | PoolLayout | None],
        made: dict[str, MadeSpikes],
    ) -> None:
        self._recording, self._samples, self._layout, self._own = recording, samples, layout, layer_layouts
        self._made = made

    def layout_of(self, name: str, calls: list[MadeCall]) -> TimeLayout:
        """Find where the time steps and samples are in what is made."""
        steps, samples = range(self._layout.steps), range(self._samples)
        marked = [
            (where, [replay(call.expression) for call in calls])
            for where in (*((step, None) for step in steps), *((None, sample) for sample in samples))
            for replay in [Replay(self._marked(*where), self._samples, marking=True)]
        ]
        for layout in self._candidates():
            if all(self._fits(layout, *where, values) for where, values in marked):
                return layout
        raise PicojouleError(
            f"{name!r} mixes spikes of different samples or time steps, so its spikes belong to none: keep them apart"
        )

    def pairs_at_one(self, name: str, calls: list[MadeCall]) -> int:
        """Count the pairs that meet in one sample and step if everything fires once."""

        def ones(layer: str, call: int) -> Tensor:
            return torch.ones_like(self._recording.leaves[layer][call], requires_grad=False)

        replay = Replay(ones, self._samples)
        total: int = sum(round(replay(call.expression).item()) for call in calls)
        each, rest = divmod(total, self._samples * self._layout.steps)
        if rest:
            raise PicojouleError(
                f"{name!r} multiplies spikes of different samples or of some time steps only: keep them apart"
            )
        return each

    def _candidates(self) -> list[TimeLayout]:
        steps = self._layout.steps
        axes = [TimeLayout(steps, axis) for axis in (0, 1)]
        every = [*axes, TimeLayout(steps, folded="time"), TimeLayout(steps, folded="batch")]
        return list(dict.fromkeys([self._layout, TimeLayout(steps), *every]))

    def _marked(self, step: int | None, sample: int | None) -> Callable[[str, int], Tensor]:
        known: dict[str, list[Tensor]] = {}

        def emitted(name: str, call: int) -> Tensor:
            if name not in known:
                known[name] = [torch.zeros_like(leaf, requires_grad=False) for leaf in self._recording.leaves[name]]
                sites = self._recording.sites.get(name, 1)
                for calls in (known[name][site::sites] for site in range(sites)):
                    for number, spikes in enumerate(self._by_step(name, calls)):
                        for one, row in enumerate(spikes):
                            if step in (None, number) and sample in (None, one):
                                row.fill_(1)
            return known[name][call]

        return emitted

    def _by_step(self, name: str, calls: list[Tensor]) -> list[Tensor]:
        if name in self._made:
            return self._made[name].by_step(calls, self._layout)
        return self._layout.by_step(name, calls, self._own.get(name))

    def _fits(self, layout: TimeLayout, step: int | None, sample: int | None, values: list[Tensor]) -> bool:
        """Whether marks of one step (or sample) are where a layout says that they are, and nowhere else."""
        try:
            by_step = layout.by_step("", values)
        except PicojouleError:
            return False
        if {len(spikes) for spikes in by_step} != {self._samples}:
            return False
        return all(
            bool(row.any()) == (step in (None, number) and sample in (None, one))
            for number, spikes in enumerate(by_step)
            for one, row in enumerate(spikes)
        )
