"""Merged chains: layers of weights without a neuron between them, billed as the one layer that they can be folded into.

Each current carries links: an activation at the beginning of a chain, and which of the current's values each of its
elements reaches (`rules.reach`). A layer of weights that is fed by currents is billed for those activations, and the
layers before it are not billed again, unless their currents also go somewhere else (to a neuron, the output, a
function that is not linear). Layers side by side, whose currents are added up, stay layers of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from picojoule.errors import Clause
from picojoule.kernels.torch_private import tree_leaves, version
from picojoule.synapses.recording import Recording, SynapticCall
from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.passing import PassingRule, added, aliased, cast, identity, scaled
from picojoule.synapses.rules.reach import FOLDING, Reach

_SAME = frozenset("contiguous clone".split())
_LEADING = frozenset("flatten ravel reshape squeeze unflatten unsqueeze view".split())
"""Operations that keep the order of elements, so that channels and maps stay behind time and batch."""


@dataclass(frozen=True, eq=False)
class Link:
    """The part of a current that comes from one activation.

    Attributes:
        source: The activation at the beginning of the chain.
        reach: Which of the current's values its elements reach; None for the activation itself.
        layers: The layers of weights between the two.
    """

    source: Tensor
    reach: Reach | None = None
    layers: tuple[SynapticCall, ...] = ()

    @property
    def axes(self) -> int:
        """How many axes the map has, as far as layers tell."""
        return -1 if self.reach is None else len(self.reach.axes)


@dataclass(frozen=True)
class _Broken:
    """A current that passed an operation through which layers do not fold."""

    why: str


_Links = tuple[Link, ...]
Known = Mapping[int, _Links | _Broken]


@dataclass
class Merging:
    """The links of the tensors of one structural pass."""

    is_activation: Callable[[Any], bool]
    _known: dict[int, tuple[Tensor, int, _Links | _Broken]] = field(default_factory=dict)
    """By identity: the tensor, its version then, and its links."""
    _absorbed: dict[int, SynapticCall] = field(default_factory=dict)
    """Layers that were folded into one behind them."""
    _ended: set[int] = field(default_factory=set)
    """Layers whose currents go somewhere else."""

    def links(self, x: Tensor) -> _Links:
        """Say where the values of an activation come from.

        Args:
            x: Spikes, input or currents; a value that no layer of weights has made is a beginning of its own.

        Returns:
            Its links.

        Raises:
            PicojouleError: Layers cannot be folded through what was done to it; a clause.
        """
        found = self._of(x)
        if isinstance(found, _Broken):
            raise Clause(found.why)
        return (Link(x),) if found is None else found

    def chained(self, x: Tensor) -> bool:
        """Whether layers of weights stand before an activation, or something that does not fold."""
        found = self._of(x)
        return isinstance(found, _Broken) or any(link.layers for link in found or ())

    def made(self, currents: Tensor, links: _Links) -> None:
        """Note the links of the currents that a layer of weights has made, into which those before it are folded."""
        self._put(currents, links)
        for link in links:
            self._absorbed |= {id(layer): layer for layer in link.layers[:-1]}

    def break_off(self, currents: Tensor, why: str) -> None:
        """Note that a layer of weights does not fold into those behind it.

        Args:
            currents: What it has made.
            why: Why it does not, as a clause.
        """
        self._put(currents, _Broken(why))

    def end(self, values: Any) -> None:
        """Note that currents go where no layer of weights follows: the layers that made them are billed as they are."""
        self._end(self.known(values).values())

    def _end(self, known: Iterable[_Links | _Broken]) -> None:
        for links in known:
            if isinstance(links, tuple):
                self._ended |= {id(link.layers[-1]) for link in links if link.layers}

    def known(self, values: Any) -> Known:
        """Note the links of an operation's arguments, before it runs.

        Args:
            values: Its arguments.

        Returns:
            Links by the identity of a tensor.
        """
        leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
        return {id(leaf): links for leaf in leaves if (links := self._of(leaf)) is not None}

    def follow(
        self, name: str, passing: Mapping[str, PassingRule], call: Call, out: Any, where: str, known: Known
    ) -> None:
        """Note the links of what an operation without weights has made of currents.

        Args:
            name: The operation's name.
            passing: The passing rules by the name of the operation.
            call: Its arguments.
            out: Its result.
            where: The module that is running, in words.
            known: The links of its arguments before it ran.
        """
        made = call.args[0] if call.in_place or name == "__setitem__" else out
        results = [leaf for leaf in tree_leaves(made) if isinstance(leaf, Tensor)]
        if not (known and results):
            return
        found: _Links | _Broken | None
        try:
            found = self._through(name, passing.get(name), call, made, known)
        except Clause as clause:
            found = _Broken(f"{name} {where} {clause}")
        if not isinstance(found, tuple):
            self._end(known.values())
        for leaf in results:
            self._put(leaf, found)

    def finish(self, recording: Recording) -> None:
        """Take the layers off the bill that were folded into others and lead nowhere else."""
        gone = [call for key, call in self._absorbed.items() if key not in self._ended]
        reached = {id(call.reached) for call in gone}
        recording.calls = [call for call in recording.calls if not any(call is each for each in gone)]
        recording.reached = [each for each in recording.reached if id(each) not in reached]

    def _of(self, tensor: Tensor) -> _Links | _Broken | None:
        entry = self._known.get(id(tensor))
        if entry is not None and entry[1] != version(tensor):
            return _Broken("was written in place, which cannot be followed")
        return None if entry is None else entry[2]

    def _put(self, tensor: Tensor, links: _Links | _Broken | None) -> None:
        if links is None:
            self._known.pop(id(tensor), None)
        else:
            self._known[id(tensor)] = (tensor, version(tensor), links)

    def _through(self, name: str, rule: PassingRule | None, call: Call, out: Any, known: Known) -> _Links | None:
        """Make the links of a result; None behind what is not linear, where another chain may begin.

        Raises:
            PicojouleError: Layers do not fold through it; a clause.
        """
        if rule is None:
            return None
        x, other = call.argument(0, "input"), call.argument(1, "other")
        terms = [x]
        if rule is added or name in ("add_", "sub_", "subtract_"):
            terms = [each for each in (x, other) if isinstance(each, Tensor) and self.is_activation(each)]
        elif rule is scaled:
            if self.is_activation(x) and self.is_activation(other):
                return None  # a gate
            terms = [x if self.is_activation(x) else other]
            if call.mask_of(other if terms[0] is x else x) is not None:
                raise Clause("masks currents")
        found: list[Link] = []
        for term in terms:
            links = known.get(id(term))
            if isinstance(links, _Broken):
                raise Clause(links.why)
            found += (Link(term),) if links is None else links
        axes = max(link.axes for link in found)
        same = rule in (added, aliased, cast, identity, scaled) or name in _SAME or name in ("add_", "sub_")
        if same or name in _LEADING:
            if not isinstance(out, Tensor) or any(_tail(term, axes) != _tail(out, axes) for term in terms):
                raise Clause("changes the shape of maps")
            return tuple(found)
        if name == "pad" and call.argument(2, "mode", "constant") == "constant":
            return tuple(_padded(link, call.argument(1, "pad")) for link in found)
        if name == "__setitem__" and not self.is_activation(call.args[2]):
            written = torch.zeros(call.args[0].shape, dtype=torch.bool)
            written[call.args[1]] = True
            if not any(bool((written & _reached(link)).any()) for link in found):
                return tuple(found)
        raise Clause("stands between layers of weights")


def _tail(tensor: Tensor, axes: int) -> tuple[int, ...]:
    return tuple(tensor.shape[-axes - 1 :])


def _padded(link: Link, pad: Any) -> Link:
    """Add positions to the maps of a current, to which nothing leads."""
    if link.reach is None or len(pad) > 2 * len(link.reach.axes):
        raise Clause("pads more than maps of currents")
    axes = list(link.reach.axes)
    for i in range(len(pad) // 2):  # the last axis comes first
        axes[-1 - i] = F.pad(axes[-1 - i], (0, 0, pad[2 * i], pad[2 * i + 1]))
    return replace(link, reach=Reach(link.reach.channels, tuple(axes)))


def _reached(link: Link) -> Tensor:
    """Mark the values of a current to which a spike leads, in the shape of one sample."""
    if link.reach is None:
        return torch.ones((), dtype=torch.bool)
    marked = link.reach.channels.any(1)
    for axis in link.reach.axes:
        marked = marked.unsqueeze(-1) & axis.any(1)
    return marked


@dataclass(frozen=True, eq=False)
class Folded:
    """A layer of weights as one activation at the beginning of a chain sees it, with all layers between."""

    link: Link
    reach: Reach
    """Which of the layer's outputs the activation reaches."""

    def behind(self, call: SynapticCall) -> Link:
        """Link the activation with what the layer puts out, now that its cost is recorded."""
        return Link(self.link.source, self.reach, (*self.link.layers, call))


def fold(merging: Merging, name: str, call: Call, x: Tensor, present: Tensor) -> list[Folded]:
    """Fold a layer of weights into the chains that feed it.

    Args:
        merging: The links of this pass.
        name: The operation's name.
        call: Its arguments.
        x: What feeds it.
        present: Its weights as ones and zeros.

    Returns:
        The layer as each activation sees it.

    Raises:
        PicojouleError: They cannot be folded; a clause.
    """
    links = merging.links(x)
    if name not in FOLDING:
        raise Clause(f"{name} is no convolution or linear layer")
    own = FOLDING[name](call, x, present)
    if any(link.axes not in (-1, len(own.axes)) for link in links):
        raise Clause("it takes maps with other axes than the layer before it")
    return [Folded(link, own if link.reach is None else link.reach.then(own)) for link in links]
