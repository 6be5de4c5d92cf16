"""Repetition: another call of the same model must run what the traced call ran.

ψ is one table for every call and every batch size. So a model is called twice, from the state that it is found in and
from the state that the first call leaves, and once with another number of samples; weights that no call has touched are
named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import MODULE_REGISTRIES, ConvNd, tree_leaves, tree_map_only
from picojoule.spikes.frameworks import spare_modules
from picojoule.spikes.layout import TimeLayout
from picojoule.synapses.recording import Recording

_SYNAPTIC_TYPES = (nn.Linear, nn.Bilinear, ConvNd, nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention)


def check_second_call(first: Recording, second: Recording) -> None:
    """Refuse a model whose second call runs other synapses than its first, or carries spikes over to it.

    Args:
        first: What the first call recorded.
        second: What the second call recorded, in the state that the first has left.

    Raises:
        PicojouleError: The two differ.
    """
    before, after = Counter(_synapses(first)), Counter(_synapses(second))
    different = [*(after - before), *(before - after)]
    if different:
        raise PicojouleError(
            f"the model's second call runs other synapses than its first ({different[0][0]}), as a recurrence written "
            "by hand does: recurrent synapses are not counted, so leave them out of the traced model; if no state is "
            "meant to outlive a call, reset it at the beginning of forward"
        )
    carried = _carried(first, second)
    if carried:
        raise PicojouleError(
            f"spikes of {', '.join(map(repr, carried))} reach synapses in the model's next call as well: a recurrence "
            "or a trace of spikes written by hand has no fixed number of synapses; leave it out of the traced model, "
            "or reset the state at the beginning of forward"
        )


def _synapses(recording: Recording) -> Iterator[tuple[Any, ...]]:
    """List what must be the same in every call, each beginning with its name."""
    for name, leaves in recording.leaves.items():
        yield from ((f"the layer {name!r}", number, tuple(leaf.shape)) for number, leaf in enumerate(leaves))
    for call in (call for call in recording.calls if not call.unit):  # a reset by the spikes of an earlier call is none
        yield call.place, call.fed, call.macs, call.encoder_macs, call.analog_macs, call.outputs, call.reached is None
    for name, made in recording.made.items():
        yield name, len(made), *(call.product.fed for call in made if call.product is not None)


def _carried(first: Recording, second: Recording) -> list[str]:
    """List the layers whose spikes of the first call reach synapses in the second."""
    reached = [call.reached for call in second.calls if call.reached is not None and not call.unit]
    if not reached:
        return []
    leaves = [(name, leaf) for name, calls in first.leaves.items() for leaf in calls]
    with torch.inference_mode(False):
        gradients = torch.autograd.grad(reached, [leaf for _, leaf in leaves], allow_unused=True, retain_graph=True)
    found = (name for (name, _), gradient in zip(leaves, gradients, strict=True) if gradient is not None)
    return list(dict.fromkeys(found))


UNUSED = (
    "give an example that uses them, or remove them from the model; what runs only in training (an auxiliary head) is "
    "no part of the network that is counted, so trace it with None in that place"
)
"""What to do about parts that the forward pass of evaluation never calls."""


def check_all_weights_ran(model: nn.Module, recording: Recording) -> None:
    """Refuse a model with layers of weights that its forward pass never touched.

    Args:
        model: The network.
        recording: What its call recorded.

    Raises:
        PicojouleError: Some weights were not used; the message names them.
    """
    spare = {id(tensor) for module in spare_modules(model) for tensor in module.parameters(recurse=False)}
    touched = recording.touched | spare
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
