"""The spikes of one forward pass, by layer."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import is_transformed, version
from picojoule.spikes.gradient import Lost
from picojoule.spikes.layout import LayerLayout, PoolLayout, TimeLayout
from picojoule.spikes.packed import PackedSpikes, pack


class _Emitted(NamedTuple):
    """What a layer emitted in one call.

    The branch is the same spikes, branched off where they arise. Autograd takes the youngest branch first, so the
    gradient of a penalty on the branch arrives at the layer after the network's and is added to it in place; one on the
    spikes themselves would arrive first, and the sum of the two would need memory of its own.
    Packed spikes are kept without the tensor that was emitted; the branch is theirs.
    """

    spikes: Tensor | None
    branch: Tensor
    packed: PackedSpikes | None
    version: int
    lost: Lost | None
    thread: int

    def tensor(self) -> Tensor:
        """Return the spikes themselves, or what was kept of them made again."""
        if self.packed is not None:
            return self.packed.tensor()
        assert self.spikes is not None
        return self.spikes

    def on_its_branch(self) -> Tensor:
        """Return the spikes on a branch of the graph of their own."""
        return self.branch if self.packed is None else self.packed.tensor()


class Made(Protocol):
    """Spikes that no module emits: how they are made of those of other layers (`MadeSpikes` of `synapses`)."""

    def values(
        self,
        emitted: Callable[[str], Sequence[Tensor]],
        layout: TimeLayout,
        samples: int,
        replays: list[Any],
        network_calls: int | None = None,
    ) -> list[Tensor]:
        """Compute what is made, call by call."""

    def by_step(self, values: list[Tensor], layout: TimeLayout) -> list[Tensor]:
        """Split it into time steps."""


class Activity(Mapping[str, Tensor]):
    """The spikes of every spiking layer in one `watch` block, by the layer's name.

    `activity[name]` is [B, …] for one step, else [T, B, …]. The output of every max-pool module is here too, under the
    pool's name: where a pool takes spikes it relays them, and `picojoule.trace` gives it coefficients of its own.

    `picojoule.watch` makes it and fills it.

    Args:
        layout: Where the time steps are in what the layers emit.
        stream: Whether the network's state goes on behind the block, so that the last step's spikes are fed back too.

    >>> activity = Activity(TimeLayout(steps=2))
    >>> for spikes in torch.eye(2):
    ...     activity.record("spike1", spikes[None])
    >>> activity["spike1"].shape
    torch.Size([2, 1, 2])
    """

    def __init__(self, layout: TimeLayout, *, stream: bool = False) -> None:
        self.layout = layout
        self.stream = stream
        self.network_calls: int | None = None
        """How often the network was called as a whole; None if nobody has counted it."""
        self._calls: dict[str, list[_Emitted]] = {}
        self._binary: set[str] = set()
        self._layer_layouts: dict[str, LayerLayout | PoolLayout | None] = {}

    @property
    def steps(self) -> int:
        """The number of time steps, T."""
        return self.layout.steps

    @property
    def relays(self) -> frozenset[str]:
        """The names of what has no neurons: max pools, and the places where spikes come in from outside.

        What reached a max pool need not have been spikes, which `picojoule.trace` knows.
        """
        return frozenset(name for name, layer in self._layer_layouts.items() if isinstance(layer, PoolLayout))

    def record(
        self,
        name: str,
        spikes: Tensor,
        *,
        binary: bool = False,
        layer: LayerLayout | PoolLayout | None = None,
        lost: Lost | None = None,
        packed: bool = False,
    ) -> None:
        """Note what a layer emitted in one call.

        Args:
            name: The layer's name.
            spikes: What it emitted.
            binary: Whether its type can emit nothing but 0 and 1.
            layer: Where its type says that the time steps are, if it does.
            lost: How a gradient that was expected got lost, if it did.
            packed: Whether to keep the spikes as bits, if they are binary and one time step.
        """
        kept = pack(spikes) if packed and binary and not self.layout.one_call_holds_all_steps else None
        held, branch = (spikes, spikes.view_as(spikes)) if kept is None else (None, kept.branch)
        self._calls.setdefault(name, []).append(
            _Emitted(held, branch, kept, version(spikes), lost, threading.get_ident())
        )
        self._layer_layouts[name] = layer
        if binary:
            self._binary.add(name)

    def by_step(self, name: str) -> list[Tensor]:
        """Return the spikes of one layer, step by step.

        Args:
            name: The layer's name.

        Returns:
            A tensor [B, …] for each time step; no copies are made.

        Raises:
            PicojouleError: If the layer recorded nothing, several threads called it, its spikes were overwritten
                since, or its calls contradict the layout in time.
        """
        return self._split(name, [emitted.tensor() for emitted in self._intact(name)])

    def _split(self, name: str, calls: list[Tensor]) -> list[Tensor]:
        return self.layout.by_step(name, calls, self._layer_layouts[self._module_of(name)])

    def _module_of(self, name: str) -> str:
        """Return the name of the module that is called at a place: "spike" for "spike@2"."""
        module, _, place = name.rpartition("@")
        return module if name not in self._calls and module in self._calls and place.isdecimal() else name

    def _intact(self, name: str) -> list[_Emitted]:
        """Return what the layer emitted, call by call; refuse calls of several threads, and what was overwritten."""
        name = self._module_of(name)
        if name not in self._calls:
            raise PicojouleError(
                f"the layer {name!r} recorded nothing: run the model that was traced inside the "
                "`with picojoule.watch(model)` block"
            )
        threads = len({emitted.thread for emitted in self._calls[name]})
        if threads > 1:
            raise PicojouleError(
                f"{threads} threads called the layer {name!r} while it was watched, and a block records all calls of "
                "its model: give each thread a copy of the model, or let one at a time watch and run it"
            )
        for emitted in self._calls[name]:
            if emitted.spikes is not None and version(emitted.spikes) != emitted.version:
                raise PicojouleError(
                    f"the spikes of {name!r} were overwritten in place behind the layer (x += y): write x = x + y"
                )
        return self._calls[name]

    def spikes(
        self, shapes: Mapping[str, tuple[int, ...]], made: Mapping[str, Made] | None = None, power: float = 1
    ) -> dict[str, list[Tensor]]:
        """Return the spikes of several layers step by step, checked to be what can be counted.

        Args:
            shapes: The shape that was traced for each layer's map, by the layer's name.
            made: How those are made of the others that no module emits.
            power: The exponent to which spikes are raised before others are made of them.

        Returns:
            For each layer a tensor [B, …] for each time step, on a branch of the graph of its own.

        Raises:
            PicojouleError: If a layer emitted maps of another shape, negative values or NaN, or the layers saw
                different numbers of samples.
        """
        return {
            name: [kept.tensor() if isinstance(kept, PackedSpikes) else kept for kept in by_step]
            for name, by_step in self.kept(shapes, made, power).items()
        }

    def kept(
        self, shapes: Mapping[str, tuple[int, ...]], made: Mapping[str, Made] | None = None, power: float = 1
    ) -> dict[str, list[Tensor | PackedSpikes]]:
        """Return the spikes of several layers as they are kept, checked as `spikes` checks them.

        Args:
            shapes: The shape that was traced for each layer's map, by the layer's name.
            made: How those are made of the others that no module emits.
            power: The exponent to which spikes are raised before others are made of them.

        Returns:
            For each layer and each time step a tensor [B, …], on a branch of the graph of its own, or packed spikes.

        Raises:
            PicojouleError: As for `spikes`.
        """
        made = made or {}
        found: dict[str, list[Tensor | PackedSpikes]] = {}
        places = Counter(self._module_of(name) for name in shapes if name not in made)
        for name, shape in shapes.items():
            if name in made:
                continue
            module = self._module_of(name)
            place = int(name.rpartition("@")[2]) - 1 if module != name else 0
            calls = self._intact(name)[place :: places[module]]
            packed = {id(call.branch): call.packed for call in calls if call.packed is not None}
            by_step = self._split(name, [call.branch for call in calls])
            for spikes in by_step:
                if tuple(spikes.shape[1:]) != shape:
                    raise PicojouleError(
                        f"the layer {name!r} emitted maps of shape {tuple(spikes.shape[1:])}, but {shape} was "
                        "traced: trace the model with an example of the size it is used with, and say where time is "
                        "(steps, time_axis, folded)"
                    )
                if not self.is_binary(name) and spikes.numel() and not _are_counts(name, spikes.detach()):
                    raise PicojouleError(
                        f"the layer {name!r} emitted negative values or NaN, which are not numbers of spikes: let it "
                        "emit 0, 1, 2, … spikes, or, if it has negative ones, declare it with signed=True"
                    )
            assert not packed or packed.keys() == set(map(id, by_step)), "packed spikes are one time step each"
            found[name] = [packed.get(id(spikes), spikes) for spikes in by_step]
        samples = {name: len(by_step[0]) for name, by_step in found.items()}
        if len(set(samples.values())) > 1:
            raise PicojouleError(f"the layers saw different numbers of samples ({samples}): watch one batch at a time")
        if made:
            found |= self._made(shapes, made, power, next(iter(samples.values())))
        return {name: found[name] for name in shapes}

    def _made(
        self,
        names: Iterable[str],
        made: Mapping[str, Made],
        power: float,
        samples: int,
    ) -> dict[str, list[Tensor | PackedSpikes]]:
        """Compute spikes that no module emits."""
        found: dict[str, list[Tensor | PackedSpikes]] = {}
        values: dict[str, list[Tensor]] = {}
        replays: list[Any] = []

        def emitted(name: str) -> list[Tensor]:
            if name not in values and name in made:
                values[name] = made[name].values(emitted, self.layout, samples, replays, self.network_calls)
            elif name not in values:
                values[name] = [_raised(call.on_its_branch(), power) for call in self._intact(name)]
            return values[name]

        for name in (name for name in names if name in made):
            by_step = made[name].by_step(emitted(name), self.layout)
            found[name] = list(by_step)
            if not all(bool((spikes.detach() >= 0).all()) for spikes in by_step):
                raise PicojouleError(
                    f"{name!r} makes negative values or NaN of the spikes that it takes, as 1 − s does of more than "
                    "one spike: let the layers in front of it emit 0 and 1 only"
                )
        return found

    def check_gradient(self, name: str) -> None:
        """Refuse a layer that lost the gradient that a loss on its spikes needs.

        A network may run its first steps under `no_grad` on purpose (truncated backpropagation), so one step with a
        gradient is enough there; what an autograd function hides is never on purpose.

        Args:
            name: The layer's name.

        Raises:
            PicojouleError: If it lost its gradient.
        """
        calls = [emitted.lost for emitted in self._intact(name)]
        lost = Lost.FUNCTION if Lost.FUNCTION in calls else None if None in calls else calls[-1]
        if lost is not None:
            raise PicojouleError(
                f"the spikes of {name!r} were recorded without a gradient, {lost.where}, so a penalty on them trains "
                f"nothing: {lost.instead}; if only its value is wanted, call the penalty under torch.no_grad()"
            )

    def is_binary(self, name: str) -> bool:
        """Return whether the layer's type can emit nothing but 0 and 1.

        Args:
            name: The layer's name.

        Returns:
            Whether nothing else can come from it.
        """
        return self._module_of(name) in self._binary

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._calls:
            raise KeyError(name)
        by_step = self.by_step(name)
        return by_step[0] if self.steps == 1 else torch.stack(by_step)

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"Activity(steps={self.steps}, layers={list(self._calls)})"


def _raised(spikes: Tensor, power: float) -> Tensor:
    """Raise spikes to a power, in a dtype that holds sums of them."""
    if spikes.is_floating_point():
        exact = spikes if spikes.dtype.itemsize >= 4 else spikes.float()
    else:
        exact = spikes.float() if spikes.dtype.itemsize < 4 else spikes.double()
    return exact if power == 1 else exact.pow(power)


def _are_counts(name: str, spikes: Tensor) -> bool:
    """Return whether there is no negative value and no NaN."""
    try:
        return bool(spikes.min() >= 0)
    except RuntimeError:
        if not is_transformed(spikes):
            raise
        raise PicojouleError(
            f"inside torch.vmap nobody can see whether the layer {name!r} emitted numbers of spikes: take the neuron "
            "picojoule.Spike, which can emit nothing else, or call the penalty outside"
        ) from None


def check_activity(who: str, activity: object) -> None:
    """Refuse what is not an `Activity`.

    Args:
        who: Who needs it, as the subject of the sentence.
        activity: What was given.

    Raises:
        PicojouleError: If it is anything else.
    """
    if not isinstance(activity, Activity):
        raise PicojouleError(f"{who} needs the Activity that picojoule.watch gives, not {type(activity).__name__}")
