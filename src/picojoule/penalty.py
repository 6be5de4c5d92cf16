"""Penalties on spikes: the energy metric itself, and the two older ones it is compared with.

    Ω = Σ_t Σ_l (1/p) Σ_i c_{l,i} s_{l,i,t}^p       (mean over the batch)

| kind | c_{l,i} | what it costs | Ω(1) for p = 1 |
|---|---|---|---|
| `"syn"` | ψ_{l,i} | every synapse that a spike reaches, the same: the energy metric itself | synapses |
| `"total"` | 1 | every spike the same (Esser et al., 2016) | neurons |
| `"balance"` | 1/d_l | every layer of d_l neurons the same (Pellegrini et al., 2021) | layers |
| a price list | Σ_targets per_synop · ψ_target + per_spike | joules on that hardware: E[Ω] is the report's | joules |
| a function | layer ↦ a number, or a tensor of the map's shape | any metric that is a weighted sum of spikes | Σ c |
| `TargetPenalty` | not of this form | ((S − S₀)/S₀)², a pull towards S₀ synaptic operations (Sorbaro et al., 2020) | |

For binary spikes p · E_AC · E[Ω_syn] = E_SNN for every p ≥ 1; for p > 1 and several spikes in one value the equality is
lost, because s^p ≠ s. What no spike changes (`update_joules`) is in no penalty.

Relays (max pools) have no neurons: "total" and "balance" do not see them, "syn" reads ψ behind the pool. A function of
your own is asked for relays too, which `layer.relay` tells.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import has_forward_mode
from picojoule.spikes.activity import Activity, check_activity
from picojoule.spikes.packed import PackedSpikes
from picojoule.spikes.sums import precise, summed_over_batch
from picojoule.synapses.table import Layer, Synapses

PenaltyKind = Literal["syn", "total", "balance"]
"""The penalties that have a name."""
Weighting = Callable[[Layer], "Tensor | float"]
"""Gives the coefficients c of a layer: a number for all its neurons, or a tensor of its map's shape."""

LARGEST_P = 127
"""Above it, two spikes in one value give a power that float32 cannot hold."""

_WEIGHTINGS: dict[PenaltyKind, Weighting] = {
    "syn": lambda layer: layer.fan_out,
    "total": lambda layer: 0.0 if layer.relay else 1.0,
    "balance": lambda layer: 0.0 if layer.relay else 1.0 / layer.neurons,
}


