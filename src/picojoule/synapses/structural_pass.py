"""The structural pass: one forward pass of the model on connections instead of numbers.

Every operation that the model calls, as a module or as a function, is intercepted (`torch.overrides.TorchFunctionMode`)
and its tensors are tagged by where they come from: spikes, the network's input, the currents behind synapses,
constants. Spiking layers emit fresh leaves of value 0 that require a gradient, the input is all ones, and the graph is
cut behind each layer of synapses. So

* the gradient of Σ_synaptic Σ x·n(x), with n the fan-out rule of `rules`, is at each neuron the number of synapses ψ
  that its spike reaches, through pools, skips and reshapes;
* an element of value > 0 in front of a synapse comes from the input: those are the encoder's multiply-accumulates.

A tensor without a tag was made by code that cannot be seen (TorchScript, a C++ extension). Nothing of unknown origin,
and nothing that passed an operation without a rule, may reach a synapse: it is refused by name (`refusals`). Memory
that is written in place carries what was written under all its names (views). Below the operations, the kernels are
watched too (`kernel_watch`), so that a product that was called past the tables is refused instead of lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import SET_GRAD_ENABLED, operator_namespace, tree_leaves, tree_map_only
from picojoule.synapses.analog import analog_result, is_analog
from picojoule.synapses.constants import constants_in
from picojoule.synapses.copies import ADDS_OR_JOINS, Copies
from picojoule.synapses.kernel_watch import KernelWatch
from picojoule.synapses.module_hooks import ModuleHooks
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.products import GATES, MAX_POOLS, QUOTIENTS, count_attention, count_gate, count_max_pool
from picojoule.synapses.recording import Recording
from picojoule.synapses.refusals import (
    refuse_changed_constants,
    refuse_detached_sum,
    refuse_drawn_order,
    refuse_operation,
    refuse_output,
    refuse_product,
    refuse_read_weights,
    refuse_weighted_sum,
)
from picojoule.synapses.rules.bilinear import ATTENTION, BILINEAR, MULTIPLYING
from picojoule.synapses.rules.call import Call, ChainsOfLayers, Psi
from picojoule.synapses.rules.declared import remedy
from picojoule.synapses.rules.passing import CREATING, RANDOM, SCALING, SHAPED_BY, PassingRule, keeps_counts
from picojoule.synapses.rules.readout import is_free
from picojoule.synapses.rules.synaptic import SYNAPTIC
from picojoule.synapses.synaptic_calls import count_call, weighs_constant, weighs_nothing
from picojoule.synapses.tags import ACTIVATION, INERT, STRANGE, Origin, Tag, tensors_in

_EMPTY = (
    "if it is a mask, leave this part out of the traced model; if it changes later, trace with a value that it takes "
    "then"
)


class StructuralPass(TorchFunctionMode):
    """The mode in which a model's forward pass counts its synapses; `recording` holds what was found."""

    def __init__(
        self,
        model: nn.Module,
        psi: Psi,
        passing: Mapping[str, PassingRule],
        *,
        strict: bool = False,
        chains: ChainsOfLayers = "run",
    ) -> None:
        super().__init__()
        self._state = PassState(model, psi, passing, strict=strict, chains=chains)
        self._hooks = ModuleHooks(self._state)
        self._copies = Copies()

    @property
    def recording(self) -> Recording:
        """What the running call, or the last one, has recorded."""
        return self._state.recording

    def begin_another_call(self) -> None:
        """Record anew, on a model in the state that the call before has left it in."""
        self._state.recording = Recording(touched=self.recording.touched)
        self._state.pass_number += 1

    def emit_input(self, example: Any) -> Any:
        """Put ones in place of the example's numbers (indices and masks keep theirs)."""
        return self._state.emit_input(example)

    def check_output(self, output: Any) -> None:
        """Refuse an output with a path from a spike on which something may cost and was not counted."""
        refuse_output(self._state, output)
        held_by = self._state.held_by
        self._state.returned |= {held_by[id(leaf)] for leaf in tensors_in(output) if id(leaf) in held_by}
        refuse_changed_constants(self._state)
        if self._state.merging is not None:
            self._state.merging.end(tensors_in(output))
            self._state.merging.finish(self.recording)

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follow the model's modules and PyTorch's kernels while the block runs."""
        with self._hooks.attached(), KernelWatch(self._state):
            yield

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        state, kwargs, name = self._state, kwargs or {}, _name(func)
        if name in SHAPED_BY and len(args) == 2 and isinstance(args[1], Tensor):
            args = (args[0], torch.empty_like(args[1]))
            state.tags.put(args[1], Tag(Origin.CONSTANT))
        operation = _Operation(name, func, args, kwargs)
        leaves = tree_leaves((args, kwargs))
        state.recording.touched |= {id(leaf) for leaf in leaves if id(leaf) in state.weights}
        tag = state.tags.joint(leaves)
        active = bool(tag.origin & ~INERT)
        if state.inside:
            if state.merging is not None:
                state.merging.end((args, kwargs))
            return self._inside_neuron(operation, active)
        state.tags.note_plain(leaves)
        if tag.origin & Origin.PLAIN and tag.origin & (Origin.SPIKES | Origin.INPUT):
            state.tags.plain_matters = True
        if not active:
            return self._on_constants(operation, tag)
        if name in CREATING and not state.tags.is_activation(
            (args[1:], {k: v for k, v in kwargs.items() if k != "input"})
        ):
            drawn = Origin.RANDOM if name in RANDOM else Origin(0)
            return state.tag(operation.run(), Tag(Origin.CONSTANT | drawn))
        refuse_operation(state, name, func, kwargs)
        if name == "register_hook":  # it would act on the connections; the handle is all that the model gets
            return func(torch.zeros((), requires_grad=True), *args[1:], **kwargs)
        if name == ATTENTION:
            return count_attention(state, func, args, kwargs)
        if name in SYNAPTIC or name in BILINEAR:
            return count_call(state, name, func, args, kwargs)
        if name in SCALING and any(map(self._is_matrix, (*args, *kwargs.values()))):
            refuse_product(state, name)  # a linear layer written as product and sum
        refuse_weighted_sum(state, name, tag)
        refuse_drawn_order(state, name, tag, args[1:], kwargs)
        if state.merging is None:
            return self._on_activations(operation, tag)
        known = state.merging.known((args, kwargs))
        out = self._on_activations(operation, tag)
        call = Call(func, args, kwargs, state.psi, state.tags.is_activation, state.masks.mask_of)
        with state.allowing_products():
            state.merging.follow(name, state.passing, call, out, state.where(), known)
        return out

    def _inside_neuron(self, operation: _Operation, active: bool) -> Any:
        """Run an operation inside a spiking layer or a relay, where nothing is counted and products are refused."""
        state, name = self._state, operation.name
        if not active:
            if not state.products_allowed and weighs_constant(state, name, operation.args, operation.kwargs):
                refuse_product(state, name)
            with state.allowing_products():
                return state.tag(operation.run(), Tag(Origin.CONSTANT))
        if name in MULTIPLYING and not state.products_allowed:
            refuse_product(state, name)
        if state.products_allowed:  # of a module whose synapses are counted beside it
            args, kwargs = tree_map_only(Tensor, state.as_emitted, (operation.args, operation.kwargs))
            operation = _Operation(name, operation.func, args, kwargs)
        out = operation.run()
        potential = Tag(Origin.CURRENT, f"the state of {state.inside[0]!r}")
        state.tag_written(operation.target, potential)
        return state.tag(out, potential)

    def _on_constants(self, operation: _Operation, tag: Tag) -> Any:
        """Run an operation on constants and weights, following the masks among them."""
        state, name = self._state, operation.name
        refuse_read_weights(state, name, operation.args, tag)
        if weighs_constant(state, name, operation.args, operation.kwargs):
            if weighs_nothing(state, name, operation.args, operation.kwargs):
                return count_call(state, name, operation.func, operation.args, operation.kwargs)
            state.refuse(
                f"{name} {state.where()} is fed by a constant, not by the input or spikes: if this is a state, reset "
                "it to zeros before the model is traced; else leave the layer out, and add what it makes of the "
                "constant as a bias"
            )
        if name == SET_GRAD_ENABLED:
            self._copies.gradients = bool(operation.args[0])
        with state.allowing_products():
            out = state.masks.followed(
                operation.func, operation.args, operation.kwargs, operation.target, operation.run
            )
        tag |= Tag(Origin.CONSTANT | (Origin.RANDOM if name in RANDOM else Origin(0)))
        if tag.origin & (Origin.RANDOM | Origin.WEIGHT):
            state.tag_written(operation.target, tag)
        return state.tag(out, tag)

    def _on_activations(self, operation: _Operation, tag: Tag) -> Any:
        """Run an operation on activations that is not synaptic: by its passing rule, or else as it is."""
        state, name = self._state, operation.name
        args, kwargs = operation.args, operation.kwargs
        call = Call(operation.func, args, kwargs, state.psi, state.tags.is_activation, state.masks.mask_of)
        if name in GATES or name in QUOTIENTS:
            out = count_gate(state, name, call)
            if out is not NotImplemented:
                return out
        if name in MAX_POOLS and tag.origin & Origin.SPIKES and not tag.origin & (Origin.OPAQUE | Origin.CURRENT):
            return count_max_pool(state, name, call, tag)
        if tag.origin & ACTIVATION and name in state.passing and not self._takes_indices((args, kwargs)):
            out = self._by_rule(operation, call, tag)
            if out is not NotImplemented:
                return out
        try:
            out = operation.run()
        except Exception:
            if state.recording.refusal or not tag.origin & Origin.SPIKES or operation.target is not None:
                raise
            args, kwargs = tree_map_only(Tensor, state.as_emitted, (args, kwargs))
            out = _Operation(name, operation.func, args, kwargs).run()
        tag |= Tag(constants_in(name, call, tag.origin))
        if is_analog(name, tag):
            out, tag = analog_result(state, name, operation.target, out, tag)
        elif tag.origin & (Origin.SPIKES | Origin.OPAQUE):
            tag = self._tag_without_rule(name, call, tag)
        elif tag.origin & ~(INERT | Origin.WEIGHTED | Origin.SPREAD) == Origin.INPUT:
            # Anything done to pixels leaves pixels: an analog value everywhere.
            for leaf in tree_leaves((out, operation.target)):
                if isinstance(leaf, Tensor) and leaf.is_floating_point():
                    leaf.fill_(1)
        state.tag_written(operation.target, tag)
        return state.tag(out, tag)

    def _by_rule(self, operation: _Operation, call: Call, tag: Tag) -> Any:
        """Pass connections on by the operation's rule; `NotImplemented` where it has none for these arguments."""
        state, name = self._state, operation.name
        whole = self._copies.whole(name, call)
        rule = state.passing[name]
        expression = state.chains.of(whole) if whole is not None else state.chains.predicted(name, rule, call)
        if whole is None and tag.origin & Origin.DETACHED and not self._copies.knows(name, call):
            self._check_detached_sum(name, call)
        try:
            with state.counting():
                out = rule(call) if whole is None else self._copies.restored(call, whole)
        except PicojouleError as error:
            state.refuse(f"{name} {state.where()} {error}")
        if whole is not None:
            state.tag_written(operation.target, state.tags.get(whole))
            state.chains.follow(name, call, out, expression)
            return state.tag(out, state.tags.get(whole))
        if out is NotImplemented:
            return out
        state.chains.follow(name, call, out, expression)
        self._copies.follow(name, call, out)
        if tag.origin & Origin.SPIKES and self._copies.cuts(name):
            tag |= Tag(Origin.DETACHED)
        if tag.origin & Origin.SPIKES and not keeps_counts(name, call):
            tag |= Tag(Origin.SCALED)
        tag |= Tag(constants_in(name, call, tag.origin))
        state.tag_written(operation.target, tag)
        return state.tag(out, tag)

    def _tag_without_rule(self, name: str, call: Call, tag: Tag) -> Tag:
        """Make the tag of spikes behind an operation that no passing rule has taken."""
        state = self._state
        costly = Origin(0) if is_free(name, call, has_rule=name in state.passing) else Origin.COSTLY
        origin = (
            Origin.OPAQUE
            | costly
            | tag.origin & (Origin.WEIGHT | Origin.SHIFTED | Origin.WEIGHTED | Origin.COSTLY | Origin.UNSEEN)
            | tag.origin & (Origin.RESCALED | Origin.SUMMED | Origin.SPREAD)
        )
        if tag.origin & STRANGE and name in state.passing:
            blame = f"{name} with a tensor that is no buffer of the model {state.where()}"
            return Tag(origin, blame, "register that tensor as a buffer")
        if tag.origin & Origin.COSTLY or (tag.origin & Origin.OPAQUE and not costly):
            return Tag(origin, tag.blame, tag.remedy)
        factors = call.args[1:] if call.in_place else (*call.args, *call.kwargs.values())
        if name in SCALING and any(map(state.masks.is_empty, factors)):
            return Tag(origin, f"{name} by a tensor that is zero everywhere {state.where()}", _EMPTY)
        return Tag(origin, f"{name} {state.where()}", remedy(name))

    def _check_detached_sum(self, name: str, call: Call) -> None:
        """Refuse to add two copies of the same spikes, one with a gradient and one without, of unknown factors.

        Copies have the same connections, element by element; so a sum weighted by random numbers has the same
        gradient through both.
        """
        terms = [leaf for leaf in tree_leaves(call.args[:2]) if isinstance(leaf, Tensor) and leaf.requires_grad]
        cut = [bool(self._state.tags.get(term).origin & Origin.DETACHED) for term in terms]
        if name not in ADDS_OR_JOINS or all(cut) or not any(cut) or len({term.shape for term in terms}) > 1:
            return
        with self._state.counting(), torch.random.fork_rng(devices=[]):
            weights = torch.rand_like(terms[0])
            reached = [
                torch.autograd.grad((term * weights).sum(), self._state.emitted, retain_graph=True, allow_unused=True)
                for term in terms
            ]
        for each in zip(*reached, strict=True):
            kept, detached = (
                [g for g, c in zip(each, cut, strict=True) if c is side and g is not None] for side in (False, True)
            )
            if any(torch.equal(one, other) for one in kept for other in detached):
                refuse_detached_sum(self._state, name)

    def _is_matrix(self, value: Any) -> bool:
        """Whether a value is a constant made of parameters with more than a number for each channel."""
        if not isinstance(value, Tensor) or sum(size > 1 for size in value.shape) < 2:
            return False
        origin = self._state.tags.get(value).origin
        return bool(origin & Origin.WEIGHT) and not origin & ~INERT

    def _takes_indices(self, values: Any) -> bool:
        """Whether whole numbers of the example take part, which may be anything: pixels, indices, masks."""
        return any(
            isinstance(leaf, Tensor)
            and not leaf.is_floating_point()
            and self._state.tags.get(leaf).origin & Origin.INPUT
            for leaf in tree_leaves(values)
        )


