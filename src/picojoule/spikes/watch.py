"""The spikes of a forward pass: which layers fire, and watching them without leaving anything on the model.

A layer is spiking because of its type (picojoule's own, or one of another framework that `peers` knows), or because the
user said so (`declare_spiking`), never because of the values it happens to emit. Where a layer returns a tuple, element
0 is the spikes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.neurons.lif import MembraneNeuron
from picojoule.neurons.quantized_relu import QuantizedReLU
from picojoule.neurons.spike import Spike, is_transformed
from picojoule.spikes.frameworks import Fires, Refused, framework_of, kind_of
from picojoule.spikes.gradient import GradientWatch, Lost
from picojoule.spikes.hooks import OnModule, hooked
from picojoule.spikes.layout import Clock, PoolClock, TimeLayout, completed

_spiking_types: set[type[nn.Module]] = {Spike, MembraneNeuron, QuantizedReLU}
_MARK = "picojoule_spiking"
"""Set on a single module that the user declares, so that copies of the model know it too."""

_POOLS = (
    (nn.MaxPool1d, nn.AdaptiveMaxPool1d),
    (nn.MaxPool2d, nn.AdaptiveMaxPool2d),
    (nn.MaxPool3d, nn.AdaptiveMaxPool3d),
)
RELAYS = tuple(pool for pools in _POOLS for pool in pools)
"""Modules that pass some of the spikes on, which ones depends on the data: their output is a spike map of its own."""

_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "_FabricModule")

Declared = TypeVar("Declared", bound="type[nn.Module] | nn.Module")


def declare_spiking(neuron: Declared) -> Declared:
    """Say that a module type, or one module, emits spikes. Also usable as a class decorator.

    >>> class Heaviside(nn.Module):
    ...     def forward(self, u):
    ...         return (u >= 1).float()
    >>> _ = declare_spiking(Heaviside)
    >>> list(spiking_modules(nn.Sequential(nn.Linear(2, 2), Heaviside())))
    ['1']

    Event data fed straight into the first synapses are spikes too: let them pass through an `nn.Identity()` of your
    model that you declare.
    """
    if isinstance(neuron, nn.Module):
        setattr(neuron, _MARK, True)
    elif isinstance(neuron, type) and issubclass(neuron, nn.Module):
        _spiking_types.add(neuron)
    else:
        raise PicojouleError(
            f"only an nn.Module or a class of them can be declared spiking, not {neuron!r}: wrap it in a module"
        )
    return neuron


def is_spiking(module: nn.Module) -> bool:
    return _is_declared(module) or isinstance(kind_of(module), Fires)


def _is_declared(module: nn.Module) -> bool:
    return isinstance(module, tuple(_spiking_types)) or getattr(module, _MARK, False) is True


def is_relay(module: nn.Module) -> bool:
    return isinstance(module, RELAYS)


def unwrap(model: nn.Module) -> nn.Module:
    """The user's own module inside the wrappers of `torch.compile`, DDP and Fabric, so that layers keep their names."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and type(model).__name__ in _WRAPPERS:
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def spiking_modules(model: nn.Module) -> dict[str, nn.Module]:
    """Every spiking layer by its name in `named_modules()`; parts of a spiking layer belong to it."""
    found: dict[str, nn.Module] = {}
    owned: set[nn.Module] = set()
    for name, module in model.named_modules():
        if module in owned:
            continue
        declared, kind = _is_declared(module), kind_of(module)
        if declared or isinstance(kind, Fires):
            found[name] = module
            owned.update(module.modules())
        elif isinstance(kind, Refused):
            raise PicojouleError(f"the layer {name!r} ({described(module)}) {kind.because}: {kind.instead}")
    return found


def described(module: nn.Module) -> str:
    """The module's class and the framework that it belongs to."""
    framework = framework_of(module)
    return type(module).__name__ if framework is None else f"{type(module).__name__} of {framework.name}"


