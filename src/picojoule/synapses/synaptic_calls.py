"""Counting one call of a synaptic operation: how many synapses each element of its input feeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from picojoule.errors import Clause, PicojouleError
from picojoule.kernels.torch_private import torch_function_disabled, tree_leaves, tree_map_only
from picojoule.spikes.sums import precise
from picojoule.synapses.merging import Merging, fold
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.products import count_product, fan_out_of, product_of_two
from picojoule.synapses.recording import SynapticCall
from picojoule.synapses.refusals import refuse_analog, refuse_synaptic_input, refuse_weight
from picojoule.synapses.rules.bilinear import BILINEAR, Bilinear
from picojoule.synapses.rules.call import Call, shadow
from picojoule.synapses.rules.synaptic import EITHER_SIDE, SYNAPTIC
from picojoule.synapses.tags import Origin, Tag


def count_call(
    state: PassState, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Record one call of a synaptic operation and return currents: ones that no gradient passes."""
    product = product_of_two(state, name, func, args, kwargs) if name in BILINEAR else None
    if product is not None and all(map(state.tags.is_activation, (product.left, product.right))):
        return count_product(state, name, product)
    x, weight = (product.left, product.right) if product is not None else operands(args, kwargs)
    if product is not None or name in EITHER_SIDE:
        x, weight = _weight_last(state, x, weight)
    refuse_weight(state, name, state.tags.get(weight))
    refuse_synaptic_input(state, name, state.tags.get(x))
    place = f"{name} {state.where()}"
    call = Call(func, args, kwargs, state.psi, state.tags.is_activation)
    with state.counting():
        like = func(*tree_map_only(Tensor, shadow, args), **tree_map_only(Tensor, shadow, kwargs))
        try:
            present = state.masks.left_of(weight)
            fan_out = _fan_out(name, call, product, x, present)
        except PicojouleError as error:
            state.refuse(f"{place} {error}")
        currents = torch.ones_like(like, dtype=weight.dtype, device=x.device)
        layer = _Layer(_name_of(state, weight, name), id(weight), place, like.numel())
        if state.merging is None:
            layer.record(state, x, fan_out, round(present.sum().item()))
        else:
            _count_folded(state, state.merging, name, call, x, present, fan_out, layer, currents)
    return state.tag(currents, Tag(Origin.CURRENT, place))


@dataclass(frozen=True)
class _Layer:
    """A layer of weights, as its calls are recorded."""

    name: str
    weight: int | str
    place: str
    outputs: int

    def record(self, state: PassState, x: Tensor, fan_out: Tensor, weights: int) -> SynapticCall:
        """Record what the layer costs for one activation.

        Args:
            state: The structural pass.
            x: The activation that feeds it.
            fan_out: How many synapses each of its elements feeds.
            weights: How many weights the layer has.
        """
        tag = state.tags.get(x)
        spikes, analog = bool(tag.origin & Origin.SPIKES), bool(tag.origin & Origin.CURRENT)
        if analog:
            refuse_analog(state, self.place, tag)
        everywhere, there = fan_out.expand(x.shape).double(), x.detach() > 0
        reached = (x * fan_out * ~there if analog else x * fan_out).sum() if spikes else None
        if reached is not None:
            state.recording.reached.append(reached)
        macs = round((everywhere * there).sum().item()) if tag.origin & (Origin.INPUT | Origin.CURRENT) else 0
        recorded = SynapticCall(
            weight=self.weight,
            name=self.name,
            place=self.place,
            fed=tuple(x.shape),
            macs=round(everywhere.sum().item()),
            encoder_macs=0 if analog else macs,
            analog_macs=macs if analog else 0,
            weights=weights,
            outputs=self.outputs,
            reached=reached,
        )
        state.recording.calls.append(recorded)
        return recorded


