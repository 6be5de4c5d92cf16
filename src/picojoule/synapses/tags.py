"""Tags of tensors: where each tensor of a structural pass comes from."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import BackwardCFunction
from torch.nn.utils.prune import BasePruningMethod

from picojoule.kernels.torch_private import (
    forward_pre_hooks,
    pruned_tensor_name,
    storage_identity,
    torch_function_disabled,
    tree_leaves,
    version,
)


class Origin(enum.Flag):
    """The origin of a tensor: what it carries; a sum of two tensors carries both."""

    CONSTANT = enum.auto()
    WEIGHT = enum.auto()
    """Beside CONSTANT: a parameter, or made of one."""
    RANDOM = enum.auto()
    """Beside CONSTANT: drawn anew in every call."""
    PLAIN = enum.auto()
    """Beside CONSTANT: held in an attribute that is neither parameter nor buffer, or made of one."""
    INPUT = enum.auto()
    SPIKES = enum.auto()
    SCALED = enum.auto()
    """Beside SPIKES: no longer whole numbers of spikes."""
    SHIFTED = enum.auto()
    """Beside SPIKES: with constants added or subtracted, element by element."""
    WEIGHTED = enum.auto()
    """With constants in it, a number for each element, so that adding up the elements would make synapses of them."""
    SPREAD = enum.auto()
    """Beside WEIGHTED: an element met several constants, so that comparing the results makes synapses of them too."""
    RESCALED = enum.auto()
    """Beside SPIKES: times numbers that weights behind them could take up, a batch norm's or elements of a table."""
    SUMMED = enum.auto()
    """Beside SPIKES: elements with constants in them, added up: synapses, unless they go into synapses themselves."""
    DETACHED = enum.auto()
    """Beside SPIKES: gradients do not pass, though connections do."""
    CURRENT = enum.auto()
    """Behind synapses, not yet through a neuron."""
    FIRED = enum.auto()
    """Beside CURRENT: compared with numbers or rounded by a bare function, which may be a neuron."""
    OPAQUE = enum.auto()
    """Spikes that went through an operation without a rule."""
    COSTLY = enum.auto()
    """Beside OPAQUE: the operation is not known to be free even at the network's end."""
    UNSEEN = enum.auto()
    """Made by code that cannot be intercepted."""
    HELD = enum.auto()
    """A tensor that the model holds outside its parameters and buffers: a state, or a constant."""


INERT = Origin.CONSTANT | Origin.WEIGHT | Origin.RANDOM | Origin.PLAIN
ACTIVATION = Origin.SPIKES | Origin.INPUT | Origin.CURRENT
STRANGE = Origin.UNSEEN | Origin.HELD
"""Of unknown origin."""


@dataclass(frozen=True)
class Tag:
    """What is known of a tensor: its origin and, where that is trouble, whom to blame and what to do."""

    origin: Origin
    blame: str = ""
    """For currents and opaque values: what made them, in words for an error message."""
    remedy: str = ""

    def __or__(self, other: Tag) -> Tag:
        first, second = (self, other) if self.blame else (other, self)
        worse = second if second.blame and _severity(second) > _severity(first) else first
        return Tag(self.origin | other.origin, worse.blame, worse.remedy)

    def without(self, origin: Origin) -> Tag:
        """Return the tag without some origins."""
        return Tag(self.origin & ~origin, self.blame, self.remedy)


def _severity(tag: Tag) -> int:
    """Rank tags by how much their `blame` explains."""
    return (Origin.OPAQUE in tag.origin) + (Origin.COSTLY in tag.origin)


UNKNOWN = Tag(Origin.UNSEEN)
HIDDEN = Tag(
    Origin.OPAQUE,
    "an operation that hides its gradient (a reentrant checkpoint, another torch.autograd.Function, or a write through "
    ".data)",
    "give torch.utils.checkpoint use_reentrant=False; write anything else with PyTorch's own operators, or, if it "
    "fires, make it an nn.Module and declare it with picojoule.declare_spiking",
)