def clock_of(module: nn.Module) -> Clock | PoolClock | None:
    """How a spiking layer or relay takes time, as far as its type says."""
    if isinstance(module, MembraneNeuron):
        return Clock(time_axis=0) if module.steps is None else Clock(folded="time", steps=module.steps)
    if _is_declared(module):
        return None
    if is_relay(module):
        return PoolClock(1 + next(n for n, pools in enumerate(_POOLS, 1) if isinstance(module, pools)))
    kind = kind_of(module)
    return kind.clock if isinstance(kind, Fires) else None


def first_output(name: str, output: Any) -> Tensor:
    """The spikes in what a layer returned."""
    spikes = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(spikes, Tensor):
        raise PicojouleError(
            f"the layer {name!r} returned {type(spikes).__name__} where its spikes were expected; a spiking layer "
            "returns a tensor, or a tuple whose element 0 is the spikes"
        )
    return spikes


def replace_first_output(output: Any, spikes: Tensor) -> Any:
    if isinstance(output, Tensor):
        return spikes
    if isinstance(output, list):
        return [spikes, *output[1:]]
    return type(output)(spikes, *output[1:]) if hasattr(output, "_fields") else (spikes, *output[1:])


class _Emitted(NamedTuple):
    """What a layer emitted in one call.

    The tap is the same spikes, branched off where they arise. Autograd takes the youngest branch first, so the gradient
    of a penalty on the tap arrives at the layer after the network's and is added to it in place; one on the spikes
    themselves would arrive first, and the sum of the two would need memory of its own.
    """

    spikes: Tensor
    tap: Tensor
    version: int
    lost: Lost | None


class Activity(Mapping[str, Tensor]):
    """The spikes of every spiking layer in one `watch` block, by the layer's name.

    `activity[name]` is [B, …] for one step, else [T, B, …]. The output of every max-pool module is here too, under the
    pool's name: where a pool takes spikes it relays them, and `picojoule.trace` gives it coefficients of its own.
    """

    def __init__(self, layout: TimeLayout) -> None:
        self.layout = layout
        self._calls: dict[str, list[_Emitted]] = {}
        self._binary: set[str] = set()
        self._clocks: dict[str, Clock | PoolClock | None] = {}

    @property
    def steps(self) -> int:
        return self.layout.steps

    def record(
        self,
        name: str,
        spikes: Tensor,
        *,
        binary: bool = False,
        clock: Clock | PoolClock | None = None,
        lost: Lost | None = None,
    ) -> None:
        """Note what a layer emitted; `binary` if its type can emit nothing but 0 and 1, `clock` if it says where time
        is, `lost` if a gradient was expected and is not there."""
        self._calls.setdefault(name, []).append(_Emitted(spikes, spikes.view_as(spikes), spikes._version, lost))
        self._clocks[name] = clock
        if binary:
            self._binary.add(name)

    def by_step(self, name: str) -> list[Tensor]:
        """The spikes of one layer, step by step, each [B, …]; no copies are made."""
        return self._split(name, [emitted.spikes for emitted in self._whole(name)])

    def _split(self, name: str, calls: list[Tensor]) -> list[Tensor]:
        return self.layout.by_step(name, calls, self._clocks[name])

    def _whole(self, name: str) -> list[_Emitted]:
        if name not in self._calls:
            raise PicojouleError(
                f"the layer {name!r} recorded nothing: run the model that was traced inside the "
                "`with picojoule.watch(model)` block"
            )
        for emitted in self._calls[name]:
            if emitted.spikes._version != emitted.version:
                raise PicojouleError(
                    f"the spikes of {name!r} were overwritten in place behind the layer (x += y): write x = x + y"
                )
        return self._calls[name]

    def spikes(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, list[Tensor]]:
        """The taps of several layers step by step, checked to be what can be counted: maps of the traced `shapes`, the
        same number of samples in every layer, no negative values and no NaN."""
        emitted = {name: self._split(name, [call.tap for call in self._whole(name)]) for name in shapes}
        for name, by_step in emitted.items():
            for spikes in by_step:
                if tuple(spikes.shape[1:]) != shapes[name]:
                    raise PicojouleError(
                        f"the layer {name!r} emitted maps of shape {tuple(spikes.shape[1:])}, but {shapes[name]} was "
                        "traced: trace the model with an example of the size it is used with, and say where time is "
                        "(steps, time_axis, folded)"
                    )
                if not self.is_binary(name) and spikes.numel() and not _counts(name, spikes.detach()):
                    raise PicojouleError(
                        f"the layer {name!r} emitted negative values or NaN, which are no numbers of spikes: energy "
                        "can only be counted for layers that emit 0, 1, 2, … spikes"
                    )
        samples = {name: len(by_step[0]) for name, by_step in emitted.items()}
        if len(set(samples.values())) > 1:
            raise PicojouleError(f"the layers saw different numbers of samples ({samples}): watch one batch at a time")
        return emitted

    def check_gradient(self, name: str) -> None:
        """Raise if the layer lost the gradient that a loss on its spikes needs.

        A network may run its first steps under `no_grad` on purpose (truncated backpropagation), so one step with a
        gradient is enough there; what an autograd function hides is never on purpose.
        """
        calls = [emitted.lost for emitted in self._whole(name)]
        lost = Lost.FUNCTION if Lost.FUNCTION in calls else Lost.NO_GRAD if set(calls) == {Lost.NO_GRAD} else None
        if lost is not None:
            raise PicojouleError(
                f"the spikes of {name!r} were recorded without a gradient, {lost.where}, so a penalty on them trains "
                f"nothing: {lost.instead}; if only its value is wanted, call the penalty under torch.no_grad()"
            )

    def is_binary(self, name: str) -> bool:
        """Whether the layer's type can emit nothing but 0 and 1."""
        return name in self._binary

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._calls:
            raise KeyError(name)
        by_step = self.by_step(name)
        return by_step[0] if self.steps == 1 else torch.stack(by_step)

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        return f"Activity(steps={self.steps}, layers={list(self._calls)})"


