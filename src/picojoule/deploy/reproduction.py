"""Comparison of a program made of a network (an event engine, an exported file) with the network itself.

The program runs on its own on some samples. Then the network runs on the same samples, as it is, with the program's
spikes put in place of those that each spiking layer emits: so every layer is tried on identical inputs, and a spike
that differs spoils nothing behind it. A program adds up in another order, so a potential that sits on the threshold
within rounding may fall on either side. Therefore the network runs three times: with the potentials as they are, and
moved up and down by `NEAR` of each sample's largest. What the program emits must lie between what the network emits in
the three; away from the threshold, all three are the same. Nothing is known here of thresholds, hooks or weights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError, reason_of
from picojoule.kernels.torch_private import tree_leaves
from picojoule.spikes.spiking import first_output, replace_first_output, spiking_modules
from picojoule.synapses.snapshot import unchanged

NEAR = 1e-4
"""The share of a sample's largest potential in a layer, and of the largest output, by which rounding may move it.

Among trained networks of the zoo, two millionths were the most that it took (docs/how-to/events.md).
"""
SCALES = (0.5, 1.0, 1.0, 2.0, 4.0, 8.0)
"""Standard deviations of the noise: the stronger it is, the more layers fire."""
SAMPLES = 4
"""Samples of the example that are tried beside the noise."""


@dataclass
class Executed:
    """What a program, or the network itself, gave for a batch."""

    output: Tensor
    spikes: Mapping[str, list[Tensor]]
    """What each spiking layer and each relay emitted, call by call, by the layer's name."""


Execute = Callable[[Tensor], Executed]


def probes(example: Tensor) -> Tensor:
    """Make the samples that a program is compared on: noise, and some samples of the example.

    Args:
        example: A batch as the network takes it.

    Returns:
        A batch; zeros take the place of noise where the network takes whole numbers.

    Example:
        >>> probes(torch.zeros(9, 3)).shape
        torch.Size([10, 3])
    """
    samples = example.detach()[:SAMPLES]
    shape = (len(SCALES), *example.shape[1:])
    if not example.is_floating_point():
        return torch.cat([samples, samples.new_zeros(shape)])
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    noise *= torch.tensor(SCALES).view(-1, *[1] * (noise.dim() - 1))
    return torch.cat([noise.to(samples), samples])


def difference(model: nn.Module, images: Tensor, execute: Execute) -> str | None:
    """Find where a program first does something else than the network.

    Args:
        model: The network; it stays as it is.
        images: The batch to compare on; its first sample is tried alone too.
        execute: Runs the program on a batch.

    Returns:
        What differs, as a clause, or None if nothing does.

    Raises:
        PicojouleError: If the network itself fails on the batch.

    Example:
        >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> difference(net, torch.ones(1, 2), lambda x: Executed(net[1](net[0](x)), {}))
        >>> difference(net, torch.ones(1, 2), lambda x: Executed(net[1](net[0](x)) + 1, {}))
        'its output is off by 1'
    """
    if not _is_repeatable(model, images):
        return "its second forward pass gives another output than its first"
    found = _difference(model, images, execute)
    if found is None and len(images) > 1 and _accepts(model, images[:1]):
        found = _difference(model, images[:1], execute)
        return found and f"for a batch of one, {found}"
    return found


def _difference(model: nn.Module, images: Tensor, execute: Execute) -> str | None:
    try:
        theirs = execute(images)
    except PicojouleError:
        raise
    except Exception as error:  # what a runtime raises where the program does not fit
        return f"it fails on {len(images)} samples: {reason_of(error)}"
    own, *moved = (_forced(model, images, theirs.spikes, by) for by in (0.0, NEAR, -NEAR))
    for name, calls in own.spikes.items():
        emitted = theirs.spikes[name]
        if len(calls) != len(emitted):
            return f"the layer {name!r} fires {len(emitted)} times instead of {len(calls)}"
        for i, spikes in enumerate(calls):
            if emitted[i].shape != spikes.shape:
                return f"the layer {name!r} emits {tuple(emitted[i].shape)} instead of {tuple(spikes.shape)}"
            wrong = _outside(emitted[i], [spikes, *(other.spikes[name][i] for other in moved)], NEAR / 10)
            if wrong.any():
                return f"the layer {name!r} emits other spikes ({int(wrong.sum()):,} of {wrong.numel():,})"
    silent = [name for name in theirs.spikes if name not in own.spikes]
    if silent:
        return f"the layer {silent[0]!r} is never called"
    if theirs.output.shape != own.output.shape:
        return f"its output has the shape {tuple(theirs.output.shape)} instead of {tuple(own.output.shape)}"
    if _outside(theirs.output, [own.output, *(other.output for other in moved)], NEAR).any():
        gap = (theirs.output.to(own.output) - own.output).abs().nan_to_num(torch.inf).max().item()
        return f"its output is off by {gap:.2g}"
    return None


def _is_repeatable(model: nn.Module, images: Tensor) -> bool:
    """Say whether a network gives the same again; with a state or random numbers it is not a function of its input."""
    with _evaluating(model, images):
        first, second = (_output(model, images) for _ in range(2))
    return first.shape == second.shape and not _outside(second, [first], 0.0).any()


