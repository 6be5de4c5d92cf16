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
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_leaves
from picojoule.spikes.layout import TimeLayout, completed
from picojoule.spikes.spiking import layer_layout, spiking_modules, unwrap
from picojoule.synapses.fan_outs import Count, Layouts, Shape, counted, layers_of
from picojoule.synapses.made_spikes import made_spikes
from picojoule.synapses.module_hooks import unregistered, unregistered_neurons
from picojoule.synapses.recording import Recording, SynapticCall
from picojoule.synapses.repetition import UNUSED, Calls, OtherBatch, check_all_weights_ran, holds_a_state
from picojoule.synapses.rules import ChainsOfLayers, Psi
from picojoule.synapses.rules.declared import passing_rules
from picojoule.synapses.rules.passing import PassingRule
from picojoule.synapses.snapshot import unchanged
from picojoule.synapses.table import AnalogSynapses, Synapses, WeightLayer
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
    strict: bool = False,
    chains: ChainsOfLayers = "run",
) -> Synapses:
    """Count ψ, the synapses that a spike of each neuron reaches, from a network's structure alone.

    One table of ψ is what both the energy meter and the penalty read: E = E_AC · E[Σ_t Σ_i ψ_i s_{i,t}]. A bias is not
    a synapse and a masked weight is not one; synapses that the input feeds are counted apart (`encoder_macs`). The
    model runs in evaluation mode and comes back exactly as it was; it runs three times, because a second call and a
    batch of another size must reach the same synapses, and once more if its state feeds spikes back: what those of one
    call reach in the next one is part of ψ in all steps but the last.

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
        strict: Whether to refuse synapses that analog values feed (currents, potentials), instead of counting their
            multiply-accumulates apart (`Synapses.analog`).
        chains: How layers of weights without a neuron between them are billed (separable and re-parameterised
            convolutions): `"run"` bills each as it runs, accumulates in the first and multiply-accumulates of analog
            values in the others; `"merged"` the one layer that they can be folded into, a synapse for each output that
            a spike reaches. Only with `psi="exact"`.

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
    if chains not in get_args(ChainsOfLayers):
        known = ", ".join(map(repr, get_args(ChainsOfLayers)))
        raise PicojouleError(f"chains={chains!r} is not known: choose one of {known}")
    if chains == "merged" and psi != "exact":
        raise PicojouleError(f"chains='merged' is not defined for psi={psi!r}: take psi='exact' or chains='run'")
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
    record = partial(record_calls, model, psi, passing, strict=strict, chains=chains)
    calls = record(arguments)
    recording = calls.first
    silent = [name for name in expected if name not in recording.leaves]
    if silent:
        raise PicojouleError(
            f"the forward pass never called the spiking layer{'s' if len(silent) > 1 else ''} "
            f"{', '.join(map(repr, silent))}: {UNUSED}"
        )
    check_all_weights_ran(model, calls)
    expected_calls = 1 if layout.one_call_holds_all_steps else layout.steps
    for each in (calls.first, calls.settled, *((calls.before,) if calls.before is not None else ())):
        each.find_sites(expected_calls)
    given = tuple(tensors[0].shape)
    samples = _samples(recording, layout, own)
    _check_samples(samples, given, layout)
    pools = {name: layer_layout(model.get_submodule(name)) for name in recording.leaves if name not in recording.made}
    # A layer that is bound to one batch size has no other.
    free = all(getattr(layer, "samples", None) is None for layer in own.values())
    other = _other_batch(model, arguments, samples, layout, record) if free else None
    if other is not None:
        other.calls.first.find_sites(expected_calls)
    twin = None if other is None else (other.calls.first, other.samples)
    made = made_spikes(recording, samples, twin, layout, pools)
    shape = Shape(samples, layout, pools, made, psi)
    count = counted(calls, shape)
    if other is not None:
        _check_other_batch(counted(calls.only_first, shape), other, shape)
    has_time = layout.has_axis_in(given) or layout.can_loop_over(given, samples)
    kinds = {name: type(model.get_submodule(name)).__name__ for name in pools}
    settled = calls.settled
    products = [call.product for made_calls in settled.made.values() for call in made_calls if call.product is not None]
    dense = _dense_macs([*settled.calls, *products], samples, layout)
    return Synapses(
        layers_of(calls, count, shape, kinds),
        psi=psi,
        chains=chains,
        input_shape=given[2 if has_time else 1 :],
        steps=steps,
        encoder_macs=count.encoder_macs,
        dense_macs=sum(dense.values()),
        weights=_weight_layers(model, [*settled.calls, *products], dense, samples),
        analog=_analog(settled.calls, samples),
    )


@dataclass(frozen=True)
class _Other:
    """What a call with another number of samples recorded."""

    calls: Calls
    samples: int


def _samples(recording: Recording, layout: TimeLayout, own: Layouts) -> int:
    """Return the number of samples that the spiking layers emit, which must be the same in all of them."""
    emitted = recording.emitted()
    rows = {name: len(layout.by_step(name, emitted[name], own[name])[0]) for name in own}
    if len(set(rows.values())) > 1:
        raise PicojouleError(
            f"the layers emit different numbers of samples ({rows}): the first axis of every spiking layer's output "
            "must be the batch; if time is folded into it, say steps= and folded="
        )
    return next(iter(rows.values()))


def _other_batch(
    model: nn.Module,
    arguments: tuple[Any, ...],
    samples: int,
    layout: TimeLayout,
    record: Callable[..., Calls],
) -> _Other | None:
    """Call a model with another number of samples; None where it takes no other."""
    batch = OtherBatch(samples, layout)
    if not batch.has_samples(arguments):
        return None
    others = batch.of(arguments)
    try:
        try:
            calls = record(others, calls=1)
        except ForwardPassError:
            with unchanged(model):
                batch.resize_state(model)
                calls = record(others, calls=1)
    except ForwardPassError as error:
        if holds_a_state(model):
            raise PicojouleError(
                f"the model takes a batch of {samples} but no other ({error.__cause__}), and it holds a state of "
                "an earlier call: reset its state before it is traced"
            ) from error
        return None  # a model for one size of batch has no other ψ
    return _Other(calls, batch.samples)


def _check_other_batch(count: Count, other: _Other, shape: Shape) -> None:
    """Refuse a model whose ψ depends on how many samples are in the batch."""
    others = counted(other.calls, replace(shape, samples=other.samples))
    differs = [
        f"a spike of {name!r} reaches other synapses"
        for name, by_step in count.within.items()
        if name not in others.within
        or not all(
            torch.allclose(one.double(), two.double(), rtol=1e-9)
            for one, two in zip(by_step, others.within[name], strict=True)
        )
    ]
    if count.analog_macs != others.analog_macs:
        differs.append("a sample takes other analog multiply-accumulates")
    if differs:
        raise PicojouleError(
            f"{differs[0]} in a batch of {other.samples} than in one of another size: the model mixes the samples of a "
            "batch (a mean over its axis, for example), so ψ is not a property of the network: keep the samples apart"
        )


def _analog(calls: list[SynapticCall], samples: int) -> tuple[AnalogSynapses, ...]:
    """List the layers of weights and products that analog values feed, the zeros too with which a state begins."""
    macs: dict[str, int] = {}
    states = {call.weight for call in calls if call.analog_macs}
    for call in calls:
        begins = call.weight in states and call.reached is None and not (call.encoder_macs or call.analog_macs)
        n = call.macs if begins else call.analog_macs
        if n:
            macs[call.name] = macs.get(call.name, 0) + n
    return tuple(AnalogSynapses(name, n // samples) for name, n in macs.items())


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


def _dense_macs(calls: list[SynapticCall], samples: int, layout: TimeLayout) -> dict[int | str, int]:
    """Count all multiply-accumulates of one step, by the identity of the weight: the ReLU twin has no time.

    A recurrence that begins without a state runs in all steps but the first.
    """
    macs: Counter[int | str] = Counter()
    steps: Counter[int | str] = Counter()
    for call in calls:
        macs[call.weight] += call.macs
        steps[call.weight] += layout.steps if layout.is_in(call.fed, samples) else 1

    def times(n: int) -> int:
        return layout.steps if n % layout.steps == 0 else n if n == layout.steps - 1 else 1

    return {weight: macs[weight] // times(steps[weight]) // samples for weight in macs}


def _weight_layers(
    model: nn.Module, calls: list[SynapticCall], dense: dict[int | str, int], samples: int
) -> tuple[WeightLayer, ...]:
    """Name the layers of weights; two weights of one module are one layer."""
    modules, found = dict(model.named_modules()), dict[str, WeightLayer]()
    fed, names = Counter[str](), dict[int | str, str]()
    for call in calls:
        name = names.setdefault(call.weight, call.name)
        fed[name] += call.encoder_macs
    for weight, name in names.items():
        kind = type(modules[name]).__name__ if name in modules else ""
        macs = dense[weight] + (found[name].macs if name in found else 0)
        found[name] = WeightLayer(name, kind, macs, fed[name] // samples)
    return tuple(found.values())
