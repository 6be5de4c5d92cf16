"""Calls of a model in a structural pass: its own errors are told apart from refusals, and it comes back as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import compiler_is_loaded, tree_leaves
from picojoule.synapses.recording import Recording
from picojoule.synapses.repetition import Calls, settle
from picojoule.synapses.rules.call import ChainsOfLayers, Psi
from picojoule.synapses.rules.passing import PassingRule
from picojoule.synapses.snapshot import unchanged
from picojoule.synapses.structural_pass import StructuralPass


class ForwardPassError(PicojouleError):
    """A failure of the model's own code on the example."""


def record_calls(
    model: nn.Module,
    psi: Psi,
    passing: Mapping[str, PassingRule],
    arguments: tuple[Any, ...],
    calls: int = 2,
    *,
    strict: bool = False,
    chains: ChainsOfLayers = "run",
) -> Calls:
    """Call a model in a structural pass and leave it exactly as it was.

    Args:
        model: The network.
        psi: The convention by which synapses are counted.
        passing: The passing rules by the name of the operation.
        arguments: What the model is called with.
        calls: 2 to call it again in the state that the call before has left it in, and once more where that differs;
            else 1.
        strict: Whether analog values that feed synapses are refused.
        chains: How layers of weights without a neuron between them are billed.

    Returns:
        What the calls recorded.

    Raises:
        ForwardPassError: The model's own code failed.
        PicojouleError: Something cannot be counted, or a later call runs other synapses than the first.
    """
    with unchanged(model), _uncompiled():
        model.eval()
        structural = StructuralPass(model, psi, passing, strict=strict, chains=chains)

        def call() -> Recording:
            structural.begin_another_call()
            _call(model, structural, arguments)
            return structural.recording

        first = call()
        return settle(first, call(), call) if calls > 1 else Calls(first, first)


def _call(model: nn.Module, structural: StructuralPass, arguments: tuple[Any, ...]) -> None:
    """Call the model once; an error of its own names the example's shape."""
    inputs = structural.emit_input(arguments)
    try:
        with torch.inference_mode(False), torch.enable_grad(), structural.attached(), structural:
            output = model(*inputs)
        structural.check_output(output)
    except Exception as error:
        if isinstance(error, PicojouleError) or structural.recording.refusal:
            raise structural.recording.refusal or error from None
        shapes = ", ".join(str(tuple(a.shape)) if isinstance(a, Tensor) else type(a).__name__ for a in arguments)
        held = tree_leaves((arguments, [*model.parameters(), *model.buffers()]))
        told = " ".join(str(error).split())
        raise ForwardPassError(
            f"the model's forward pass failed on an example of shape {shapes} ({type(error).__name__}: {told[:300]}): "
            + _remedy([leaf for leaf in held if isinstance(leaf, Tensor)])
        ) from error
    if structural.recording.refusal:
        raise structural.recording.refusal


def _remedy(tensors: list[Tensor]) -> str:
    """Say what to do about a forward pass that failed, by what the example and the model hold."""
    if any(tensor.is_meta for tensor in tensors):
        return "move example and model off the meta device, the model with to_empty(device='cpu')"
    if any(tensor.layout != torch.strided for tensor in tensors):
        return "make sparse weights dense with to_dense(), the zeros among them can be left out by pruning"
    return "give an example shaped like a batch of the model's real input"


def _uncompiled() -> contextlib.AbstractContextManager[Any]:
    """Run compiled parts of the model as they were written, without loading the compiler if nobody has."""
    if not compiler_is_loaded():
        return contextlib.nullcontext()
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance
