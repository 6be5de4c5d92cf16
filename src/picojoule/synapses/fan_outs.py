"""Fan-outs: ψ of what structural passes have recorded, by layer, time step and target.

The gradient of what was reached by the spikes that a layer emitted is the number of synapses that each of them reaches
in the same call of the network, and, of the call behind it, what is fed back by a state that is kept. Where all time
steps have the same, ψ is one map; else the layer has kinds of steps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.spikes.layout import LayerLayout, PoolLayout, TimeLayout
from picojoule.synapses.made_spikes import MadeSpikes
from picojoule.synapses.recording import Recording, SynapticCall, module_of, site_name
from picojoule.synapses.repetition import Calls
from picojoule.synapses.rules import Psi
from picojoule.synapses.table import Layer, StepKinds, Target

Layouts = dict[str, LayerLayout | PoolLayout | None]


@dataclass(frozen=True)
class Shape:
    """How what was recorded divides into samples and time steps."""

    samples: int
    layout: TimeLayout
    layers: Layouts
    """The layouts of single layers, as their types say."""
    made: dict[str, MadeSpikes]
    psi: Psi

    def one_sample(self, name: str, gradients: list[Tensor]) -> list[Tensor]:
        """Return what a spike of one sample reaches, step by step; refuse samples that differ."""
        if name in self.made:
            by_step = self.made[name].by_step(gradients, self.layout)
        else:
            by_step = self.layout.by_step(name, gradients, self.layers[module_of(name, self.layers)])
        if by_step[0].dim() < 2:
            raise PicojouleError(
                f"the layer {name!r} emitted shape {tuple(by_step[0].shape)}, which has no axis beside the batch: give "
                "an example with a batch axis"
            )
        maps = [step[0].double().cpu() for step in by_step]
        if any(
            not torch.equal(row.double().cpu(), one) for step, one in zip(by_step, maps, strict=True) for row in step
        ):
            raise PicojouleError(
                f"a spike of {name!r} reaches different synapses in different samples: if the network mixes the "
                "samples of a batch, keep them apart"
            )
        return [one.round().long() if self.psi == "exact" else one for one in maps]

    def of_product(self) -> Tensor:
        """Return ψ of a product: each pair of spikes that meets costs one accumulate."""
        return torch.ones((), dtype=torch.int64 if self.psi == "exact" else torch.float64)


@dataclass(frozen=True)
class Count:
    """ψ of one call of the model, for one sample, and what analog values feed."""

    within: dict[str, list[Tensor]]
    """By layer and time step: the synapses that are reached in the same call."""
    carried: dict[str, list[Tensor]]
    """Those that are reached in the next call; empty if no spikes are kept for it."""
    encoder_macs: int
    analog_macs: int


def counted(calls: Calls, shape: Shape) -> Count:
    """Differentiate what spikes reach by the spikes.

    Args:
        calls: What the calls of the model have recorded.
        shape: How that divides.

    Returns:
        ψ of each layer in each time step.

    Raises:
        PicojouleError: Samples or calls of a layer differ.
    """
    recording = calls.settled
    within = _by_step(recording.emitted(), recording.reached, shape)
    carried = {}
    if calls.before is not None:
        reached = [call.reached for call in calls.carrying if call.reached is not None]
        carried = _by_step(calls.before.emitted(), reached, shape)
    macs = [sum(call.encoder_macs for call in recording.calls), sum(call.analog_macs for call in recording.calls)]
    return Count(within, carried, *(n // shape.samples for n in macs))


def _by_step(leaves: dict[str, list[Tensor]], reached: list[Tensor], shape: Shape) -> dict[str, list[Tensor]]:
    """Differentiate what was reached by the spikes of every layer."""
    every = [leaf for calls in leaves.values() for leaf in calls]
    gradients: list[Tensor | None] = [None] * len(every)
    if reached:
        with torch.inference_mode(False):
            gradients = list(torch.autograd.grad(reached, every, allow_unused=True, retain_graph=True))
    found = iter(torch.zeros_like(leaf) if g is None else g for leaf, g in zip(every, gradients, strict=True))
    return {name: shape.one_sample(name, [next(found) for _ in calls]) for name, calls in leaves.items()}


def layers_of(calls: Calls, count: Count, shape: Shape, kinds: dict[str, str]) -> dict[str, Layer]:
    """Make the layers of the table.

    Args:
        calls: What the calls of the model have recorded.
        count: ψ.
        shape: How samples and steps divide.
        kinds: The classes of the modules that fire.

    Returns:
        The layers in the order in which they fire.

    Raises:
        PicojouleError: Spikes reach the same synapses in every later step, as those of a trace do.
    """
    recording = calls.settled
    changing = {name for name in count.within if _changes(count, name)}
    if changing:
        _refuse_traces(recording)
    targets = {name: _targets(calls, count, name, shape, changing=name in changing) for name in count.within}
    _add_products(recording, shape, count, targets)
    layers = {}
    order = [site_name(name, site) for name in recording.order for site in range(recording.sites.get(name, 1))]
    for name in order:
        plain = Layer(
            name,
            count.within[name][0] if name in count.within else shape.of_product(),
            name in recording.relays or name in shape.made,
            tuple(target for target, _, _ in targets[name]),
            kinds.get(name) or kinds.get(module_of(name, kinds), ""),
            shape.made.get(name),
        )
        layers[name] = _changing(plain, count, targets[name]) if name in changing else plain
    return layers


def _changes(count: Count, name: str) -> bool:
    """Whether ψ of a layer depends on the time step."""
    maps, carried = count.within[name], count.carried.get(name, [])
    return any(not torch.equal(maps[0], other) for other in maps[1:]) or any(bool(c.any()) for c in carried)


_StepTarget = tuple[Target, list[Tensor], list[Tensor]]
"""A target, and its fan-outs by step: within the call, and in the next."""


def _targets(calls: Calls, count: Count, name: str, shape: Shape, *, changing: bool) -> list[_StepTarget]:
    """Take ψ of a layer apart by the weights that its spikes reach."""
    psi, recording, times = count.within[name][0], calls.settled, shape.samples * shape.layout.steps
    by_weight: dict[int | str, list[SynapticCall]] = {}
    for call in recording.calls:
        if call.reached is not None:
            by_weight.setdefault(call.weight, []).append(call)
    leaves, before = recording.emitted()[name], calls.before.emitted()[name] if calls.before is not None else []
    carrying = {id(call) for call in calls.carrying}
    found: list[_StepTarget] = []
    for each in by_weight.values():
        reached = [call.reached for call in each if call.reached is not None]
        if not changing:
            (gradient,) = _gradients(reached, leaves[:1])  # every step reaches the same
            if gradient is not None:
                fan_out = gradient.reshape(-1, *psi.shape)[0].cpu().to(torch.float64)  # map axes come last
                fan_out = fan_out if psi.is_floating_point() else fan_out.round().to(psi.dtype)
                found.append((_target(fan_out, each, times), [fan_out], []))
            continue
        fed_back = [call.reached for call in each if call.reached is not None and id(call) in carrying]
        within = _one_target(name, leaves, reached, shape)
        carried = _one_target(name, before, fed_back, shape) if before else []
        if any(bool(part.any()) for part in (*within, *carried)):
            largest = torch.stack([*within, *carried]).amax(0)
            found.append((_target(largest, each, times), within, carried))
    return found


def _one_target(name: str, leaves: list[Tensor], reached: list[Tensor], shape: Shape) -> list[Tensor]:
    gradients = _gradients(reached, leaves)
    return shape.one_sample(
        name, [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True)]
    )


def _gradients(reached: list[Tensor], leaves: list[Tensor]) -> tuple[Tensor | None, ...]:
    if not reached:
        return (None,) * len(leaves)
    with torch.inference_mode(False):
        found: tuple[Tensor | None, ...] = torch.autograd.grad(reached, leaves, allow_unused=True, retain_graph=True)
    return found


def _changing(layer: Layer, count: Count, targets: list[_StepTarget]) -> Layer:
    """Give a layer the kinds of time steps that it has."""
    within, carried = count.within[layer.name], count.carried.get(layer.name, [])
    found: list[Layer] = []

    def number(step: int, *, goes_on: bool) -> int:
        def of(now: list[Tensor], later: list[Tensor]) -> Tensor:
            return now[step] + later[step] if goes_on and later else now[step]

        own = tuple(replace(target, fan_out=of(now, later)) for target, now, later in targets)
        kind = replace(layer, fan_out=of(within, carried), targets=own)
        for index, other in enumerate(found):
            if all(map(torch.equal, _maps(kind), _maps(other))):
                return index
        found.append(kind)
        return len(found) - 1

    steps = range(len(within))
    goes_on, ends = (tuple(number(step, goes_on=on) for step in steps) for on in (True, False))
    everything = sum((target.fan_out for target in layer.targets), torch.zeros_like(within[0]))
    return replace(layer, fan_out=everything, by_step=StepKinds(len(within), goes_on, ends, tuple(found)))


def _maps(layer: Layer) -> list[Tensor]:
    return [layer.fan_out, *(target.fan_out for target in layer.targets)]


def _refuse_traces(recording: Recording) -> None:
    """Refuse spikes that reach the same synapses in all steps that follow: a trace of them, not they, arrives there."""
    by_weight: dict[int | str, list[SynapticCall]] = {}
    for call in recording.calls:
        if call.reached is not None:
            by_weight.setdefault(call.weight, []).append(call)
    for calls in (calls for calls in by_weight.values() if len(calls) > 1):
        for name, leaves in recording.emitted().items():
            times = [0] * len(leaves)
            for call in calls:
                assert call.reached is not None
                for number, gradient in enumerate(_gradients([call.reached], leaves)):
                    times[number] += gradient is not None and bool(gradient.any())
            if max(times) == len(calls) > min(times):
                raise PicojouleError(
                    f"spikes of {name!r} reach {calls[0].place} in all steps that follow, as a trace or a membrane "
                    "of spikes written by hand does, which has no fixed number of synapses: feed it the spikes of a "
                    "step alone, or put the sum over time into a module that is declared with "
                    "picojoule.declare_spiking"
                )


def _add_products(recording: Recording, shape: Shape, count: Count, targets: dict[str, list[_StepTarget]]) -> None:
    """Add products to the targets of their parents, which reach no synapses there, and to their own."""
    times = shape.samples * shape.layout.steps
    for name, calls in recording.made.items():
        products = [call.product for call in calls if call.product is not None]
        if not products:
            continue
        targets[name] = [(_target(shape.of_product(), products, times, name), [], [])]
        parents = (
            site_name(parent, site)
            for parent in shape.made[name].parents
            for site in range(recording.sites.get(parent, 1))
        )
        for parent in parents:
            none = [torch.zeros_like(psi) for psi in count.within[parent]]
            targets[parent].append((_target(none[0], products, times, name), none, []))


def _target(fan_out: Tensor, calls: list[SynapticCall], times: int, name: str = "") -> Target:
    first, outputs = calls[0], sum(call.outputs for call in calls) // times
    weights = first.weights if first.fixed else sum(call.weights for call in calls) // times
    return Target(fan_out, weights, outputs, name or first.name, first.unit)