@dataclass(frozen=True)
class _Operation:
    """One operation that the model called."""

    name: str
    func: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def target(self) -> Any:
        """What the operation writes into, or None."""
        if not _writes(self.name):
            return None
        return self.args[0] if self.args else self.kwargs.get("input")

    def run(self) -> Any:
        """Run the operation as it is.

        Views are made with gradients on, so that spikes may be written into them; writing happens with gradients off,
        so that nothing becomes part of a graph.
        """
        leaves = tree_leaves((self.args, self.kwargs))
        tracked = not any(isinstance(leaf, Tensor) and leaf.is_inference() for leaf in leaves)
        with torch.inference_mode(False), torch.set_grad_enabled(self.target is None and tracked):
            return self.func(*self.args, **self.kwargs)


def _writes(name: str) -> bool:
    """Whether an operation changes its first argument."""
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__"))


def _name(func: Callable[..., Any]) -> str:
    """Return the operation's name in PyTorch; for an attribute such as `x.T`, the attribute's.

    An operator of somebody else's has its namespace before it, so that it is not taken for one of PyTorch's.
    """
    name: str = getattr(func, "__name__", str(func))
    namespace = operator_namespace(func)
    if namespace not in (None, "aten"):
        return f"{namespace}::{name}"
    owner = getattr(func, "__self__", None)
    return getattr(owner, "__name__", name) if name == "__get__" else name
