"""A network as a graph of PyTorch's basic operations (`torch.export`), whatever Python it was written in."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from picojoule.deploy.reproduction import Execute, difference, probes
from picojoule.errors import PicojouleError
from picojoule.spikes.spiking import unwrap
from picojoule.synapses.snapshot import unchanged

if TYPE_CHECKING:
    from torch.export import ExportedProgram

BATCH = 2
"""Samples in the captured pass: more than one, so that the batch axis cannot be taken for an axis of length one."""


def prepared(model: nn.Module, example: Tensor) -> tuple[nn.Module, Tensor]:
    """The user's own module and a batch of zeros shaped like the example, on the module's device."""
    model = unwrap(model)
    if not isinstance(model, nn.Module):
        raise PicojouleError(f"only an nn.Module can be exported, not {type(model).__name__}")
    if not isinstance(example, Tensor) or example.dim() < 2:
        raise PicojouleError(
            "export needs an example shaped like a batch of the model's input, such as zeros(1, C, H, W)"
        )
    device = next((p.device for p in model.parameters()), example.device)
    return model, torch.zeros(BATCH, *example.shape[1:], dtype=example.dtype, device=device)


def captured(model: nn.Module, images: Tensor) -> ExportedProgram:
    """The operations of one forward pass in evaluation mode, without side effects on the model."""
    with evaluated(model), quiet():
        try:
            program: ExportedProgram = torch.export.export(model, (images,)).run_decompositions({})
        except Exception as error:  # the user's forward pass may raise anything
            raise not_captured(model, error) from error
    return program


@contextlib.contextmanager
def evaluated(model: nn.Module) -> Iterator[None]:
    with unchanged(model), torch.no_grad():
        model.eval()
        yield


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without what PyTorch's exporter says about itself."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "torch.fx", "torch.export", "torch._export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
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


def not_captured(model: nn.Module, error: Exception) -> PicojouleError:
    reason = " ".join(re.sub(r"\x1b\[[0-9;]*m", "", str(error)).split())[:300]  # it colours its words
    return PicojouleError(
        f"torch.export cannot follow the forward pass of {type(model).__name__} ({type(error).__name__}: {reason}): "
        "let nothing in it depend on the values of tensors, and keep the first axis for the batch"
    )


def refuse_difference(model: nn.Module, example: Tensor, what: str, execute: Execute) -> None:
    """Nothing is given out that does something else than the network on noise and on the example."""
    model, like = prepared(model, example)
    found = difference(model, probes(example.to(like.device)), execute)
    if found is not None:
        raise PicojouleError(
            f"the {what} export does not reproduce {type(model).__name__} ({found}), so nothing was written: remove "
            "hooks, and let its output depend on nothing but the image, its weights and the settings of its layers"
        )


def layer_of(path: list[str], layers: dict[str, Any]) -> str | None:
    """The spiking layer in which an operation stands, from the names of the modules around it."""
    return next((name for name in path if name in layers), None)
