"""Products and gates of two activations: what each spike in them costs, and what they make.

S are whole numbers of spikes, A is anything analog.

* S × S: an accumulate for each pair of spikes that meets, an entry of its own with two parents.
* S × A: an accumulate for each spike and output that it reaches, ψ of the spiking operand.
* A × A: multiply-accumulates, apart.
* S ⊙ S: a relay, whose spikes are those of both.
* S ⊙ A: an accumulate for each spike that lets a value pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_map_only
from picojoule.spikes.sums import precise
from picojoule.synapses.expression import (
    Expression,
    Made,
    Pairs,
    Scaled,
    are_scaled,
    as_it_is,
    is_moved_complement,
)
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.recording import SynapticCall
from picojoule.synapses.refusals import (
    refuse_analog,
    refuse_pooled_units,
    refuse_product,
    refuse_synaptic_input,
    refuse_weight,
)
from picojoule.synapses.rules.bilinear import ATTENTION, Bilinear, bilinear
from picojoule.synapses.rules.call import Call, shadow
from picojoule.synapses.rules.synaptic import SYNAPTIC
from picojoule.synapses.tags import INERT, STRANGE, Origin, Tag

GATES = frozenset("mul mul_ multiply multiply_".split())
QUOTIENTS = frozenset("div div_ divide divide_ true_divide true_divide_".split())


def product_of_two(
    state: PassState, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Bilinear | None:
    """Take a product apart, if it is one of two activations, or of weights that no other rule counts.

    Args:
        state: The structural pass.
        name: The operation's name.
        func: The operation.
        args: Its arguments.
        kwargs: Its named arguments.

    Returns:
        Its operands; None where a synaptic rule counts it.
    """
    try:
        product = bilinear(name, func, args, kwargs)
    except PicojouleError as error:
        state.refuse(f"{name} {state.where()} {error}")
    if name in SYNAPTIC and state.tags.get(product.right).origin & STRANGE:
        refuse_weight(state, name, state.tags.get(product.right))
    both = state.tags.is_activation(product.left) and state.tags.is_activation(product.right)
    weights = next((x for x in (product.left, product.right) if not state.tags.is_activation(x)), None)
    stacked = name == "matmul" and weights is not None and weights.dim() > 2
    return product if both or stacked or name not in SYNAPTIC else None


def count_product(state: PassState, name: str, product: Bilinear, shown: str = "") -> Any:
    """Record a product of two activations, and return what it makes: analog values, ones that no gradient passes.

    Args:
        state: The structural pass.
        name: The operation's name.
        product: Its operands.
        shown: Its name in tables, where that is another.
    """
    left, right = product.left, product.right
    if state.merging is not None:
        state.merging.end((left, right))
    place = f"{name} {state.where()}"
    spikes = [expression_of_operand(state, name, x) for x in (left, right)]
    if None not in spikes and not product.adds_up:
        state.refuse(f"{place} multiplies spikes by spikes one by one, which is a gate: write it as a * b")
    with state.counting():
        like = product.run(shadow(left), shadow(right))
        if None not in spikes:
            one, other = spikes
            assert one is not None
            assert other is not None
            pairs = Pairs(one, other, product.run, product.summed)
            call = _call(state, shown or name, place, product, like, reached=None, analog=0)
            state.make(shown or name, pairs, call)
        elif spikes == [None, None]:
            call = _call(state, shown or name, place, product, like, reached=None, analog=None)
            refuse_analog(state, place, state.tags.get(left))
            state.recording.calls.append(call)
        else:
            x = left if spikes[0] is not None else right
            reached = (x * fan_out_of(product, x)).sum()
            state.recording.reached.append(reached)
            state.recording.calls.append(_call(state, shown or name, place, product, like, reached, analog=0))
        values = torch.ones(like.shape, dtype=state.dtype, device=left.device)
    return state.tag(values, Tag(Origin.CURRENT, place))


def expression_of_operand(state: PassState, name: str, x: Tensor) -> Expression | None:
    """Find the numbers of spikes in an operand; None if it is analog."""
    tag = state.tags.get(x)
    refuse_synaptic_input(state, name, tag)
    if tag.origin & (Origin.CURRENT | Origin.INPUT):
        return None
    expression = state.chains.of(x)
    if expression is None and not tag.origin & (Origin.SHIFTED | Origin.RESCALED):
        state.refuse(
            f"{name} {state.where()} multiplies spikes that were written in place, subtracted from each other (or from "
            "a number, if they were scaled before) or passed by a rule of your own, so that pairs of them cannot be "
            "followed: build them with cat, stack, + or 1 - s"
        )
    return expression


def fan_out_of(product: Bilinear, x: Tensor, present: Tensor | None = None) -> Tensor:
    """Count the outputs that each element of one operand reaches.

    Args:
        product: The product.
        x: One of its operands.
        present: The other as ones and zeros; all ones if it is not given.
    """
    dtype = precise(x.device)
    other = product.right if x is product.left else product.left
    probe = torch.zeros(x.shape, dtype=dtype, device=x.device, requires_grad=True)
    ones = torch.ones(other.shape, dtype=dtype, device=x.device) if present is None else present.to(x.device, dtype)
    out = product.run(probe, ones) if x is product.left else product.run(ones, probe)
    (fan_out,) = torch.autograd.grad(out.sum(), probe)
    return fan_out


def _call(
    state: PassState,
    name: str,
    place: str,
    product: Bilinear,
    like: Tensor,
    reached: Tensor | None,
    analog: int | None,
) -> SynapticCall:
    """Record the cost of a product if everything were dense; `analog=None` where it is."""
    left, right = product.left, product.right
    dtype = precise(left.device)
    ones = [torch.ones(x.shape, dtype=dtype, device=x.device) for x in (left, right)]
    if product.summed is not None:
        one, other = (f(x) for f, x in zip(product.summed, ones, strict=True))
        macs = round((one * other).sum().item())
    else:
        macs = round(product.run(*ones).sum().item())
    site = state.site(name)
    return SynapticCall(
        weight=site,
        name=site,
        place=place,
        fed=tuple(left.shape),
        macs=macs,
        encoder_macs=0,
        analog_macs=macs if analog is None else analog,
        weights=right.numel(),
        outputs=like.numel(),
        reached=reached,
        fixed=False,
    )


def count_gate(state: PassState, name: str, call: Call) -> Any:
    """Count an elementwise product or quotient of two activations; `NotImplemented` if it is none.

    Args:
        state: The structural pass.
        name: The operation's name.
        call: Its arguments.

    Returns:
        What it makes: a relay of spikes, or analog values.
    """
    first, second = call.argument(0, "input"), call.argument(1, "other")
    if not (call.is_activation(first) and call.is_activation(second)):
        return NotImplemented
    tags = [state.tags.get(x) for x in (first, second)]
    joint = tags[0].origin | tags[1].origin
    if joint & (STRANGE | Origin.OPAQUE) or not joint & (Origin.SPIKES | Origin.CURRENT):
        return NotImplemented  # pixels times pixels are pixels
    if name in QUOTIENTS and joint & Origin.SPIKES:
        return NotImplemented
    spikes = [expression_of_operand(state, name, x) for x in (first, second)]
    shape = torch.broadcast_shapes(first.shape, second.shape)
    if None not in spikes:
        with state.counting():
            like = torch.empty(shape, dtype=state.dtype, device=first.device)
        times = Call(torch.mul, tuple(spikes), {}, "exact", call.is_activation)
        return _in_place(state, call, relay(state, name.rstrip("_"), Made(as_it_is, times), like))
    product = Bilinear(first, second, torch.mul)
    place, shown = f"{name} {state.where()}", name.rstrip("_")
    with state.counting():
        like = torch.empty(shape, device="meta")
        if any(map(is_moved_complement, spikes)):
            pass  # a spike that stops a value, as a reset does, costs nothing
        elif spikes == [None, None]:
            refuse_analog(state, place, tags[0])
            state.recording.calls.append(_call(state, shown, place, product, like, reached=None, analog=None))
        else:
            x = first if spikes[0] is not None else second
            reached = (x * fan_out_of(product, x)).sum()
            state.recording.reached.append(reached)
            state.recording.calls.append(_call(state, shown, place, product, like, reached, analog=0))
        values = torch.ones(shape, dtype=state.dtype, device=first.device)
    state.tags.put(values, Tag(Origin.CURRENT, place))
    return _in_place(state, call, values)


def relay(state: PassState, operation: str, expression: Expression, like: Tensor) -> Tensor:
    """Emit fresh spikes of an operation that passes some of the spikes on, which ones depends on the data."""
    name = state.make(operation, expression)
    state.recording.relays.add(name)
    spikes = state.emit_spikes(name, like)
    if are_scaled(expression):
        emitted = state.chains.of(spikes)
        assert emitted is not None
        state.chains.put(spikes, Scaled(emitted))
        state.tags.put(spikes, Tag(Origin.SPIKES | Origin.SCALED))
    return spikes


def _in_place(state: PassState, call: Call, made: Tensor) -> Tensor:
    """Put a result where the operation writes it."""
    if not call.in_place:
        return made
    target: Tensor = call.args[0]
    tag, expression = state.tags.get(made), state.chains.of(made)
    with state.counting():
        target.copy_(made)
    state.tag_written(target, tag)
    state.chains.put(target, expression)
    return target


MAX_POOLS = frozenset(f"{kind}max_pool{axes}d" for kind in ("", "adaptive_") for axes in (1, 2, 3))


def count_max_pool(state: PassState, name: str, call: Call, tag: Tag) -> Tensor:
    """Relay the spikes that a functional max pool passes on.

    Args:
        state: The structural pass.
        name: The operation's name.
        call: Its arguments.
        tag: What they carry.
    """
    x = call.argument(0, "input")
    expression = state.chains.of(x)
    if tag.origin & ~(Origin.SPIKES | Origin.DETACHED | INERT) or expression is None:
        state.refuse(
            f"{name} {state.where()} takes spikes that were scaled or mixed with other values, so what it passes on "
            "are not spikes: pool the spikes as they come from their layer, before any dropout"
        )
    refuse_pooled_units(state, state.site(name), expression)
    with state.counting():
        like = torch.empty_like(call.run(*tree_map_only(Tensor, torch.detach, call.args), **_detached(call.kwargs)))
    args = tuple(expression if value is x else value for value in call.args)
    kwargs = {key: expression if value is x else value for key, value in call.kwargs.items()}
    return relay(state, name, Made(as_it_is, replace(call, args=args, kwargs=kwargs)), like.to(state.dtype))


def _detached(kwargs: dict[str, Any]) -> dict[str, Any]:
    detached: dict[str, Any] = tree_map_only(Tensor, torch.detach, kwargs)
    return detached


def count_attention(state: PassState, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Count `scaled_dot_product_attention` as the two products that it is: Q Kᵀ, and its softmax times V.

    Args:
        state: The structural pass.
        func: The operation.
        args: Its arguments.
        kwargs: Its named arguments.
    """
    call = Call(func, args, kwargs, state.psi, state.tags.is_activation)
    query, key, value = (call.argument(i, name) for i, name in enumerate(("query", "key", "value")))
    mask, causal = call.argument(3, "attn_mask"), bool(call.argument(5, "is_causal", False))
    if call.argument(7, "enable_gqa", False) or not all(map(state.tags.is_activation, (query, key, value))):
        refuse_product(state, ATTENTION)
    if mask is not None and state.tags.is_activation(mask):
        refuse_product(state, ATTENTION)
    left = None if mask is None else (mask if mask.dtype == torch.bool else mask > -torch.inf)
    if causal:
        left = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()

    def scores(one: Tensor, other: Tensor) -> Tensor:
        product = one @ other.transpose(-2, -1)
        return product if left is None else product * left.to(product.device, product.dtype)

    def mixed(one: Tensor, other: Tensor) -> Tensor:
        return (one if left is None else one * left.to(one.device, one.dtype)) @ other

    summed = (lambda x: x.sum(-2), lambda x: x.sum(-2))
    first = Bilinear(query, key, scores, None if left is not None else summed)
    weights = count_product(state, ATTENTION, first, f"{ATTENTION}.qk")
    second = Bilinear(weights, value, mixed, None if left is not None else (summed[0], lambda x: x.sum(-1)))
    return count_product(state, ATTENTION, second, f"{ATTENTION}.v")