class Penalty:
    """A penalty on spikes: Ω = Σ_t Σ_l (1/p) Σ_i c_{l,i} s_{l,i,t}^p, the mean over the batch, to be added to the loss.

    With `normalized=True` it is divided by T·Ω(1), its value if every neuron fired in every step (where spikes are fed
    back, without the last step's, which are not): a number in [0, 1], comparable between penalties and networks. For
    `kind="syn"` and binary spikes, p · E_AC · E[Ω] = E_SNN: what is trained is what the meter reports.

    Args:
        synapses: What `picojoule.trace` gave for the network.
        kind: `"syn"` (c = ψ), `"total"` (c = 1), `"balance"` (c = 1/d_l), a price list of `picojoule.hardware`
            (joules), or a function of your own from a `Layer` to its coefficients.
        p: The exponent, from 1 to 127. For p > 1, Ω is the energy metric for binary spikes only.
        normalized: Whether to divide by T·Ω(1).

    Raises:
        PicojouleError: An argument is not valid, or the coefficients are negative, not finite, of another shape, or all
            zero.

    >>> import picojoule as pj
    >>> net = pj.zoo.create("cnn7")
    >>> penalty = Penalty(pj.trace(net, torch.zeros(1, 1, 32, 32)), kind="syn", p=1, normalized=False)
    >>> penalty.at_one
    98895888.0
    >>> with pj.watch(net) as activity:
    ...     logits = net(torch.rand(2, 1, 32, 32))
    >>> loss = logits.square().mean() + 1e-9 * penalty(activity)
    """

    def __init__(
        self, synapses: Synapses, kind: PenaltyKind | Weighting = "syn", p: float = 1, normalized: bool = True
    ) -> None:
        if not callable(kind) and not (isinstance(kind, str) and kind in _WEIGHTINGS):
            raise PicojouleError(
                f"penalty kind {kind!r} is not known: choose one of {', '.join(map(repr, get_args(PenaltyKind)))}, "
                "or give a function layer -> coefficients"
            )
        if not isinstance(synapses, Synapses):
            raise PicojouleError(
                f"a penalty needs the Synapses that picojoule.trace gives, not {type(synapses).__name__}"
            )
        if not isinstance(p, int | float) or not 1 <= p <= LARGEST_P:
            raise PicojouleError(f"p={p!r} is not allowed: a penalty needs a finite p of 1 or more, up to {LARGEST_P}")
        if not isinstance(normalized, bool):
            raise PicojouleError(f"normalized={normalized!r} is neither True nor False: give one of them")
        self.synapses = synapses
        self.kind = kind if isinstance(kind, str) else _name(kind)
        self.p = p
        self.normalized = normalized
        weighting = _WEIGHTINGS[kind] if isinstance(kind, str) else kind
        everywhere = {name: _coefficients(layer, weighting(layer)) for name, layer in synapses.items()}
        self._coefficients = {
            name: (everywhere[name],)
            if layer.by_step is None
            else tuple(_coefficients(kind, weighting(kind)) for kind in layer.kinds)
            for name, layer in synapses.items()
        }
        """Of every layer, for each kind of time step."""
        self._free = {
            name for name, kinds in self._coefficients.items() if not any(bool((c != 0).any()) for c in kinds)
        }
        self._depends_on_step = any(layer.by_step is not None for layer in synapses.values())
        # Rounded once, at the end: the paper's totals are whole numbers though single ψ are fractions.
        self.at_one = (
            math.fsum(c * synapses[name].at_one for name, all_c in everywhere.items() for c in all_c.flatten().tolist())
            / p
        )
        """Ω(1): the penalty of one step in which every neuron fires, with what is fed back into the next."""
        if normalized and self.at_one <= 0:
            raise PicojouleError(
                "the penalty is zero even if every neuron fires, so it cannot be normalised: "
                + (
                    "no spike reaches a synapse, so let the neurons feed a layer"
                    if kind == "syn"
                    else "check the weighting"
                )
            )
        self._on_device: dict[torch.device, dict[str, tuple[Tensor, ...]]] = {}

    def __call__(self, activity: Activity) -> Tensor:
        """Compute Ω of the spikes in one `picojoule.watch` block.

        Args:
            activity: The spikes of one forward pass.

        Returns:
            A float32 scalar with a gradient.

        Raises:
            PicojouleError: A layer of the network is missing in the activity, has another shape, or its spikes have no
                gradient.
        """
        return torch.stack(list(self.by_layer(activity).values())).sum()

    def by_layer(self, activity: Activity) -> dict[str, Tensor]:
        """Compute each layer's share of Ω; they add up to it.

        Args:
            activity: The spikes of one forward pass.

        Returns:
            Scalars by the names of the layers.

        Raises:
            PicojouleError: As for the penalty itself.
        """
        check_activity("a penalty", activity)
        values: dict[str, Tensor] = {}
        steps, calls, stream = activity.steps, activity.network_calls, activity.stream
        scale = 1 / (self.p * self._if_all_fire(steps, calls, stream=stream)) if self.normalized else 1 / self.p
        made = self.synapses.made
        needless = made.keys() & self._free
        shapes = {name: layer.shape for name, layer in self.synapses.items() if name not in needless}
        emitted = activity.kept(shapes, made, self.p)
        rows = len(emitted[next(name for name in emitted if name not in made)][0])
        for name in self.synapses:
            by_step = emitted.get(name) or emitted[next(iter(emitted))]
            branches = [kept.branch if isinstance(kept, PackedSpikes) else kept for kept in by_step]
            device, samples, binary = branches[0].device, max(rows, 1), activity.is_binary(name)
            p = 1 if name in made else self.p  # there it is raised already
            if name in self._free:
                values[name] = torch.zeros((), device=device)
                continue
            if torch.is_grad_enabled() and name not in made:
                activity.check_gradient(name)
            kinds = self.synapses[name].kinds_of(steps, calls, stream=stream)
            terms = []
            for kind, coefficients in enumerate(self._coefficients_on(device)[name]):
                chosen = by_step if self.synapses[name].by_step is None else _only(by_step, kinds, kind)
                branches = [kept.branch if isinstance(kept, PackedSpikes) else kept for kept in chosen]
                if any(map(has_forward_mode, branches)):
                    terms.append(_weighted(coefficients, p, scale / samples, *branches))
                elif branches:
                    how = _How(p, scale / samples, binary, chosen)
                    terms.append(_Weighted.apply(coefficients, how, *branches))  # type: ignore[no-untyped-call]
            values[name] = terms[0] if len(terms) == 1 else torch.stack(terms).sum()
        return values

    def _if_all_fire(self, steps: int, network_calls: int | None = None, *, stream: bool = False) -> float:
        """Compute Ω of a block in which every neuron fires in every step."""
        if not self._depends_on_step:
            return self.at_one * steps
        blocks = self._layers_if_all_fire(steps, network_calls, stream=stream)
        total = math.fsum(blocks.values()) / self.p
        if total <= 0:
            raise PicojouleError(
                f"the penalty is zero even if every neuron fires in each of {steps} steps, so it cannot be normalised: "
                "take more steps, so that spikes are fed back"
            )
        return total

    def _layers_if_all_fire(
        self, steps: int, network_calls: int | None = None, *, stream: bool = False
    ) -> dict[str, float]:
        """Sum Σ_t Σ_i c of every layer."""
        return {
            name: math.fsum(
                coefficients[kind].sum().item() * self.synapses[name].at_one
                for kind in self.synapses[name].kinds_of(steps, network_calls, stream=stream)
            )
            for name, coefficients in self._coefficients.items()
        }

    def by_layer_at_one(self, steps: int = 1) -> dict[str, float]:
        """Compute each layer's share of Ω if every neuron fired in every step, without the layers that cost nothing.

        A layer's share of Ω divided by this is its firing rate, each neuron weighted by its coefficient.

        Args:
            steps: Time steps of a sample.

        Returns:
            Numbers by the names of the layers.
        """
        if self._depends_on_step:
            scale = 1 / (self.p * self._if_all_fire(steps)) if self.normalized else 1 / self.p
            blocks = self._layers_if_all_fire(steps)
        else:
            scale = 1 / (self.p * self.at_one) if self.normalized else steps / self.p
            blocks = {name: c.sum().item() * self.synapses[name].at_one for name, (c,) in self._coefficients.items()}
        return {name: block * scale for name, block in blocks.items() if name not in self._free}

    def _coefficients_on(self, device: torch.device) -> dict[str, tuple[Tensor, ...]]:
        if device not in self._on_device:
            self._on_device[device] = {
                name: tuple(c.to(device, precise(device)) for c in kinds) for name, kinds in self._coefficients.items()
            }
        return self._on_device[device]

    def __repr__(self) -> str:
        return f"Penalty(kind={self.kind!r}, p={self.p}, normalized={self.normalized}, at_one={self.at_one:,.6g})"


class TargetPenalty:
    """A pull towards a number of synaptic operations: ((S − S₀)/S₀)², with S per sample over all time steps.

    With S₀ lowered stage by stage, it is the penalty of the conversion baseline (Sorbaro et al., 2020).

    Args:
        synapses: What `picojoule.trace` gave for the network.
        target: S₀, synaptic operations per sample.

    Raises:
        PicojouleError: `target` is not a finite number above 0.

    >>> import picojoule as pj
    >>> net = torch.nn.Sequential(pj.declare_spiking(torch.nn.Identity()), torch.nn.Linear(4, 3))
    >>> penalty = TargetPenalty(pj.trace(net, torch.zeros(1, 4)), target=4)
    >>> with pj.watch(net) as activity:
    ...     _ = net(torch.tensor([[1.0, 0.0, 1.0, 0.0]]))  # 6 operations
    >>> penalty(activity)
    tensor(0.2500)
    """

    def __init__(self, synapses: Synapses, target: float) -> None:
        if not isinstance(target, int | float) or not (math.isfinite(target) and target > 0):
            raise PicojouleError(f"target={target!r} is not a number of synaptic operations: give a finite one above 0")
        self.target = float(target)
        self._operations = Penalty(synapses, "syn", normalized=False)

    def __call__(self, activity: Activity) -> Tensor:
        """Compute ((S − S₀)/S₀)² of the spikes in one `picojoule.watch` block.

        Args:
            activity: The spikes of one forward pass.

        Returns:
            A float32 scalar with a gradient.
        """
        return (self._operations(activity) / self.target - 1).square()

    def __repr__(self) -> str:
        return f"TargetPenalty(target={self.target:,.6g})"