def _counts(name: str, spikes: Tensor) -> bool:
    """Whether there is no negative value and no NaN."""
    try:
        return bool(spikes.min() >= 0)
    except RuntimeError:
        if not is_transformed(spikes):
            raise
        raise PicojouleError(
            f"inside torch.vmap nobody can see whether the layer {name!r} emitted numbers of spikes: take the neuron "
            "picojoule.Spike, which can emit nothing else, or call the penalty outside"
        ) from None


def check_activity(who: str, activity: object) -> None:
    if not isinstance(activity, Activity):
        raise PicojouleError(f"{who} needs the Activity that picojoule.watch gives, not {type(activity).__name__}")


def summed_over_batch(spikes: Tensor, *, binary: bool) -> Tensor:
    """Σ_b s_b without rounding: float32 for 0 and 1 (exact below 2^24 samples), else float64 where the device has it.

    A product with ones runs at the speed of memory where PyTorch's own sum over the first axis does not. It is kept to
    0 and 1, which no setting of the product's precision (TF32, bfloat16) can round, and to so few samples at a time
    that their sums are whole numbers of the spikes' own kind.
    """
    batch, spikes = len(spikes), spikes.detach()
    if not binary:
        return spikes.sum(0, dtype=precise(spikes.device))
    strides = spikes.stride()
    order = sorted(range(1, spikes.dim()), key=lambda axis: -strides[axis])  # axes as they lie in memory
    laid_out = spikes.permute(0, *order)
    whole = _WHOLE.get(spikes.dtype)
    if not (batch and whole and laid_out.is_contiguous()):
        return spikes.sum(0, dtype=torch.float32)
    with torch.autocast(spikes.device.type, enabled=False):  # it would round the sums to bfloat16
        ones = torch.ones(batch, dtype=spikes.dtype, device=spikes.device)
        parts = [ones[: len(part)] @ part for part in laid_out.view(batch, -1).split(whole)]
    sums = parts[0].float() if len(parts) == 1 else torch.stack(parts).sum(0, dtype=torch.float32)
    inverse = sorted(range(len(order)), key=order.__getitem__)
    return sums.view(laid_out.shape[1:]).permute(inverse)