def _accepts(model: nn.Module, images: Tensor) -> bool:
    """Say whether a network has an answer at all; one that normalises by its batch has none for a batch of one."""
    with _evaluating(model, images):
        try:
            model(images.clone())
        except Exception:  # the user's forward pass may raise anything
            return False
    return True


@contextmanager
def _evaluating(model: nn.Module, images: Tensor) -> Iterator[None]:
    """Keep a network in evaluation mode and in the precision of its weights for a block, and leave it as it was."""
    with unchanged(model), torch.no_grad(), torch.autocast(images.device.type, enabled=False):
        model.eval()
        yield


def emitting_once(model: nn.Module, images: Tensor) -> list[str]:
    """Find the spiking layers that a forward pass calls once and that return a tensor: what they emit has one name.

    Args:
        model: The network; it stays as it is.
        images: A batch to run it on.

    Returns:
        The layers' names, in the order of their calls.
    """
    calls: dict[str, list[bool]] = {}
    with ExitStack() as stack:
        stack.enter_context(_evaluating(model, images))
        for name, layer in spiking_modules(model).items():

            def note(module: nn.Module, arguments: Any, output: Any, name: str = name) -> None:
                calls.setdefault(name, []).append(isinstance(output, Tensor))

            stack.callback(layer.register_forward_hook(note).remove)
        _output(model, images)
    return [name for name, tensors in calls.items() if tensors == [True]]


def _outside(theirs: Tensor, own: list[Tensor], slack: float) -> Tensor:
    """Mark values beyond all that the network itself gave; `slack` is relative to the largest of them."""
    theirs = theirs.to(own[0])
    if not theirs.is_floating_point():
        return theirs != own[0]
    precision = torch.finfo(theirs.dtype).eps
    largest = own[0].abs()[own[0].isfinite()].max().item() if own[0].isfinite().any() else 0.0
    margin = max(slack, 16 * precision) * largest
    low, high = torch.stack(own).amin(0), torch.stack(own).amax(0)
    inside = (theirs >= low - margin) & (theirs <= high + margin)
    return ~(inside | (theirs == own[0]) | (theirs.isnan() & own[0].isnan()))


@dataclass
class _ForcedPass:
    """What hooks behind the network's own see and do in one pass with given spikes."""

    given: Mapping[str, list[Tensor]]
    by: float
    spikes: dict[str, list[Tensor]] = field(default_factory=dict)

    def move(self, module: nn.Module, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
        if not self.by or not arguments or not isinstance(u := arguments[0], Tensor) or not u.is_floating_point():
            return None
        by = max(abs(self.by), 16 * torch.finfo(u.dtype).eps)
        sizes = torch.where(u.isfinite(), u, 0).abs()
        largest = sizes.flatten(1).amax(1) if u.dim() > 1 and u.numel() else sizes
        return u + (by if self.by > 0 else -by) * largest.view(-1, *[1] * (u.dim() - 1)), *arguments[1:]

    def replace(self, name: str, output: Any) -> Any:
        emitted = first_output(name, output)
        calls = self.spikes.setdefault(name, [])
        calls.append(emitted.clone())  # the network may go on to write into its own
        given = self.given[name][len(calls) - 1 : len(calls)]
        if not given or given[0].shape != emitted.shape:
            return output
        return replace_first_output(output, torch.empty_like(emitted).copy_(given[0]))


def _forced(model: nn.Module, images: Tensor, given: Mapping[str, list[Tensor]], by: float) -> Executed:
    """Run the network with each layer fed with the given spikes; the network stays as it was."""
    seen, spiking = _ForcedPass(given, by), spiking_modules(model)
    with ExitStack() as stack:
        stack.enter_context(_evaluating(model, images))
        for name in given:
            layer = model.get_submodule(name)

            def leave(module: nn.Module, arguments: Any, output: Any, name: str = name) -> Any:
                return seen.replace(name, output)

            if name in spiking:
                stack.callback(layer.register_forward_pre_hook(seen.move).remove)
            stack.callback(layer.register_forward_hook(leave).remove)
        output = _output(model, images)
    return Executed(output, seen.spikes)


def _output(model: nn.Module, images: Tensor) -> Tensor:
    try:
        answer = model(images.clone())
    except PicojouleError:
        raise
    except Exception as error:  # the user's forward pass may raise anything
        raise PicojouleError(
            f"the forward pass of {type(model).__name__} fails in evaluation mode on a batch of {len(images)} "
            f"({reason_of(error)}), so what is made of it cannot be compared with it: let it take batches of any size "
            "and any numbers"
        ) from error
    tensors = [leaf for leaf in tree_leaves(answer) if isinstance(leaf, Tensor)]
    if len(tensors) != 1:
        raise PicojouleError(
            f"{type(model).__name__} returns {len(tensors)} tensors in evaluation mode: let it return the logits alone"
        )
    return tensors[0].clone()  # which the next pass may overwrite