class _How(NamedTuple):
    """How the spikes of a layer are weighted: the exponent, a factor, and the spikes as they were kept."""

    p: float
    scale: float
    binary: bool
    by_step: list[Tensor | PackedSpikes]

    def summed(self) -> list[Tensor]:
        """Σ_b s^p of each time step."""
        return [
            kept.summed()  # 0 and 1 are their own powers
            if isinstance(kept, PackedSpikes)
            else summed_over_batch(kept if self.p == 1 else kept.detach().float().pow(self.p), binary=self.binary)
            for kept in self.by_step
        ]


class _Weighted(Function):
    """scale · Σ_t Σ_b Σ_i c_i s^p, with a gradient that for p = 1 is one map, seen by every sample.

    The sum over the batch comes first, so that ψ meets one map instead of a batch of them.
    """

    @staticmethod
    def forward(ctx: Any, coefficients: Tensor, how: _How, *branches: Tensor) -> Tensor:
        ctx.p, ctx.scale = how.p, how.scale
        ctx.packed = [kept if isinstance(kept, PackedSpikes) else None for kept in how.by_step]
        ctx.save_for_backward(coefficients, *branches) if how.p != 1 else ctx.save_for_backward(coefficients)
        strides = [kept.stride if isinstance(kept, PackedSpikes) else kept.stride() for kept in how.by_step]
        ctx.like = [(x.shape, stride, x.dtype) for x, stride in zip(branches, strides, strict=True)]
        sums = torch.stack(how.summed()).to(coefficients.dtype).sum(0)
        return (sums * coefficients).sum().mul(how.scale).float()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        coefficients, *branches = ctx.saved_tensors
        one_map = coefficients * (grad.to(coefficients.dtype) * ctx.scale * ctx.p)
        grads = [_for_every_sample(one_map, *like) for like in ctx.like]
        if branches:
            by_step = [x if kept is None else kept.values() for x, kept in zip(branches, ctx.packed, strict=True)]
            grads = [g * spikes.pow(ctx.p - 1) for g, spikes in zip(grads, by_step, strict=True)]
        return None, None, *grads


def _weighted(coefficients: Tensor, p: float, scale: float, *by_step: Tensor) -> Tensor:
    """Compute `_Weighted` in operations that the transforms of `torch.func` and forward mode can follow."""
    powers = (spikes if p == 1 else spikes.float().pow(p) for spikes in by_step)
    sums = torch.stack([x.sum(0, dtype=coefficients.dtype) for x in powers]).sum(0)
    return (sums * coefficients).sum().mul(scale).float()


def _only(by_step: list[Tensor | PackedSpikes], kinds: list[int], kind: int) -> list[Tensor | PackedSpikes]:
    """Choose the spikes of the steps of one kind."""
    return [spikes for spikes, each in zip(by_step, kinds, strict=True) if each == kind]


def _name(weighting: Weighting) -> str:
    """Name a weighting as its author did."""
    return str(getattr(weighting, "name", getattr(weighting, "__name__", type(weighting).__name__)))


def _for_every_sample(one_map: Tensor, shape: torch.Size, stride: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Expand a map to a batch without copies, laid out in memory like the spikes, whose gradient it is added to."""
    if 0 in stride[1:]:  # spikes that are themselves one value seen many times
        return one_map.to(dtype).expand(shape)
    laid_out = torch.empty_strided(shape[1:], stride[1:], dtype=dtype, device=one_map.device)
    return laid_out.copy_(one_map).expand(shape)


def _coefficients(layer: Layer, weights: Tensor | float) -> Tensor:
    """Check what a weighting gave for a layer and return it in the layer's shape, float64."""
    try:
        c = torch.as_tensor(weights, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        raise PicojouleError(
            f"the weighting gives the layer {layer.name!r} {type(weights).__name__}, which is no cost: let it give a "
            "number or a tensor"
        ) from None
    if c.dim() and tuple(c.shape) != layer.shape:
        raise PicojouleError(
            f"the weighting gives the layer {layer.name!r} coefficients of shape {tuple(c.shape)}, but its map has "
            f"shape {layer.shape}: let it give one number, or one for each neuron"
        )
    if not bool(torch.isfinite(c).all()) or bool((c < 0).any()):
        raise PicojouleError(
            f"the weighting gives the layer {layer.name!r} coefficients that are negative or not finite: they are costs"
        )
    return c.expand(layer.shape).contiguous()