_WHOLE = {torch.float32: 1 << 24, torch.bfloat16: 1 << 8}
"""Up to which every whole number has its place."""


def precise(device: torch.device) -> torch.dtype:
    """float64, but for the one kind of device that has none."""
    return torch.float32 if device.type == "mps" else torch.float64


def _versioned(spikes: Tensor) -> Tensor:
    """The same memory as a tensor that notes when it is written to, as those made in inference mode do not."""
    if not spikes.is_inference():
        return spikes
    with torch.inference_mode(False):
        alias = torch.empty(0, dtype=spikes.dtype, device=spikes.device)
        return alias.set_(spikes.untyped_storage(), spikes.storage_offset(), spikes.shape, spikes.stride())


@contextmanager
def watch(
    model: nn.Module,
    steps: int = 1,
    time_axis: int | None = None,
    folded: Literal["time", "batch"] | None = None,
) -> Iterator[Activity]:
    """Record the spikes of every spiking layer while the block runs; nothing stays on the model afterwards.

    >>> net = nn.Sequential(nn.Linear(3, 2), Spike())
    >>> with watch(net) as activity:
    ...     _ = net(torch.zeros(5, 3))
    >>> activity["1"].shape
    torch.Size([5, 2])

    A network that runs over T time steps is called T times in the block with `steps=T`, or once with its layout in time
    said by `time_axis` or `folded` (see `TimeLayout`); neurons that take all steps in one call (`IF`, `LIF`, those of
    other frameworks) know it themselves. No copies are made: the spikes must not be overwritten in place.
    """
    said = TimeLayout(steps, time_axis, folded)
    model = _hookable(model)
    layers = spiking_modules(model)
    if not layers:
        raise PicojouleError(
            f"{type(model).__name__} has no spiking layer that picojoule knows: declare its neurons with "
            "picojoule.declare_spiking"
        )
    inside = {part for layer in layers.values() for part in layer.modules()}
    relays = {name: m for name, m in model.named_modules() if is_relay(m) and m not in inside}
    clocks = {name: clock_of(module) for name, module in (layers | relays).items()}
    activity = Activity(completed(said, clocks))
    binary = {name for name, module in layers.items() if _emits_only_zero_and_one(module)}
    gradients = GradientWatch(model)

    def recording(name: str, module: nn.Module) -> OnModule:
        def hook(module: nn.Module, args: Any, output: Any) -> Any:
            emitted = first_output(name, output)
            spikes = _versioned(emitted)
            lost = gradients.lost(module)
            activity.record(name, spikes, binary=name in binary, clock=clocks[name], lost=lost)
            return None if spikes is emitted else replace_first_output(output, spikes)

        return module, hook

    recorders = [recording(name, module) for name, module in (layers | relays).items()]
    with hooked(recorders, before=[(model, gradients.begin)]):
        yield activity
    if not activity:
        raise PicojouleError("nothing was recorded: run the model inside the `with picojoule.watch(model)` block")


def _emits_only_zero_and_one(module: nn.Module) -> bool:
    """A neuron of picojoule's own that nobody has tampered with."""
    return type(module) is Spike and not module._forward_hooks and "forward" not in vars(module)


def _hookable(model: nn.Module) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise PicojouleError(f"watch needs an nn.Module, not {type(model).__name__}")
    if any(hasattr(m, "_orig_mod") or getattr(m, "_compiled_call_impl", None) is not None for m in model.modules()):
        raise PicojouleError(
            "a compiled module cannot be watched, because its hooks need not fire: watch and call the module that "
            "was given to torch.compile"
        )
    return unwrap(model)
