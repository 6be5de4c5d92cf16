"""Repetition: another call of the same model must run what the traced call ran.

ψ is one table for every call and every batch size. So a model is called twice, from the state that it is found in and
from the state that the first call leaves, and once with another number of samples; weights that no call has touched are
named. Where a state feeds spikes of one call back into the next, the second call tells what they reach there, and a
third that it is always the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import MODULE_REGISTRIES, ConvNd, tree_leaves, tree_map_only
from picojoule.spikes.frameworks import spare_modules
from picojoule.spikes.layout import TimeLayout
from picojoule.synapses.recording import Recording, SynapticCall

_SYNAPTIC_TYPES = (nn.Linear, nn.Bilinear, ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


@dataclass(frozen=True)
class Calls:
    """What the calls of one model have recorded, each in the state that the call before has left it in."""

    first: Recording
    settled: Recording
    """A call that is as all later ones are: the first, unless a state begins there."""
    before: Recording | None = None
    """The call before `settled`, if its spikes reach synapses there."""
    carrying: tuple[SynapticCall, ...] = ()
    """What they may reach there."""

    @property
    def only_first(self) -> Calls:
        """The first call alone."""
        return Calls(self.first, self.first)


def settle(first: Recording, second: Recording, call_again: Callable[[], Recording]) -> Calls:
    """Find out what the calls of a model have in common, and what spikes of one call reach in the next.

    Args:
        first: What the first call recorded.
        second: What the second call recorded, in the state that the first has left.
        call_again: Calls the model a third time, which is needed only where the two differ or a state carries spikes.

    Returns:
        The calls.

    Raises:
        PicojouleError: Every call runs other synapses, or spikes reach more than the next call.
    """
    by_weights, without = _split(second)
    carried, bare = _carried(first, by_weights), _carried(first, without)
    different = [*(Counter(_synapses(second)) - Counter(_synapses(first))), *_missing(first, second)]
    if not (different or carried or bare):
        return Calls(first, first)
    third = call_again()
    if (
        Counter(_synapses(third)) != Counter(_synapses(second))
        or _missing(first, second)
        or _within_differs(first, second)
    ):
        raise PicojouleError(
            f"the model's second call runs other synapses than its first ({_place(different, carried)}), and not as a "
            "recurrence does, which runs the same in all calls behind the first: if no state is meant to outlive a "
            "call, reset it at the beginning of forward; else let every call run the same layers"
        )
    weights_later, without_later = _split(third)
    traces = _carried(first, weights_later)
    if traces:
        raise PicojouleError(
            f"spikes of {', '.join(map(repr, traces))} reach synapses in the model's next call and in those behind it, "
            "as a trace of spikes written by hand does, which has no fixed number of synapses: feed the next call the "
            "spikes of this one alone, or reset the state at the beginning of forward"
        )
    if not _same(carried, _carried(second, weights_later)):
        raise PicojouleError(
            f"spikes of {_place([], carried)} reach other synapses in each next call of the model: let every call run "
            "the same layers, or reset the state at the beginning of forward"
        )
    if bare and not _carried(first, without_later):  # else a membrane by hand keeps what has arrived once
        return Calls(first, second, first, tuple(call for call in second.calls if call.reached is not None))
    return Calls(first, second, first, tuple(by_weights)) if carried else Calls(first, second)


def _synapses(recording: Recording) -> Iterator[tuple[Any, ...]]:
    """List what must be the same in every call, each beginning with its name."""
    for name, leaves in recording.leaves.items():
        yield from ((f"the layer {name!r}", number, tuple(leaf.shape)) for number, leaf in enumerate(leaves))
    for call in (call for call in recording.calls if not call.unit):  # a reset by the spikes of an earlier call is none
        yield call.place, call.fed, call.macs, call.encoder_macs, call.analog_macs, call.outputs, call.reached is None
    for name, made in recording.made.items():
        yield name, len(made), *(call.product.fed for call in made if call.product is not None)


def _missing(first: Recording, second: Recording) -> list[tuple[Any, ...]]:
    """List what the first call runs and the second does not."""

    def places(recording: Recording) -> Counter[tuple[Any, ...]]:
        layers = ((f"the layer {name!r}", len(leaves)) for name, leaves in recording.leaves.items())
        calls = ((call.place, call.fed) for call in recording.calls if not call.unit)
        return Counter([*layers, *calls, *((name, len(made)) for name, made in recording.made.items())])

    return list(places(first) - places(second))


def _place(different: list[tuple[Any, ...]], carried: Iterable[str]) -> str:
    return str(different[0][0]) if different else ", ".join(map(repr, carried))


def _split(recording: Recording) -> tuple[list[SynapticCall], list[SynapticCall]]:
    """Tell the calls of weights that spikes feed from those where they arrive without a weight."""
    fed = [call for call in recording.calls if call.reached is not None]
    return [call for call in fed if not call.unit], [call for call in fed if call.unit]


def _carried(first: Recording, later: list[SynapticCall]) -> dict[str, list[Tensor | None]]:
    """Count what spikes of a call reach in a later one, by layer, for those that reach anything."""
    reached = [call.reached for call in later if call.reached is not None]
    if not reached:
        return {}
    with torch.inference_mode(False):
        leaves = [leaf for calls in first.leaves.values() for leaf in calls]
        gradients: Iterator[Tensor | None] = iter(
            torch.autograd.grad(reached, leaves, allow_unused=True, retain_graph=True)
        )
    found = {name: [next(gradients) for _ in calls] for name, calls in first.leaves.items()}
    return {name: each for name, each in found.items() if any(g is not None and bool(g.any()) for g in each)}


def _same(one: dict[str, list[Tensor | None]], other: dict[str, list[Tensor | None]]) -> bool:
    return one.keys() == other.keys() and all(
        (a is None) == (b is None) and (a is None or b is None or torch.equal(a, b))
        for name in one
        for a, b in zip(one[name], other[name], strict=True)
    )


def _within_differs(first: Recording, second: Recording) -> bool:
    """Whether spikes reach other synapses of their own call in the second call than in the first."""
    return not _same(_carried(first, _split(first)[0]), _carried(second, _split(second)[0]))


UNUSED = (
    "give an example that uses them, or remove them from the model; what runs only in training (an auxiliary head) is "
    "no part of the network that is counted, so trace it with None in that place"
)
"""What to do about parts that the forward pass of evaluation never calls."""


def check_all_weights_ran(model: nn.Module, calls: Calls) -> None:
    """Refuse a model with layers of weights that its forward pass never touched.

    Args:
        model: The network.
        calls: What its calls recorded.

    Raises:
        PicojouleError: Some weights were not used; the message names them.
    """
    spare = {id(tensor) for module in spare_modules(model) for tensor in module.parameters(recurse=False)}
    touched = calls.settled.touched | spare
    idle = [name for name, tensor in model.named_parameters() if _is_idle(model, name, tensor, touched)]
    if idle:
        raise PicojouleError(
            f"the forward pass never used the weights {', '.join(map(repr, idle))}, so their synapses cannot be "
            f"counted: {UNUSED}"
        )


def _is_idle(model: nn.Module, name: str, tensor: Tensor, touched: set[int]) -> bool:
    path, _, own_name = name.rpartition(".")
    owner = model.get_submodule(path)
    synaptic = isinstance(owner, _SYNAPTIC_TYPES) and tensor.dim() > 1
    if isinstance(owner, nn.Embedding) or not (synaptic or sum(size > 1 for size in tensor.shape) > 1):
        return False
    pruned = getattr(owner, own_name.removesuffix("_orig"))  # of a pruned layer the forward pass takes the product
    return id(tensor) not in touched and id(pruned) not in touched


class OtherBatch:
    """A model's arguments, and if need be its state, for another number of samples than it was traced with."""

    def __init__(self, samples: int, layout: TimeLayout) -> None:
        self._samples, self._layout = samples, layout
        self.samples = next(n for n in (2, 3, 4) if n not in (samples, layout.steps))
        """The other number of samples."""
        self._order = torch.arange(self.samples) % samples

    def has_samples(self, arguments: Any) -> bool:
        """Whether some argument is known to hold the samples."""
        shapes = [leaf.shape for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
        return any(_batch_axis(tuple(shape), self._samples, self._layout) is not None for shape in shapes)

    def of(self, values: Any) -> Any:
        """Resize every tensor in a nest of values that holds the samples."""
        return tree_map_only(Tensor, self._resized, values)

    def resize_state(self, model: nn.Module) -> None:
        """Replace what the modules hold from an earlier call by as much for this batch."""
        for module in model.modules():
            attributes = vars(module)
            for name in attributes.keys() - MODULE_REGISTRIES:
                if any(isinstance(leaf, Tensor) for leaf in tree_leaves(attributes[name])):
                    attributes[name] = self.of(attributes[name])

    def _resized(self, tensor: Tensor) -> Tensor:
        axis, order = _batch_axis(tuple(tensor.shape), self._samples, self._layout), self._order.to(tensor.device)
        if axis is None:
            return tensor
        if tensor.shape[axis] == self._samples:
            return tensor.detach().index_select(axis, order)
        steps = self._layout.steps
        folded = (steps, self._samples) if self._layout.folded == "time" else (self._samples, steps)
        apart = tensor.detach().reshape(*folded, *tensor.shape[1:])
        return apart.index_select(folded.index(self._samples), order).flatten(0, 1)


def _batch_axis(shape: tuple[int, ...], samples: int, layout: TimeLayout) -> int | None:
    """Find the axis of the samples, also where it holds the time steps as well."""
    # Where time is folded into the batch, what comes behind are channels, of which there may be as many as samples.
    if layout.steps > 1 and layout.folded is None and shape[:2] in ((layout.steps, samples), (samples, layout.steps)):
        return shape[:2].index(samples)
    if shape and shape[0] in (samples, layout.steps * samples if layout.folded else samples):
        return 0
    return None


def holds_a_state(model: nn.Module) -> bool:
    """Whether a module holds a tensor outside its parameters and buffers."""
    own = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    held = (leaf for module in model.modules() for leaf in tree_leaves(list(vars(module).values())))
    return any(isinstance(leaf, Tensor) and id(leaf) not in own for leaf in held)
