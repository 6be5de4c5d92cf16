"""What the structural pass refuses, in one sentence each: what cannot be counted, where it stands, and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from picojoule.synapses.constants import is_of_a_table
from picojoule.synapses.expression import Expression, sources
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.rules.passing import READING
from picojoule.synapses.rules.readout import ADDING, ORDERING, STATISTICS, bare
from picojoule.synapses.rules.synaptic import UNCOUNTED
from picojoule.synapses.tags import INERT, STRANGE, Origin, Tag, tensors_in

_UNSEEN = (
    "a tensor whose origin cannot be seen (a neuron called as a bare function, TorchScript, or a tensor that is no "
    "buffer): make the neuron an nn.Module and declare it with picojoule.declare_spiking, trace the model before it is "
    "scripted, or register the tensor as a buffer"
)


_BY_HAND = (
    "spikes that were multiplied by constants or by what a batch norm has learned, which are synapses written by hand: "
    "write them with nn.Linear or a convolution"
)


def refuse_operation(state: PassState, name: str, func: Callable[..., Any], kwargs: dict[str, Any]) -> None:
    """Refuse an operation on activations that reads their values, is an uncounted product, or writes past autograd."""
    here = f"{name} {state.where()}"
    if name in READING:
        state.refuse(
            f"the forward pass reads the value of an activation ({here}), so what it runs may depend on the data "
            "and its synapses cannot be counted: let it depend on shapes or settings instead"
        )
    if name in UNCOUNTED:
        refuse_product(state, name)
    if kwargs.get("out") is not None:
        state.refuse(f"{here} writes its result into out=: write y = {name}(...) instead")
    if name == "__set__" and getattr(getattr(func, "__self__", None), "__name__", "") == "data":
        state.refuse(
            f"an activation is written to .data {state.where()}, past autograd: use x.copy_(y) or a new tensor"
        )


_NUMBERS = frozenset("__array__ __complex__ __dlpack__ __float__ item numpy tolist".split())
"""Operations that make numbers of Python, or arrays, of a tensor."""


def refuse_read_weights(state: PassState, name: str, args: tuple[Any, ...], tag: Tag) -> None:
    """Refuse to read a table of learned numbers into Python, where nobody sees what is multiplied by them."""
    if name not in _NUMBERS or not tag.origin & Origin.WEIGHT:
        return
    if any(is_of_a_table(value) and value.is_floating_point() for value in args):
        state.refuse(
            f"the forward pass reads weights as numbers ({name} {state.where()}), so it cannot be seen which spikes "
            "they are multiplied by: write what they do with nn.Linear or a convolution, or keep them tensors"
        )


def refuse_product(state: PassState, name: str) -> NoReturn:
    """Refuse a product of activations that has no rule."""
    if state.inside:
        state.refuse(
            f"the layer {state.inside[0]!r} multiplies by weights inside itself ({name}), and recurrent synapses are "
            "not counted: use a neuron without recurrent weights, or put them into a module beside it"
        )
    state.refuse(
        f"{name} {state.where()} multiplies activations in a way that picojoule cannot count: write it with nn.Linear "
        "or a convolution, or, if both factors are activations, with torch.matmul or torch.einsum"
    )


def refuse_weighted_sum(state: PassState, name: str, tag: Tag) -> None:
    """Refuse a sum of elements that were multiplied by constants, or a vote among them: synapses written by hand."""
    statistic = bare(name) in STATISTICS and tag.origin & ~(INERT | Origin.WEIGHTED | Origin.SPREAD) != Origin.INPUT
    weighted = Origin.WEIGHTED | Origin.SHIFTED if statistic else Origin.WEIGHTED  # a statistic is not linear
    if tag.origin & weighted and (bare(name) in ADDING or statistic):
        state.refuse(
            f"{name} {state.where()} adds up values that were multiplied by constants or compared with them, which "
            "are synapses written by hand: write them with nn.Linear or a convolution, or put the constants into "
            "the weights that follow"
        )
    if tag.origin & Origin.SPREAD and bare(name) in ORDERING and "softm" not in name:
        state.refuse(
            f"{name} {state.where()} compares values that met several constants each, which are synapses written by "
            "hand: write them with nn.Linear or a convolution"
        )


_CHOOSING = frozenset("__getitem__ __setitem__ gather index index_select take take_along_dim".split())
"""Operations that take elements by their numbers."""


def refuse_drawn_order(state: PassState, name: str, tag: Tag, others: Any, kwargs: dict[str, Any]) -> None:
    """Refuse to choose among spikes by numbers that are drawn in the forward pass."""
    if name not in _CHOOSING or not tag.origin & Origin.SPIKES:
        return
    if any(state.tags.get(tensor).origin & Origin.RANDOM for tensor in tensors_in((others, kwargs))):
        state.refuse(
            f"{name} {state.where()} takes spikes by numbers that are drawn in every call, so the synapses that a "
            "spike reaches differ: draw the numbers once and keep them in a buffer"
        )


def refuse_weight(state: PassState, name: str, tag: Tag) -> None:
    """Refuse a synaptic operation whose weight is not one: a tensor of unknown origin."""
    if tag.origin & STRANGE:
        state.refuse(
            f"the weight of {name} {state.where()} is neither a parameter nor a buffer of the model: register it as one"
        )
    if tag.origin & ~INERT:
        state.refuse(
            f"{name} {state.where()} multiplies two activations in a way that picojoule cannot count: write it with "
            "torch.matmul or torch.einsum"
        )


def refuse_synaptic_input(state: PassState, name: str, tag: Tag) -> None:
    """Refuse a synaptic operation that is fed by what has no rule or cannot be seen."""
    here = f"{name} {state.where()}"
    if tag.origin & Origin.OPAQUE:
        state.refuse(f"{tag.blame} has no rule and stands between spikes and {here}: {tag.remedy}")
    if tag.origin & STRANGE:
        state.refuse(f"{here} is fed by {_UNSEEN}")
    if tag.origin & Origin.FIRED:
        _refuse_no_neuron(state, here, tag)


def refuse_analog(state: PassState, here: str, tag: Tag) -> None:
    """Refuse a product that analog values feed, if the caller wants none."""
    if state.strict:
        _refuse_no_neuron(state, here, tag, ", or leave out strict=True to have it counted apart, as analog")


def _refuse_no_neuron(state: PassState, here: str, tag: Tag, otherwise: str = "") -> NoReturn:
    state.refuse(
        f"{here} is fed by {tag.blame or 'analog values'} with no spiking layer between them: put a spiking layer "
        "there, or declare the module that fires as one with picojoule.declare_spiking (a bare function that fires "
        f"must be made a module first){otherwise}"
    )


def refuse_detached_sum(state: PassState, name: str) -> NoReturn:
    """Refuse a sum of spikes and a detached copy of them that is not known to give the spikes back."""
    state.refuse(
        f"{name} {state.where()} adds spikes and a copy of them without their gradient, by factors that cannot be "
        "seen, so it cannot be known whether they count once or twice: scale a gradient as "
        "a * z + ((1 - a) * z).detach(), with a number or a tensor a"
    )


def refuse_pooled_units(state: PassState, name: str, pooled: Expression | None) -> None:
    """Refuse a max pool of spikes that are worth something else than 1: the largest value is not the most spikes."""
    worth = state.units if pooled is None else {source.name for source in sources(pooled)} & state.units
    if worth:
        state.refuse(
            f"the max pool {name!r} takes spikes of {', '.join(map(repr, sorted(worth)))}, which are declared with "
            "unit= or signed=, so what it passes on is no number of spikes: pool before the neurons"
        )


def refuse_layer_input(state: PassState, name: str, arrivals: Any) -> None:
    """Refuse a spiking layer or relay that is fed by what has no rule or cannot be seen."""
    tag = state.tags.joint(arrivals)
    if tag.origin & Origin.OPAQUE:
        state.refuse(
            f"{tag.blame} has no rule and stands between spikes and the layer {name!r}, so what it costs is "
            f"unknown: {tag.remedy}"
        )
    if tag.origin & Origin.SUMMED:
        state.refuse(f"the layer {name!r} is fed by a sum of {_BY_HAND}")
    if tag.origin & Origin.UNSEEN:
        state.refuse(f"the layer {name!r} is fed by {_UNSEEN}")


def refuse_changed_constants(state: PassState) -> None:
    """Refuse a tensor in a plain attribute that the forward pass uses and then replaces: a state of an earlier call."""
    name = state.tags.changed_plain()
    if name is not None:
        state.refuse(
            f"the module {name!r} holds a tensor of an earlier call, whose origin cannot be seen, and uses it: reset "
            "the model's state before it is traced"
        )


def refuse_output(state: PassState, output: Any) -> None:
    """Refuse an output with a path from a spike on which something may cost and was not counted.

    An operation without a rule may end a model (a vote, a softmax) if it is one of `rules.readout` and no weights take
    part in it.
    """
    tag = state.tags.joint(tensors_in(output))
    if tag.origin & Origin.OPAQUE and tag.origin & (Origin.WEIGHT | Origin.COSTLY):
        with_weights = " together with weights" if tag.origin & Origin.WEIGHT else ""
        state.refuse(
            f"{tag.blame} has no rule and stands between spikes and the model's output{with_weights}, so what it "
            "costs is unknown: write its synapses with nn.Linear or a convolution, or, if it has none, let the "
            "model return what goes into it"
        )
    if tag.origin & Origin.SUMMED:
        state.refuse(f"the model's output is a sum of {_BY_HAND}")
    if tag.origin & Origin.UNSEEN:
        state.refuse(f"the model's output is {_UNSEEN}")
