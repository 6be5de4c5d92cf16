"""ψ: how many synapses a spike of each neuron reaches.

`trace` makes one structural pass over the model (`structural_pass`) and gives `Synapses`, the one table of coefficients
that both the energy meter and the penalty read. Conventions (`psi=`):

* `"exact"`: the synapses that exist, neuron by neuron: borders of padded convolutions, stride, dilation, groups, pools
  and skip paths included, pruned weights left out. int64.
* `"uniform"`: the paper's closed formula W'H'/(WH)·C'·k² on the map that enters the convolution (after any pool or
  pad), the same for every neuron of a layer. float64; layer totals are integers.
* `"paper"`: `"uniform"` with the ratio of map sizes inverted under an average pool (×4 under 2×2), as in the paper's
  printed VGG11 total. Only for reproducing the paper.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_leaves
from picojoule.spikes.layout import TimeLayout, completed
from picojoule.spikes.spiking import layer_layout, spiking_modules, unwrap
from picojoule.synapses.module_hooks import unregistered, unregistered_neurons
from picojoule.synapses.recording import Recording, SynapticCall
from picojoule.synapses.repetition import UNUSED, OtherBatch, check_all_weights_ran, holds_a_state
from picojoule.synapses.rules import Psi
from picojoule.synapses.rules.declared import passing_rules
from picojoule.synapses.rules.passing import PassingRule
from picojoule.synapses.snapshot import unchanged
from picojoule.synapses.table import Layer, Synapses, Target, WeightLayer
from picojoule.synapses.traced_calls import ForwardPassError, record_calls


def trace(
    model: nn.Module,
    example: Tensor | tuple[Any, ...],
    psi: Psi = "exact",
    *,
    steps: int = 1,
    time_axis: int | None = None,
    folded: Literal["time", "batch"] | None = None,
    rules: Mapping[str, PassingRule] | None = None,
) -> Synapses:
    """Count ψ, the synapses that a spike of each neuron reaches, from a network's structure alone.

    One table of ψ is what both the energy meter and the penalty read: E = E_AC · E[Σ_t Σ_i ψ_i s_{i,t}]. A bias is not
    a synapse and a masked weight is not one; synapses that the input feeds are counted apart (`encoder_macs`). The
    model runs in evaluation mode and comes back exactly as it was; it runs three times, because a second call and a
    batch of another size must reach the same synapses.

    Args:
        model: A network with spiking layers that picojoule knows, or that were declared with
            `picojoule.declare_spiking`.
        example: A batch as the model takes it, a tuple for several arguments; only its shape matters.
        psi: The convention: `"exact"` counts the synapses that exist; `"uniform"` and `"paper"` are the paper's
            formulas, for comparison with it.
        steps: Time steps that this one forward pass holds, as for `picojoule.watch`; a network that is called once per
            step is traced with one step.
        time_axis: The axis of the example that holds the time steps, if one does.
        folded: Which of the two comes first where time and batch share the first axis.
        rules: Passing rules by the name of the operation, for this call only. `picojoule.declare_rule` declares one for
            the whole process.

    Returns:
        The layers in the order in which they fire, each with its ψ.

    Raises:
        PicojouleError: Something cannot be counted, or an argument is not valid; the message names it and the remedy.

    >>> from picojoule.neurons.spike import Spike
    >>> net = nn.Sequential(
    ...     nn.Conv2d(1, 2, 3), Spike(), nn.Conv2d(2, 4, 3, padding=1), Spike(), nn.Flatten(), nn.Linear(64, 10)
    ... )
    >>> synapses = trace(net, torch.zeros(1, 1, 6, 6))
    >>> synapses["1"].fan_out[0]  # 4 output channels × 3×3, less at the padded border
    tensor([[16, 24, 24, 16],
            [24, 36, 36, 24],
            [24, 36, 36, 24],
            [16, 24, 24, 16]])
    >>> synapses["3"].synapses, synapses.encoder_macs
    (640, 288)

    An operation without a rule between spikes and synapses is refused, unless a rule is given for it:

    >>> from picojoule.synapses.rules import identity
    >>> net.insert(2, nn.Hardtanh())[2]
    Hardtanh(min_val=-1.0, max_val=1.0)
    >>> trace(net, torch.zeros(1, 1, 6, 6), rules={"hardtanh": identity})["1"].synapses
    800
    """
    if psi not in get_args(Psi):
        raise PicojouleError(f"psi={psi!r} is not known: choose one of {', '.join(map(repr, get_args(Psi)))}")
    passing = passing_rules(rules)
    said = TimeLayout(steps, time_axis, folded)
    model = unwrap(model)
    if not isinstance(model, nn.Module):
        raise PicojouleError(f"trace needs an nn.Module, not {type(model).__name__}")
    expected = spiking_modules(model)
    if not expected:
        for name, module in unregistered_neurons(model):
            raise PicojouleError(unregistered(name, module))
        raise PicojouleError(
            f"{type(model).__name__} has no spiking layer that picojoule knows: use picojoule.Spike, or declare its "
            "neurons with picojoule.declare_spiking"
        )
    own = {name: layer_layout(module) for name, module in expected.items()}
    layout = completed(said, own)
    arguments = example if isinstance(example, tuple) else (example,)
    tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, Tensor)]
    if not tensors or not tensors[0].dim() or not len(tensors[0]):
        raise PicojouleError(
            "the example holds no sample: give a tensor shaped like a batch of the model's real input, or a tuple of "
            "arguments"
        )
    record = partial(record_calls, model, psi, passing)
    recording = record(arguments)
    silent = [name for name in expected if name not in recording.leaves]
    if silent:
        raise PicojouleError(
            f"the forward pass never called the spiking layer{'s' if len(silent) > 1 else ''} "
            f"{', '.join(map(repr, silent))}: {UNUSED}"
        )
    check_all_weights_ran(model, recording)
    count = _counted(model, recording, layout, psi)
    given = tuple(tensors[0].shape)
    _check_samples(count.samples, given, layout)
    if all(getattr(layer, "samples", None) is None for layer in own.values()):  # else it is bound to one batch size
        _check_other_batch(model, arguments, count, layout, psi, record)
    targets = _targets(recording, count.psi_of, count.samples * steps)
    dense = _dense_macs(recording.calls, count.samples, layout)
    has_time = layout.has_axis_in(given) or layout.can_loop_over(given, count.samples)
    kinds = {name: type(model.get_submodule(name)).__name__ for name in recording.leaves}
    return Synapses(
        {
            name: Layer(name, count.psi_of[name], name in recording.relays, targets[name], kinds[name])
            for name in recording.leaves
        },
        psi=psi,
        input_shape=given[2 if has_time else 1 :],
        steps=steps,
        encoder_macs=count.encoder_macs,
        dense_macs=sum(dense.values()),
        weights=_weight_layers(model, recording.calls, dense, count.samples),
    )


@dataclass(frozen=True)
class _Count:
    """What one call of the model recorded, for one sample."""

    samples: int
    psi_of: dict[str, Tensor]
    encoder_macs: int


def _counted(model: nn.Module, recording: Recording, layout: TimeLayout, psi: Psi) -> _Count:
    """Differentiate what spikes reach by the spikes: ψ of each layer."""
    leaves = [leaf for calls in recording.leaves.values() for leaf in calls]
    gradients: list[Tensor | None] = [None] * len(leaves)
    if recording.reached:
        with torch.inference_mode(False):
            gradients = list(torch.autograd.grad(recording.reached, leaves, allow_unused=True, retain_graph=True))
    fan_outs = iter(torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, gradients, strict=True))
    emitted = {
        name: layout.by_step(name, [next(fan_outs) for _ in calls], layer_layout(model.get_submodule(name)))
        for name, calls in recording.leaves.items()
    }
    rows = {name: len(by_step[0]) for name, by_step in emitted.items()}
    samples = next(iter(rows.values()))
    if len(set(rows.values())) > 1:
        raise PicojouleError(
            f"the layers emit different numbers of samples ({rows}): the first axis of every spiking layer's output "
            "must be the batch; if time is folded into it, say steps= and folded="
        )
    psi_of = {name: _one_step(name, by_step, psi) for name, by_step in emitted.items()}
    return _Count(samples, psi_of, sum(call.analog_macs for call in recording.calls) // samples)


def _check_other_batch(
    model: nn.Module,
    arguments: tuple[Any, ...],
    count: _Count,
    layout: TimeLayout,
    psi: Psi,
    record: Callable[..., Recording],
) -> None:
    """Refuse a model whose ψ depends on how many samples are in the batch."""
    batch = OtherBatch(count.samples, layout)
    if not batch.has_samples(arguments):
        return
    others = batch.of(arguments)
    try:
        try:
            recording = record(others, calls=1)
        except ForwardPassError:
            with unchanged(model):
                batch.resize_state(model)
                recording = record(others, calls=1)
    except ForwardPassError as error:
        if holds_a_state(model):
            raise PicojouleError(
                f"the model takes a batch of {count.samples} but no other ({error.__cause__}), and it holds a state of "
                "an earlier call: reset its state before it is traced"
            ) from error
        return  # a model for one size of batch has no other ψ
    other = _counted(model, recording, layout, psi)
    for name, fan_out in count.psi_of.items():
        if name not in other.psi_of or not torch.allclose(fan_out.double(), other.psi_of[name].double(), rtol=1e-9):
            raise PicojouleError(
                f"a spike of {name!r} reaches other synapses in a batch of {other.samples} than in one of "
                f"{count.samples}: the model mixes the samples of a batch (a mean over its axis, for example), so ψ is "
                "not a property of the network: keep the samples apart"
            )


def _one_step(name: str, by_step: list[Tensor], psi: Psi) -> Tensor:
    """Return ψ of one sample in one step, which must be the same in all of them."""
    if by_step[0].dim() < 2:
        raise PicojouleError(
            f"the layer {name!r} emitted shape {tuple(by_step[0].shape)}, which has no axis beside the batch: give an "
            "example with a batch axis"
        )
    fan_out = by_step[0][0].double().cpu()
    if any(not torch.equal(row.double().cpu(), fan_out) for step in by_step for row in step):
        raise PicojouleError(
            f"a spike of {name!r} reaches different synapses in different calls or samples: if one neuron module is "
            "used at two places, make two modules; if the network runs over time, trace one step; if it mixes the "
            "samples of a batch, keep them apart"
        )
    return fan_out.round().long() if psi == "exact" else fan_out


def _targets(recording: Recording, psi_of: dict[str, Tensor], times: int) -> dict[str, tuple[Target, ...]]:
    """Take ψ of every layer apart by the weights that its spikes reach; `times` is samples times steps."""
    by_weight: dict[int, list[SynapticCall]] = {}
    for call in recording.calls:
        if call.reached is not None:
            by_weight.setdefault(call.weight, []).append(call)
    first = {name: leaves[0] for name, leaves in recording.leaves.items()}  # every step reaches the same
    found: dict[str, list[Target]] = {name: [] for name in first}
    for calls in by_weight.values():
        reached = [call.reached for call in calls if call.reached is not None]
        with torch.inference_mode(False):
            gradients = torch.autograd.grad(reached, list(first.values()), allow_unused=True, retain_graph=True)
        for name, gradient in zip(first, gradients, strict=True):
            if gradient is not None:
                psi = psi_of[name]
                fan_out = gradient.reshape(-1, *psi.shape)[0].cpu().to(torch.float64)  # map axes come last
                fan_out = fan_out if psi.is_floating_point() else fan_out.round().to(psi.dtype)
                outputs = sum(call.outputs for call in calls) // times
                found[name].append(Target(fan_out, calls[0].weights, outputs, calls[0].module))
    return {name: tuple(targets) for name, targets in found.items()}


def _check_samples(samples: int, given: tuple[int, ...], layout: TimeLayout) -> None:
    """Refuse an example whose batch axis is not that of the spikes."""
    if not (layout.one_call_holds_all_steps or samples == given[0] or layout.can_loop_over(given, samples)):
        raise PicojouleError(
            f"the layers emit {samples} samples for an example of {given[0]}: the first axis of the example and of "
            "every spiking layer's output must be the batch; if it holds time as well, say steps= with time_axis= or "
            "folded="
        )
    if samples == layout.steps > 1 and (layout.one_call_holds_all_steps or given[:2] == (samples, samples)):
        raise PicojouleError(
            f"the example has as many samples as time steps ({samples}), so the two axes cannot be told apart: give an "
            "example of one sample"
        )


def _dense_macs(calls: list[SynapticCall], samples: int, layout: TimeLayout) -> dict[int, int]:
    """Count all multiply-accumulates of one step, by the identity of the weight: the ReLU twin has no time."""
    macs: Counter[int] = Counter()
    steps: Counter[int] = Counter()
    for call in calls:
        macs[call.weight] += call.macs
        steps[call.weight] += layout.steps if layout.is_in(call.fed, samples) else 1
    each_step = {weight for weight, n in steps.items() if n % layout.steps == 0}
    return {weight: macs[weight] // (layout.steps if weight in each_step else 1) // samples for weight in macs}


def _weight_layers(
    model: nn.Module, calls: list[SynapticCall], dense: dict[int, int], samples: int
) -> tuple[WeightLayer, ...]:
    """Name the layers of weights; two weights of one module are one layer."""
    modules, found = dict(model.named_modules()), dict[str, WeightLayer]()
    analog, names = Counter[str](), dict[int, str]()
    for call in calls:
        name = names.setdefault(call.weight, call.module)
        analog[name] += call.analog_macs
    for weight, name in names.items():
        kind = type(modules[name]).__name__ if name in modules else ""
        macs = dense[weight] + (found[name].macs if name in found else 0)
        found[name] = WeightLayer(name, kind, macs, analog[name] // samples)
    return tuple(found.values())
