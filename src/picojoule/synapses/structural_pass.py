"""The structural pass: one forward pass of the model on connections instead of numbers.

Every operation that the model calls, as a module or as a function, is intercepted (`torch.overrides.TorchFunctionMode`)
and its tensors are tagged by where they come from: spikes, the network's input, the currents behind synapses,
constants. Spiking layers emit fresh leaves of value 0 that require a gradient, the input is all ones, and the graph is
cut behind each layer of synapses. So

* the gradient of Σ_synaptic Σ x·n(x), with n the fan-out rule of `rules`, is at each neuron the number of synapses ψ
  that its spike reaches, through pools, skips and reshapes;
* an element of value > 0 in front of a synapse comes from the input: those are the encoder's multiply-accumulates.

A tensor without a tag was made by code that cannot be seen (TorchScript, a C++ extension). Nothing of unknown origin,
and nothing that passed an operation without a rule, may reach a synapse: it is refused by name. Memory that is written
in place carries what was written under all its names (views). Below the operations, the kernels are watched too, so
that a product that was called past the tables is refused instead of lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.overrides import TorchFunctionMode

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import (
    SET_GRAD_ENABLED,
    SUBMODULES,
    TorchDispatchMode,
    torch_function_disabled,
    tree_leaves,
    tree_map_only,
)
from picojoule.spikes.frameworks import Silent, kind_of
from picojoule.spikes.spiking import (
    described,
    first_output,
    is_relay,
    is_spiking,
    replace_first_output,
    spiking_modules,
)
from picojoule.spikes.sums import precise
from picojoule.synapses.constants import constants_in
from picojoule.synapses.copies import Copies
from picojoule.synapses.masks import Masks
from picojoule.synapses.rules.call import Call, Psi, shadow
from picojoule.synapses.rules.declared import remedy
from picojoule.synapses.rules.passing import CREATING, PASSING, RANDOM, READING, SCALING, SHAPED_BY, keeps_counts
from picojoule.synapses.rules.readout import ADDING, STATISTICS, bare, is_free
from picojoule.synapses.rules.synaptic import EITHER_SIDE, SYNAPTIC, UNCOUNTED, is_product
from picojoule.synapses.tags import ACTIVATION, INERT, STRANGE, Origins, Source, Tag, pruned_tensors, tensors_in

StandIn = Callable[[Any, Any], Any]

_OWN_NAMESPACES = frozenset(["aten", "prim", "prims", "profiler"])
_UNSEEN = (
    "a tensor whose origin cannot be seen (a neuron called as a bare function, TorchScript, or a tensor that is no "
    "buffer); make the neuron an nn.Module and declare it with picojoule.declare_spiking, trace the model before it is "
    "scripted, or register the tensor as a buffer"
)
_EMPTY = (
    "if it is a mask, leave this part out of the traced model; if it changes later, trace with a value that it takes "
    "then"
)


@dataclass
class SynapticCall:
    """The multiply-accumulates of one call of a synaptic operation, for everything and for the analog inputs alone."""

    weight: int
    """The identity of the weight: the same for every call of one synaptic layer."""
    place: str
    """The operation and its module, in words."""
    fed: tuple[int, ...]
    """The shape of what it was fed."""
    macs: int
    analog_macs: int
    weights: int
    """Weights of the layer, without those that were pruned."""
    outputs: int
    """Elements that it puts out, over all samples."""
    reached: Tensor | None
    """Σ x·n of this call, if spikes feed it."""


@dataclass
class Recording:
    """What one structural pass found."""

    leaves: dict[str, list[Tensor]] = field(default_factory=dict)
    """The emissions of each spiking layer and relay, call by call, in the order of first use."""
    relays: set[str] = field(default_factory=set)
    calls: list[SynapticCall] = field(default_factory=list)
    reached: list[Tensor] = field(default_factory=list)
    """Σ x·n of each synaptic call that spikes feed."""
    touched: set[int] = field(default_factory=set)
    """The identities of the parameters (and of pruned weights) that an operation took."""
    refusal: PicojouleError | None = None
    """Kept, because a model (or TorchScript) may catch the error and go on."""


class StructuralPass(TorchFunctionMode):
    """Runs while the model's forward pass does; `recording` holds what was found."""

    def __init__(self, model: nn.Module, psi: Psi) -> None:
        super().__init__()
        self.recording = Recording()
        self._psi = psi
        self._path: list[str] = []
        self._inside: list[str] = []
        """Spiking layers and relays that are running now: what happens inside them is their own affair."""
        self._sanctioned = 0
        """Above 0 while products may run: those of constants, and those that are being counted."""
        self._dtype = torch.get_default_dtype()
        self._thread = threading.get_ident()
        self._model = model
        self._pruned = pruned_tensors(model)
        self._origins = Origins(model, self._pruned)
        self._masks = Masks(self._origins, self._pruned)
        self._copies = Copies()
        self._weights = {id(tensor) for tensor in model.parameters()}
        self._weights |= {id(getattr(module, name)) for module, name in self._pruned}

    def begin_another_call(self) -> None:
        """Record anew, on a model in the state that the call before has left it in."""
        self.recording = Recording(touched=self.recording.touched)

    # ------------------------------------------------------------------------------------------------------------- tags

    def _tagged(self, out: Any, tag: Tag) -> Any:
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                if tag.source & Source.SPIKES and leaf.dtype in (torch.float16, torch.bfloat16):
                    self.refuse(
                        f"spikes are written into a {leaf.dtype} tensor {self._where()}, where counts above 256 would "
                        "be rounded; trace the model in float32"
                    )
                self._origins.put(leaf, tag)
        return out

    def _overwritten(self, target: Any, tag: Tag) -> None:
        self._tagged(target, tag)
        self._origins.overwrite(target, tag)

    def emit_input(self, example: Any) -> Any:
        """The example with ones in place of its numbers (indices and masks keep theirs)."""

        def ones(tensor: Tensor) -> Tensor:
            with torch.inference_mode(False):
                emitted = torch.ones_like(tensor) if tensor.is_floating_point() else tensor.clone()
            self._origins.put(emitted, Tag(Source.INPUT))
            return emitted

        return tree_map_only(Tensor, ones, example)

    def _emit_spikes(self, name: str, like: Tensor) -> Tensor:
        with self._counting():
            # float64, so that counts stay exact however the paths branch and join; not every device has it.
            leaf = torch.zeros_like(like, dtype=precise(like.device), requires_grad=True)
            self.recording.leaves.setdefault(name, []).append(leaf)
            self._dtype = like.dtype
            emitted = leaf.clone()  # what the model gets may be written to in place
        self._origins.put(emitted, Tag(Source.SPIKES))
        return emitted

    def _as_emitted(self, tensor: Tensor) -> Tensor:
        """Spikes in the dtype that the model gave them, for operations that insist on it."""
        return tensor.to(self._dtype) if self._origins.get(tensor).source & Source.SPIKES else tensor

    def _where(self) -> str:
        return f"in module {self._path[-1]!r}" if self._path and self._path[-1] else "in the model's forward pass"

    def refuse(self, message: str) -> NoReturn:
        self.recording.refusal = PicojouleError(message)
        raise self.recording.refusal

    @contextmanager
    def _sanctioning(self) -> Iterator[None]:
        self._sanctioned += 1
        try:
            yield
        finally:
            self._sanctioned -= 1

    @contextmanager
    def _counting(self) -> Iterator[None]:
        """Derivatives are connections here, whatever the model has switched off or (checkpointing) put off."""
        with (
            self._sanctioning(),
            torch.inference_mode(False),
            torch.enable_grad(),
            saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor),
        ):
            yield

    # ------------------------------------------------------------------------------------------------------- operations

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        if name in SHAPED_BY and len(args) == 2 and isinstance(args[1], Tensor):
            args = (args[0], torch.empty_like(args[1]))
            self._origins.put(args[1], Tag(Source.CONSTANT))
        self.recording.touched |= {id(leaf) for leaf in tree_leaves((args, kwargs)) if id(leaf) in self._weights}
        tag = self._origins.joint((args, kwargs))
        target = (args[0] if args else kwargs.get("input")) if _writes(name) else None
        active = bool(tag.source & ~INERT)
        if self._inside:
            return self._own_affair(name, func, args, kwargs, target, active)
        if not active:
            return self._constants(name, func, args, kwargs, target, tag)
        if name in CREATING and not self._origins.is_activation(
            (args[1:], {k: v for k, v in kwargs.items() if k != "input"})
        ):
            drawn = Source.RANDOM if name in RANDOM else Source(0)
            return self._tagged(self._plain(func, args, kwargs, None), Tag(Source.CONSTANT | drawn))
        self._refuse_operation(name, func, kwargs)
        if name == "register_hook":  # it would act on the connections; the handle is all that the model gets
            return func(torch.zeros((), requires_grad=True), *args[1:], **kwargs)
        if name in SYNAPTIC:
            return self._synapses(name, func, args, kwargs)
        if name in SCALING and any(map(self._is_matrix, (*args, *kwargs.values()))):
            self._refuse_product(name)  # a linear layer written as product and sum
        self._refuse_weighted_sum(name, tag)
        call = Call(func, args, kwargs, self._psi, self._origins.is_activation, self._masks.mask_of)
        if tag.source & ACTIVATION and name in PASSING and not self._takes_indices((args, kwargs)):
            whole = self._copies.whole(name, call)
            try:
                with self._counting():
                    out = PASSING[name](call) if whole is None else whole.clone()
            except PicojouleError as error:
                self.refuse(f"{name} {self._where()} {error}")
            if whole is not None:
                return self._tagged(out, self._origins.get(whole))
            if out is not NotImplemented:
                self._copies.follow(name, call, out)
                if tag.source & Source.SPIKES and not keeps_counts(name, call):
                    tag |= Tag(Source.SCALED)
                tag |= Tag(constants_in(name, call, tag.source))
                self._overwritten(target, tag)
                return self._tagged(out, tag)
        try:
            out = self._plain(func, args, kwargs, target)
        except Exception:
            if self.recording.refusal or not tag.source & Source.SPIKES or target is not None:
                raise
            args, kwargs = tree_map_only(Tensor, self._as_emitted, (args, kwargs))
            out = self._plain(func, args, kwargs, target)
        tag |= Tag(constants_in(name, call, tag.source))
        if tag.source & (Source.SPIKES | Source.OPAQUE):
            tag = self._without_rule(name, call, tag)
        elif tag.source & ~(INERT | Source.WEIGHTED) == Source.INPUT:
            # Anything done to pixels leaves pixels: an analog value everywhere.
            for leaf in tree_leaves((out, target)):
                if isinstance(leaf, Tensor) and leaf.is_floating_point():
                    leaf.fill_(1)
        self._overwritten(target, tag)
        return self._tagged(out, tag)

    def _without_rule(self, name: str, call: Call, tag: Tag) -> Tag:
        """The tag of spikes behind an operation that no rule of `PASSING` has taken."""
        costly = Source(0) if is_free(name, call) else Source.COSTLY
        source = (
            Source.OPAQUE
            | costly
            | tag.source & (Source.WEIGHT | Source.SHIFTED | Source.WEIGHTED | Source.COSTLY | Source.UNSEEN)
        )
        if tag.source & STRANGE and name in PASSING:
            blame = f"{name} with a tensor that is no buffer of the model {self._where()}"
            return Tag(source, blame, "register that tensor as a buffer")
        if tag.source & Source.COSTLY or (tag.source & Source.OPAQUE and not costly):
            return Tag(source, tag.blame, tag.remedy)
        factors = call.args[1:] if call.in_place else (*call.args, *call.kwargs.values())
        if name in SCALING and any(map(self._masks.is_empty, factors)):
            return Tag(source, f"{name} by a tensor that is zero everywhere {self._where()}", _EMPTY)
        return Tag(source, f"{name} {self._where()}", remedy(name))

    def _refuse_weighted_sum(self, name: str, tag: Tag) -> None:
        statistic = bare(name) in STATISTICS and tag.source & ~(INERT | Source.WEIGHTED) != Source.INPUT
        weighed = Source.WEIGHTED | Source.SHIFTED if statistic else Source.WEIGHTED  # a statistic is not linear
        if tag.source & weighed and (bare(name) in ADDING or statistic):
            self.refuse(
                f"{name} {self._where()} adds up values that were multiplied by constants or compared with them, which "
                "are synapses written by hand; write them with nn.Linear or a convolution, or put the constants into "
                "the weights that follow"
            )

    def _plain(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], target: Any) -> Any:
        """The operation itself. Views are made with gradients on, so that spikes may be written into them; writing
        happens with gradients off, so that nothing becomes part of a graph."""
        tracked = not any(isinstance(leaf, Tensor) and leaf.is_inference() for leaf in tree_leaves((args, kwargs)))
        with torch.inference_mode(False), torch.set_grad_enabled(target is None and tracked):
            return func(*args, **kwargs)

    def _constants(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], target: Any, tag: Tag
    ) -> Any:
        if self._weighs_constant(name, args, kwargs):
            self.refuse(
                f"{name} {self._where()} is fed by a constant, not by the input or spikes; if this is the first "
                "value of a recurrent state, its synapses cannot be counted: leave the recurrence out; else "
                "compute the constant beforehand"
            )
        if name == SET_GRAD_ENABLED:
            self._copies.gradients = bool(args[0])
        with self._sanctioning():
            out = self._masks.followed(func, args, kwargs, target, lambda: self._plain(func, args, kwargs, target))
        tag |= Tag(Source.CONSTANT | (Source.RANDOM if name in RANDOM else Source(0)))
        if tag.source & (Source.RANDOM | Source.WEIGHT):
            self._overwritten(target, tag)
        return self._tagged(out, tag)

    def _weighs_constant(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether weights are applied to a constant that is no weight itself, such as the zeros a state begins with."""
        if name not in SYNAPTIC or ".parametrizations." in f".{self._path[-1] if self._path else ''}.":
            return False
        first, second = (bool(self._origins.get(t).source & Source.WEIGHT) for t in _operands(args, kwargs))
        return second > first or (first > second and name in EITHER_SIDE)

    def _own_affair(
        self,
        name: str,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        active: bool,
    ) -> Any:
        """An operation inside a spiking layer or a relay."""
        if not active:
            if self._weighs_constant(name, args, kwargs):
                self._refuse_product(name)
            with self._sanctioning():
                return self._tagged(self._plain(func, args, kwargs, target), Tag(Source.CONSTANT))
        if name in SYNAPTIC or name in UNCOUNTED:
            self._refuse_product(name)
        out = self._plain(func, args, kwargs, target)
        state = Tag(Source.CURRENT, f"the state of {self._inside[0]!r}")
        self._overwritten(target, state)
        return self._tagged(out, state)

    def _refuse_operation(self, name: str, func: Callable[..., Any], kwargs: dict[str, Any]) -> None:
        here = f"{name} {self._where()}"
        if name in READING:
            self.refuse(
                f"the forward pass reads the value of an activation ({here}), so what it runs may depend on the data "
                "and its synapses cannot be counted; let it depend on shapes or settings instead"
            )
        if name in UNCOUNTED:
            self._refuse_product(name)
        if kwargs.get("out") is not None:
            self.refuse(f"{here} writes its result into out=; write y = {name}(...) instead")
        if name == "__set__" and getattr(getattr(func, "__self__", None), "__name__", "") == "data":
            self.refuse(
                f"an activation is written to .data {self._where()}, past autograd; use x.copy_(y) or a new tensor"
            )

    def _refuse_product(self, name: str) -> NoReturn:
        if self._inside:
            self.refuse(
                f"the layer {self._inside[0]!r} multiplies by weights inside itself ({name}): recurrent "
                "synapses are not counted; use a neuron without recurrent weights, or put them into a module beside "
                "it"
            )
        self.refuse(
            f"{name} {self._where()} multiplies activations in a way that picojoule cannot count; "
            "write it with nn.Linear or a convolution, or leave this part out of the traced model"
        )

    def check_output(self, output: Any) -> None:
        """On every path from a spike to the output stands a counted synapse, or nothing but what is known to be free.

        An operation without a rule may end a model (a vote, a softmax) if it is one of `rules.readout` and no weights
        take part in it.
        """
        tag = self._origins.joint(tensors_in(output))
        if tag.source & Source.OPAQUE and tag.source & (Source.WEIGHT | Source.COSTLY):
            with_weights = " together with weights" if tag.source & Source.WEIGHT else ""
            self.refuse(
                f"{tag.blame} has no rule and stands between spikes and the model's output{with_weights}, so what it "
                "costs is unknown: write its synapses with nn.Linear or a convolution, or, if it has none, let the "
                "model return what goes into it"
            )
        if tag.source & Source.UNSEEN:
            self.refuse(f"the model's output is {_UNSEEN}")

    def ran_kernel(self, name: str, namespace: str) -> None:
        """Called for every kernel that runs: a product that no table has seen is refused, and so is a kernel that is
        not PyTorch's own, which may hold weights."""
        if self._sanctioned:
            return
        if namespace not in _OWN_NAMESPACES and not self._inside:
            self.refuse(
                f"{namespace}::{name} {self._where()} is no operation of PyTorch that picojoule knows (a quantised "
                "layer, a custom operator), so the synapses in it cannot be counted; trace the model before it is "
                "quantised, or write the operation with PyTorch's own operators"
            )
        if name in SYNAPTIC or name in UNCOUNTED or is_product(name):
            self._refuse_product(name)

    def _is_matrix(self, value: Any) -> bool:
        """Whether a value is a constant made of parameters with more than a number for each channel."""
        if not isinstance(value, Tensor) or sum(size > 1 for size in value.shape) < 2:
            return False
        source = self._origins.get(value).source
        return bool(source & Source.WEIGHT) and not source & ~INERT

    def _takes_indices(self, values: Any) -> bool:
        """Whole numbers of the example may be anything: pixels, indices, masks. They have no connections yet."""
        return any(
            isinstance(leaf, Tensor) and not leaf.is_floating_point() and self._origins.get(leaf).source & Source.INPUT
            for leaf in tree_leaves(values)
        )

    # --------------------------------------------------------------------------------------------------------- synapses

    def _synapses(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        x, weight = _operands(args, kwargs)
        if name in EITHER_SIDE and not self._origins.is_activation(x):
            x, weight = weight, x
        known = self._origins.get(weight)
        if known.source & STRANGE:
            self.refuse(
                f"the weight of {name} {self._where()} is neither a parameter nor a buffer of the model; register it "
                "as one"
            )
        if known.source & ~INERT:
            self.refuse(
                f"{name} {self._where()} multiplies two activations (as attention does), which has no fixed number of "
                "synapses; only products with weights can be counted, so leave this part out of the traced model"
            )
        tag = self._origins.get(x)
        self._refuse_uncountable(name, tag)
        call = Call(func, args, kwargs, self._psi, self._origins.is_activation)
        with self._counting():
            like = func(*tree_map_only(Tensor, shadow, args), **tree_map_only(Tensor, shadow, kwargs))
            try:
                present = self._masks.left_of(weight)
                fan_out = SYNAPTIC[name](call, x, present).detach().to(x.device, precise(x.device))
            except PicojouleError as error:
                self.refuse(f"{name} {self._where()} {error}")
            reached = (x * fan_out).sum() if tag.source & Source.SPIKES else None
            if reached is not None:
                self.recording.reached.append(reached)
            everywhere = fan_out.expand(x.shape).double()
            analog = everywhere * (x.detach() > 0) if tag.source & Source.INPUT else everywhere.new_zeros(())
            currents = torch.ones_like(like, dtype=weight.dtype, device=x.device)
        self.recording.calls.append(
            SynapticCall(
                weight=id(weight),
                place=f"{name} {self._where()}",
                fed=tuple(x.shape),
                macs=round(everywhere.sum().item()),
                analog_macs=round(analog.sum().item()),
                weights=round(present.sum().item()),
                outputs=like.numel(),
                reached=reached,
            )
        )
        return self._tagged(currents, Tag(Source.CURRENT, f"{name} {self._where()}"))

    def _refuse_uncountable(self, name: str, tag: Tag) -> None:
        here = f"{name} {self._where()}"
        if tag.source & Source.OPAQUE:
            self.refuse(f"{tag.blame} has no rule and stands between spikes and {here}: {tag.remedy}")
        if tag.source & STRANGE:
            self.refuse(f"{here} is fed by {_UNSEEN}")
        if tag.source & Source.CURRENT:
            self.refuse(
                f"{here} is fed by {tag.blame} with no spiking layer between them; put a spiking layer there, or "
                "declare the module that fires as one with picojoule.declare_spiking (a bare function that fires must "
                "be made a module first)"
            )

    # ---------------------------------------------------------------------------------------------------------- modules

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follow the model's modules (names for messages) and stand in for its spiking layers and relays."""
        spiking = {id(m): name for name, m in spiking_modules(self._model).items()}
        handles = []
        try:
            for name, module in unregistered(self._model):
                handles.append(module.register_forward_pre_hook(self._refuse_unregistered(name)))
            for name, module in self._model.named_modules():
                if isinstance(module, torch.jit.ScriptModule):  # takes no hooks; the products in it are noticed
                    if id(module) in spiking:
                        self.refuse(
                            f"the spiking layer {name!r} is TorchScript, which cannot be followed: trace the model "
                            "before"
                        )
                    continue
                enter, leave = self._hooks(name, self._stand_in(name, module, spiking=id(module) in spiking))
                handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
                handles.append(module.register_forward_hook(leave, with_kwargs=True))
            with _Kernels(self):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _refuse_unregistered(self, name: str) -> Callable[[nn.Module, Any], NoReturn]:
        def refuse(module: nn.Module, arguments: Any) -> NoReturn:
            self.refuse(
                f"the spiking layer {described(module)} in {name!r} is no module of the model, so it cannot be "
                "watched: hold it in an nn.ModuleList or nn.ModuleDict instead of a list or dict"
            )

        return refuse

    def _stand_in(self, name: str, module: nn.Module, *, spiking: bool) -> StandIn | None:
        """What takes the place of a module's output, given what arrived and what it returned."""
        if spiking:
            return lambda arrivals, output: self._fired(module, name, output)
        if is_relay(module):
            return lambda arrivals, output: self._relayed(name, arrivals, output)
        kind = kind_of(module)
        if isinstance(kind, Silent):
            tag = Tag(Source.CURRENT, f"the layer {name!r} ({described(module)}), which emits {kind.emits},")
            return lambda arrivals, output: self._tagged(output, tag)
        return None

    def _hooks(self, name: str, stand_in: StandIn | None) -> tuple[Callable[..., None], Callable[..., Any]]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            if threading.get_ident() != self._thread:  # what it computes there would be connections, not numbers
                self.refuse(
                    f"the module {name!r} was called by another thread while its model is being traced: trace the "
                    "model before the threads use it"
                )
            self._path.append(name)
            if isinstance(module, nn.RNNBase) and self._origins.is_activation((args, kwargs)):
                self._refuse_product(module.mode.lower())
            if stand_in is not None:
                if not self._inside:
                    self._check_arrivals(name, (args, kwargs))
                self._inside.append(name)

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            self._path.pop()
            if stand_in is None:
                return output
            self._inside.pop()
            return output if self._inside else stand_in((args, kwargs), output)

        return enter, leave

    def _check_arrivals(self, name: str, arrivals: Any) -> None:
        tag = self._origins.joint(arrivals)
        if tag.source & Source.OPAQUE:
            self.refuse(
                f"{tag.blame} has no rule and stands between spikes and the layer {name!r}, so what it costs is "
                f"unknown: {tag.remedy}"
            )
        if tag.source & Source.UNSEEN:
            self.refuse(f"the layer {name!r} is fed by {_UNSEEN}")

    def _fired(self, module: nn.Module, name: str, output: Any) -> Any:
        spikes = first_output(name, output)
        held = [vars(part) for part in module.modules()]
        state = Tag(Source.CURRENT, f"the state of {name!r}")
        for leaf in tree_leaves((output, held)):  # made by code that may not be seen, and read by others
            if isinstance(leaf, Tensor) and leaf is not spikes and self._origins.get(leaf).source & STRANGE:
                self._origins.put(leaf, state)
        return replace_first_output(output, self._emit_spikes(name, spikes))

    def _relayed(self, name: str, arrivals: Any, output: Any) -> Any:
        tag = self._origins.joint(arrivals)
        pooled = first_output(name, output)
        self._tagged(output, tag)
        if not tag.source & Source.SPIKES:
            return output
        if tag.source & ~(Source.SPIKES | INERT):
            self.refuse(
                f"the max pool {name!r} takes spikes that were scaled or mixed with other values, so what it passes "
                "on are no spikes; pool the spikes as they come from their layer, before any dropout"
            )
        self.recording.relays.add(name)
        return replace_first_output(output, self._emit_spikes(name, pooled))


class _Kernels(TorchDispatchMode):
    """Tells a structural pass which kernels run."""

    def __init__(self, structural: StructuralPass) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self._structural = structural

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._structural.ran_kernel(func.overloadpacket.__name__, func.namespace)
        with torch_function_disabled():  # a kernel is no operation of the model
            return func(*args, **(kwargs or {}))


def unregistered(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Spiking layers in plain lists and dicts, which PyTorch does not count among a model's modules."""
    registered = set(model.modules())
    held = [
        (f"{path}.{name}".lstrip("."), leaf)
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name != SUBMODULES
        for leaf in tree_leaves(value)
        if isinstance(leaf, nn.Module) and leaf not in registered
    ]
    return [(name, part) for name, module in held for part in module.modules() if is_spiking(part)]


def _writes(name: str) -> bool:
    """Whether an operation changes its first argument."""
    return name in ("__setitem__", "__set__") or (name.endswith("_") and not name.endswith("__"))


def _name(func: Callable[..., Any]) -> str:
    """The operation's name in PyTorch; for an attribute such as `x.T`, the attribute's."""
    name: str = getattr(func, "__name__", str(func))
    owner = getattr(func, "__self__", None)
    return getattr(owner, "__name__", name) if name == "__get__" else name


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    named = [kwargs[k] for k in ("input", "self", "weight", "other", "mat2") if k in kwargs]
    first, second = [a for a in (*args[:2], *named) if isinstance(a, Tensor)][:2]
    return first, second
