"""The graph of a network's basic operations, by `torch.export`, whatever Python the network was written in.

The exports need this graph and not that of layers (`capture`): it holds what hooks, derived classes and functional
calls do, because it records the operations themselves. ONNX has no choice, as PyTorch's exporter to it starts from
`torch.export` and tries several ways of it; NIR shares it, so that both files take the same networks.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from picojoule.deploy.graph.capture import evaluating, network_of
from picojoule.deploy.graph.refusal import Destination
from picojoule.errors import PicojouleError, reason_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BATCH = 2
"""Samples in the captured pass: more than one, so that the batch axis cannot be taken for an axis of length one."""


def network_and_zeros(model: nn.Module, example: Tensor, destination: Destination) -> tuple[nn.Module, Tensor]:
    """Take the network out of its wrappers, and make a batch of zeros to capture it with.

    Args:
        model: The network, perhaps wrapped.
        example: A batch as the network takes it.
        destination: What the graph is for.

    Returns:
        The network itself and zeros shaped like the example, `BATCH` of them, on the network's device.

    Raises:
        PicojouleError: If the model is not an `nn.Module`, or the example is not a batch.
    """
    model = network_of(model, destination)
    if not isinstance(example, Tensor) or example.dim() < 2:
        raise PicojouleError(
            f"{destination.name} needs an example shaped like a batch of the model's input: give one such as "
            "torch.zeros(1, C, H, W)"
        )
    device = next((p.device for p in model.parameters()), example.device)
    return model, torch.zeros(BATCH, *example.shape[1:], dtype=example.dtype, device=device)


def operation_graph(model: nn.Module, images: Tensor) -> ExportedProgram:
    """Capture the operations of one forward pass in evaluation mode; the network stays as it was.

    Args:
        model: The network.
        images: A batch, of which only shape and type matter.

    Returns:
        The program of PyTorch's exporter, in basic operations.

    Raises:
        PicojouleError: If the forward pass cannot be followed.
    """
    with evaluating(model), quiet_exporter():
        try:
            program: ExportedProgram = torch.export.export(model, (images,)).run_decompositions({})
        except Exception as error:  # the user's forward pass may raise anything
            raise not_exported(model, error) from error
    return program


@contextlib.contextmanager
def quiet_exporter() -> Iterator[None]:
    """Silence what PyTorch's exporter logs, prints and warns about itself.

    Yields:
        Nothing.
    """
    names = ("torch.onnx", "torch.fx", "torch.export", "torch._export", "torch._subclasses", "torch._dynamo")
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        # Where it gives up it prints the graph that it has so far.
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec.*")
            # A pruned layer puts its masked weight there in every pass, and one pass is what is exported.
            warnings.filterwarnings("ignore", category=UserWarning, message="The tensor attribute .* was assigned")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def not_exported(model: nn.Module, error: Exception) -> PicojouleError:
    """Make the error for a forward pass that PyTorch's exporter gives up on.

    Args:
        model: The network.
        error: What the exporter raised; told is what caused it in the end.

    Returns:
        The error, to be raised.
    """
    while isinstance(error.__cause__, Exception):
        error = error.__cause__
    return PicojouleError(
        f"torch.export cannot follow the forward pass of {type(model).__name__} ({reason_of(error)}): "
        "let nothing in it depend on the values of tensors, and keep the first axis for the batch"
    )