def _count_folded(
    state: PassState,
    merging: Merging,
    name: str,
    call: Call,
    x: Tensor,
    present: Tensor,
    fan_out: Tensor,
    layer: _Layer,
    currents: Tensor,
) -> None:
    """Record a layer of weights as one with those before it, up to the spikes, the input or analog values."""
    try:
        parts = fold(merging, name, call, x, present)
    except Clause as clause:
        if merging.chained(x):
            state.refuse(
                f"{layer.place} cannot be merged with the layers of weights before it ({clause}): trace with "
                "chains='run', which counts each of them"
            )
        layer.record(state, x, fan_out, round(present.sum().item()))
        merging.break_off(currents, f"{layer.place}: {clause}")
        return
    links = []
    for part in parts:
        before = part.link.layers[-1:]
        merged = [
            _Layer(f"{b.name}·{layer.name}", f"{b.weight}·{layer.weight}", layer.place, layer.outputs) for b in before
        ]
        recorded = (merged or [layer])[0].record(state, part.link.source, part.reach.fan_out(), part.reach.weights)
        links.append(part.behind(recorded))
    merging.made(currents, tuple(links))


def _weight_last(state: PassState, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Put the factor behind that is made of weights; the other may be the zeros of a state."""
    made_of_weights = (
        bool(state.tags.get(x).origin & Origin.WEIGHT) and not state.tags.get(weight).origin & Origin.WEIGHT
    )
    if not state.tags.is_activation(x) and (state.tags.is_activation(weight) or made_of_weights):
        return weight, x
    return x, weight


def _fan_out(name: str, call: Call, product: Bilinear | None, x: Tensor, present: Tensor) -> Tensor:
    if product is not None:
        return fan_out_of(product, x, present)
    return SYNAPTIC[name](call, x, present).detach().to(x.device, precise(x.device))


def _name_of(state: PassState, weight: Tensor, operation: str) -> str:
    """Name weights by the module that holds them, those inside a neuron by their part, others by the operation."""
    layer = _layer_of(state, weight)
    if state.part is not None and (layer is None or state.part.startswith(f"{layer}.")):
        return state.part
    return layer or state.site(operation)


def _layer_of(state: PassState, weight: Tensor) -> str | None:
    """Name the running module if the weight is its own."""
    path = state.path[-1] if state.path else ""
    module = state.model.get_submodule(path)
    own = (*module.parameters(recurse=False), *tree_leaves(list(vars(module).values())))
    return path if path and any(weight is tensor for tensor in own) else None


def count_unit_synapses(state: PassState, name: str, arrivals: Any) -> None:
    """Count the spikes that reach a neuron without a weight, each as one synapse for each neuron that it reaches.

    Args:
        state: The structural pass.
        name: The layer's name.
        arrivals: What the layer is called with.
    """
    own = state.fired.get(name, [])  # a reset: what a layer gives back to itself has no synapse
    for x in tree_leaves(arrivals):
        if isinstance(x, Tensor) and state.tags.get(x).origin & Origin.SPIKES and x.requires_grad:
            with state.counting(), torch_function_disabled():
                reached = x.sum()
                back = torch.autograd.grad(reached, own, allow_unused=True, retain_graph=True) if own else ()
                for leaf, gradient in zip(own, back, strict=True):
                    reached = reached if gradient is None else reached - (leaf * gradient).sum()
            state.recording.reached.append(reached)
            state.recording.calls.append(
                SynapticCall(
                    weight=f"unit synapses of {name}",
                    name=name,
                    place=f"the layer {name!r}",
                    fed=tuple(x.shape),
                    macs=0,
                    encoder_macs=0,
                    analog_macs=0,
                    weights=0,
                    outputs=x.numel(),
                    reached=reached,
                    unit=True,
                )
            )


def weighs_constant(state: PassState, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether weights are applied to a constant that is no weight itself, such as the zeros a state begins with."""
    if name not in SYNAPTIC or ".parametrizations." in f".{state.path[-1] if state.path else ''}.":
        return False
    first, second = (bool(state.tags.get(t).origin & Origin.WEIGHT) for t in operands(args, kwargs))
    return second > first or (first > second and name in EITHER_SIDE)


def weighs_nothing(state: PassState, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the constant that weights are applied to is all zeros, as a state is before the first step."""
    first, second = operands(args, kwargs)
    constant = second if name in EITHER_SIDE and state.tags.get(first).origin & Origin.WEIGHT else first
    return not state.tags.get(constant).origin & (Origin.RANDOM | Origin.WEIGHT) and not bool(constant.any())


def operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """Return the two factors of a product, however they were passed."""
    named = [kwargs[k] for k in ("input", "self", "weight", "other", "mat2") if k in kwargs]
    first, second = [a for a in (*args[:2], *named) if isinstance(a, Tensor)][:2]
    return first, second
