"""The structural pass: one forward pass of the model on connections instead of numbers.

Every operation that the model calls, as a module or as a function, is intercepted (`torch.overrides.TorchFunctionMode`)
and its tensors are tagged by where they come from: spikes, the network's input, the currents behind synapses, constants.
Spiking layers emit fresh leaves of value 0 that require a gradient, the input is all ones, and the graph is cut behind
each layer of synapses. So

* the gradient of Σ_synaptic Σ x·n(x), with n the fan-out rule of `rules`, is at each neuron the number of synapses ψ that
  its spike reaches, through pools, skips and reshapes;
* an element of value > 0 in front of a synapse comes from the input: those are the encoder's multiply-accumulates.

A tensor without a tag was made by code that cannot be seen (TorchScript, a C++ extension). Nothing of unknown origin, and
nothing that passed an operation without a rule, may reach a synapse: it is refused by name.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.prune import BasePruningMethod
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only

from picojoule.activity import first_output, is_relay, replace_first_output, spiking_modules
from picojoule.errors import PicojouleError
from picojoule.rules import CREATING, DEFAULT_REMEDY, PASSING, REMEDIES, SYNAPTIC, UNCOUNTED, Call, Psi


class Source(enum.Flag):
    """What a tensor carries; a sum of two tensors carries both."""

    CONSTANT = enum.auto()
    INPUT = enum.auto()
    SPIKES = enum.auto()
    CURRENT = enum.auto()
    """Behind synapses, not yet through a neuron."""
    OPAQUE = enum.auto()
    """Spikes that went through an operation without a rule."""
    UNSEEN = enum.auto()
    """Made by code that cannot be intercepted, or a tensor that the model holds outside its parameters and buffers."""


ACTIVATION = Source.SPIKES | Source.INPUT


@dataclass(frozen=True)
class Tag:
    source: Source
    blame: str = ""
    """For currents and opaque values: what made them, in words for an error message."""


UNKNOWN = Tag(Source.UNSEEN)


@dataclass
class SynapticCall:
    """The multiply-accumulates of one call of a synaptic operation, for everything and for the analog inputs alone."""

    module: str
    macs: int
    analog_macs: int


@dataclass
class Recording:
    """What one structural pass found."""

    leaves: dict[str, list[Tensor]] = field(default_factory=dict)
    """The emissions of each spiking layer and relay, call by call, in the order of first use."""
    relays: set[str] = field(default_factory=set)
    calls: list[SynapticCall] = field(default_factory=list)
    reached: list[Tensor] = field(default_factory=list)
    """Σ x·n of each synaptic call that spikes feed."""


class StructuralPass(TorchFunctionMode):
    """Runs while the model's forward pass does; `recording` holds what was found."""

    def __init__(self, model: nn.Module, psi: Psi) -> None:
        super().__init__()
        self.recording = Recording()
        self._psi = psi
        self._tags: dict[int, tuple[Tensor, Tag]] = {}
        self._path: list[str] = []
        self._inside: list[str] = []
        """Spiking layers and relays that are running now: what happens inside them is their own affair."""
        self._model = model
        self._pruned = [
            (module, hook._tensor_name)
            for module in model.modules()
            for hook in module._forward_pre_hooks.values()
            if isinstance(hook, BasePruningMethod)
        ]
        for tensor in (*model.parameters(), *model.buffers()):
            self._put(tensor, Tag(Source.CONSTANT))

    # ------------------------------------------------------------------------------------------------------------- tags

    def _put(self, tensor: Tensor, tag: Tag) -> None:
        self._tags[id(tensor)] = (tensor, tag)  # the reference keeps the id from being used again

    def _get(self, tensor: Tensor) -> Tag:
        entry = self._tags.get(id(tensor))
        return entry[1] if entry is not None else UNKNOWN

    def _joint(self, values: Any) -> Tag:
        """The tag of everything in a nest of values together."""
        source, blame = Source(0), ""
        for leaf in tree_leaves(values):
            if isinstance(leaf, Tensor):
                tag = self._get(leaf)
                if tag.blame and (not blame or tag.source & Source.OPAQUE):
                    blame = tag.blame
                source |= tag.source
        return Tag(source, blame)

    def _is_activation(self, value: Any) -> bool:
        return bool(self._joint(value).source & ~Source.CONSTANT)

    def emit_input(self, example: Any) -> Any:
        """The example with ones in place of its numbers (indices and masks keep theirs)."""

        def ones(tensor: Tensor) -> Tensor:
            emitted = torch.ones_like(tensor) if tensor.is_floating_point() else tensor.clone()
            self._put(emitted, Tag(Source.INPUT))
            return emitted

        return tree_map_only(Tensor, ones, example)

    def _emit_spikes(self, name: str, like: Tensor) -> Tensor:
        with torch.inference_mode(False), torch.enable_grad():
            # float64, so that counts stay exact however the paths branch and join; not every device has it.
            dtype = torch.float32 if like.device.type == "mps" else torch.float64
            leaf = torch.zeros(like.shape, dtype=dtype, device=like.device, requires_grad=True)
            self.recording.leaves.setdefault(name, []).append(leaf)
            emitted = leaf.clone()  # what the model gets may be written to in place
        self._put(emitted, Tag(Source.SPIKES))
        return emitted

    def _where(self) -> str:
        return f"in module {self._path[-1]!r}" if self._path and self._path[-1] else "in the model's forward pass"

    # ------------------------------------------------------------------------------------------------------- operations

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = _name(func)
        tag = self._joint((args, kwargs))
        active = bool(tag.source & ~Source.CONSTANT)
        if self._inside:
            if active and (name in SYNAPTIC or name in UNCOUNTED):
                raise PicojouleError(
                    f"the spiking layer {self._inside[-1]!r} multiplies by weights inside itself ({name}): recurrent synapses "
                    "are not counted; use a neuron without recurrent weights, or put them into a module beside it"
                )
            return func(*args, **kwargs)
        if not active or name in CREATING:
            return self._tagged(func(*args, **kwargs), Tag(Source.CONSTANT))
        if name == "__bool__" and tag.source & (ACTIVATION | Source.OPAQUE):
            raise PicojouleError(
                f"the forward pass branches on the value of an activation {self._where()}, so its synapses depend on the data "
                "and cannot be counted; make the branch depend on shapes or settings instead"
            )
        if name in SYNAPTIC:
            return self._synapses(name, func, args, kwargs)
        if name in UNCOUNTED:
            raise PicojouleError(
                f"{name} {self._where()} multiplies activations in a way that picojoule cannot count; "
                "write it with nn.Linear or a convolution, or leave this part out of the traced model"
            )
        if tag.source & ACTIVATION and name in PASSING:
            with torch.inference_mode(False), torch.enable_grad():
                out = PASSING[name](Call(func, args, kwargs, self._psi, self._is_activation))
            if out is not NotImplemented:
                changed = args[0] if name == "__setitem__" else out
                self._tagged(changed, tag)
                return out
        with torch.no_grad():
            out = func(*args, **kwargs)
        if tag.source & Source.SPIKES:
            return self._tagged(
                out, Tag(Source.OPAQUE, tag.blame if tag.source & Source.OPAQUE else f"{name} {self._where()}")
            )
        if tag.source in (Source.INPUT, Source.INPUT | Source.CONSTANT):
            # Anything done to pixels leaves pixels: an analog value everywhere.
            out = tree_map_only(Tensor, lambda t: torch.ones_like(t) if t.is_floating_point() else t, out)
        return self._tagged(out, tag)

    def _tagged(self, out: Any, tag: Tag) -> Any:
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                if tag.source & Source.SPIKES and leaf.dtype in (torch.float16, torch.bfloat16):
                    raise PicojouleError(
                        f"spikes are written into a {leaf.dtype} tensor {self._where()}, where counts above 256 would be "
                        "rounded; trace the model in float32"
                    )
                self._put(leaf, tag)
        return out

    # --------------------------------------------------------------------------------------------------------- synapses

    def _synapses(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        first, second = _operands(args, kwargs)
        x, weight = (second, first) if self._only_constant(first) else (first, second)
        if self._get(weight) is UNKNOWN:
            raise PicojouleError(
                f"the weight of {name} {self._where()} is neither a parameter nor a buffer of the model; register it as one"
            )
        if not self._only_constant(weight):
            raise PicojouleError(
                f"{name} {self._where()} multiplies two activations (as attention does), which has no fixed number of "
                "synapses; only products with weights can be counted, so leave this part out of the traced model"
            )
        tag = self._get(x)
        self._refuse_uncountable(name, tag)
        mask = self._mask(weight)
        present = (
            torch.ones(weight.shape, dtype=torch.float64)
            if mask is None
            else mask.detach().cpu().double().ne(0).double()
        )
        call = Call(func, args, kwargs, self._psi, self._is_activation)
        with torch.inference_mode(False), torch.enable_grad():
            fan_out = SYNAPTIC[name](call, x, present).detach().to(x.device, _wide(x))
            if tag.source & Source.SPIKES:
                self.recording.reached.append((x * fan_out).sum())
            everywhere = fan_out.expand(x.shape).double()
            analog = everywhere * (x.detach() > 0) if tag.source & Source.INPUT else everywhere.new_zeros(())
        self.recording.calls.append(
            SynapticCall(
                self._path[-1] if self._path else "", round(everywhere.sum().item()), round(analog.sum().item())
            )
        )
        shape = func(*tree_map_only(Tensor, _shadow, args), **tree_map_only(Tensor, _shadow, kwargs)).shape
        currents = torch.ones(shape, dtype=weight.dtype, device=x.device)
        return self._tagged(currents, Tag(Source.CURRENT, f"{name} {self._where()}"))

    def _only_constant(self, tensor: Tensor) -> bool:
        return self._get(tensor).source == Source.CONSTANT

    def _refuse_uncountable(self, name: str, tag: Tag) -> None:
        here = f"{name} {self._where()}"
        if tag.source & Source.UNSEEN:
            raise PicojouleError(
                f"{here} is fed by a tensor whose origin cannot be seen (a neuron called as a bare function, TorchScript, or a "
                "tensor that is no buffer); make the neuron an nn.Module and declare it with picojoule.declare_spiking, or "
                "register the tensor as a buffer"
            )
        if tag.source & Source.OPAQUE:
            raise PicojouleError(f"{tag.blame} has no rule and stands between spikes and {here}: {_remedy(tag)}")
        if tag.source & Source.CURRENT:
            raise PicojouleError(
                f"{here} is fed by {tag.blame} with no spiking layer between them; put a spiking layer there, or declare the "
                "module that fires as one with picojoule.declare_spiking"
            )

    def _mask(self, weight: Tensor) -> Tensor | None:
        for module, tensor_name in self._pruned:
            if getattr(module, tensor_name, None) is weight:
                mask: Tensor = getattr(module, f"{tensor_name}_mask")
                return mask
        return None

    # ---------------------------------------------------------------------------------------------------------- modules

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Follow the model's modules (names for messages) and stand in for its spiking layers and relays."""
        spiking = {id(m): name for name, m in spiking_modules(self._model).items()}
        handles = []
        try:
            for name, module in self._model.named_modules():
                stands_in = id(module) in spiking or is_relay(module)
                enter, leave = self._hooks(name, stands_in, spiking=id(module) in spiking)
                handles.append(module.register_forward_pre_hook(enter, with_kwargs=True))
                handles.append(module.register_forward_hook(leave, with_kwargs=True))
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _hooks(self, name: str, stands_in: bool, *, spiking: bool) -> tuple[Callable[..., None], Callable[..., Any]]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._path.append(name)
            if stands_in:
                if not self._inside:
                    self._check_arrivals(name, (args, kwargs))
                self._inside.append(name)

        def leave(module: nn.Module, args: Any, kwargs: Any, output: Any) -> Any:
            self._path.pop()
            if not stands_in:
                return output
            self._inside.pop()
            if self._inside:
                return output
            return self._fired(name, output) if spiking else self._relayed(name, (args, kwargs), output)

        return enter, leave

    def _check_arrivals(self, name: str, arrivals: Any) -> None:
        for leaf in tree_leaves(arrivals):
            if not isinstance(leaf, Tensor):
                continue
            tag = self._get(leaf)
            if tag is UNKNOWN and leaf.requires_grad:
                raise PicojouleError(
                    f"the spiking layer {name!r} is fed by an operation on spikes that cannot be seen (TorchScript or an "
                    "autograd function); write that operation with PyTorch's own operators"
                )
            if tag.source & Source.OPAQUE:
                raise PicojouleError(
                    f"{tag.blame} has no rule and stands between spikes and the spiking layer {name!r}, so what it costs is "
                    f"unknown: {_remedy(tag)}"
                )

    def _fired(self, name: str, output: Any) -> Any:
        spikes = first_output(name, output)
        self._tagged(output, Tag(Source.CURRENT, f"the state of {name}"))
        return replace_first_output(output, self._emit_spikes(name, spikes))

    def _relayed(self, name: str, arrivals: Any, output: Any) -> Any:
        tag = self._joint(arrivals)
        pooled = first_output(name, output)
        self._tagged(output, tag)
        if not tag.source & Source.SPIKES:
            return output
        if tag.source & ~(Source.SPIKES | Source.CONSTANT):
            raise PicojouleError(
                f"the max pool {name!r} takes spikes mixed with other values, so what it passes on are no spikes; "
                "pool the spikes before they are added to anything else"
            )
        self.recording.relays.add(name)
        return replace_first_output(output, self._emit_spikes(name, pooled))


def _remedy(tag: Tag) -> str:
    return REMEDIES.get(tag.blame.split(" ", 1)[0], DEFAULT_REMEDY)


def _name(func: Callable[..., Any]) -> str:
    """The operation's name in PyTorch; for an attribute such as `x.T`, the attribute's."""
    name: str = getattr(func, "__name__", str(func))
    owner = getattr(func, "__self__", None)
    return getattr(owner, "__name__", name) if name == "__get__" else name


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    named = [kwargs[k] for k in ("input", "self", "weight", "other", "mat2") if k in kwargs]
    first, second = [a for a in (*args[:2], *named) if isinstance(a, Tensor)][:2]
    return first, second


def _shadow(tensor: Tensor) -> Tensor:
    """The tensor's shape without its numbers: enough to learn the shape of a result."""
    return torch.empty_like(tensor, device="meta", dtype=torch.float32)


def _wide(x: Tensor) -> torch.dtype:
    return x.dtype if x.dtype == torch.float64 or x.device.type == "mps" else torch.float64