class Tags:
    """The tags of all tensors of one forward pass, and of the memory that was written in place."""

    def __init__(self, model: nn.Module, pruned: list[tuple[nn.Module, str]]) -> None:
        self._by_tensor: dict[int, tuple[Tensor, Tag]] = {}
        self._written: dict[int, Tag] = {}
        """What was written in place, by the memory it was written to: all views of it carry it."""
        self._plain: dict[int, tuple[str, nn.Module, Tensor, int]] = {}
        """Constants, or states that an earlier call left, in attributes that are neither parameter nor buffer."""
        self._used: set[int] = set()
        self.plain_matters = False
        """Whether one of them takes part in what spikes or the input go through."""
        for name, module in model.named_modules():
            for tensor in tree_leaves(list(vars(module).values())):
                if isinstance(tensor, Tensor) and (tensor.requires_grad or tensor.is_inference()):
                    self.put(tensor, Tag(Origin.HELD))
                elif isinstance(tensor, Tensor):
                    self.put(tensor, Tag(Origin.CONSTANT | Origin.PLAIN))
                    self._plain[id(tensor)] = (name, module, tensor, version(tensor))
        for tensor in model.buffers():
            self.put(tensor, Tag(Origin.CONSTANT))
        for tensor in (*model.parameters(), *(getattr(module, name) for module, name in pruned)):
            self.put(tensor, Tag(Origin.CONSTANT | Origin.WEIGHT))

    def put(self, tensor: Tensor, tag: Tag) -> None:
        """Give a tensor its tag."""
        self._by_tensor[id(tensor)] = (tensor, tag)  # the reference keeps the id from being used again

    def get(self, tensor: Tensor) -> Tag:
        """Return the tag of a tensor, with what was written into its memory since."""
        entry = self._by_tensor.get(id(tensor))
        tag = entry[1] if entry is not None else UNKNOWN
        if self._written:
            written = self._written.get(_memory(tensor))
            tag = tag if written is None else tag | written
        if tag.origin & Origin.SPIKES and not _has_connections(tensor):
            return HIDDEN
        return tag

    def joint(self, values: Any) -> Tag:
        """Join the tags of all tensors in a nest of values."""
        tag = Tag(Origin(0))
        for leaf in tree_leaves(values):
            if isinstance(leaf, Tensor):
                tag |= self.get(leaf)
        return tag

    def is_activation(self, value: Any) -> bool:
        """Whether a nest of values carries anything but constants."""
        return bool(self.joint(value).origin & ~INERT)

    def note_plain(self, values: Any) -> None:
        """Note that the model uses constants in plain attributes."""
        if self._plain:
            self._used.update(id(leaf) for leaf in tree_leaves(values) if id(leaf) in self._plain)

    def changed_plain(self) -> str | None:
        """Name a module that has used a tensor of a plain attribute and replaced or changed it."""
        for name, module, tensor, before in (self._plain[each] for each in self._used if self.plain_matters):
            held = any(leaf is tensor for leaf in tree_leaves(list(vars(module).values())))
            if not held or version(tensor) != before:
                return name
        return None

    def overwrite(self, target: Any, tag: Tag) -> None:
        """Note that an operation wrote into a tensor."""
        for leaf in tree_leaves(target):
            if isinstance(leaf, Tensor):
                self._written[_memory(leaf)] = tag | self._written.get(_memory(leaf), tag)


def tensors_in(value: Any, depth: int = 4) -> list[Tensor]:
    """List the tensors in a nest of values, also of objects that PyTorch does not know (a dataclass of results)."""
    found = []
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            found.append(leaf)
        elif depth and not isinstance(leaf, nn.Module | type) and hasattr(leaf, "__dict__"):
            found += tensors_in(list(vars(leaf).values()), depth - 1)
    return found


def pruned_tensors(model: nn.Module) -> list[tuple[nn.Module, str]]:
    """List the modules, and the names of their tensors, that `torch.nn.utils.prune` masks."""
    return [
        (module, pruned_tensor_name(hook))
        for module in model.modules()
        for hook in forward_pre_hooks(module).values()
        if isinstance(hook, BasePruningMethod)
    ]


def _has_connections(spikes: Tensor) -> bool:
    """Whether autograd leads from a tensor back to the spikes, through nothing but PyTorch's own derivatives."""
    return spikes.grad_fn is not None and not isinstance(spikes.grad_fn, BackwardCFunction)


def _memory(tensor: Tensor) -> int:
    """Identify the memory that a tensor lies in, the same for all its views."""
    with torch_function_disabled():  # asked by the pass, not by the model, which may not look there
        return storage_identity(tensor) if tensor.layout == torch.strided else id(tensor)
