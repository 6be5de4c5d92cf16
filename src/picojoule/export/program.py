"""A network as a graph of PyTorch's basic operations (`torch.export`), whatever Python it was written in."""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from picojoule.activity import unwrap
from picojoule.errors import PicojouleError
from picojoule.snapshot import unchanged

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
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", category=FutureWarning, message=".*LeafSpec.*")
            # A pruned layer puts its masked weight there in every pass, and one pass is what is exported.
            warnings.filterwarnings("ignore", category=UserWarning, message="The tensor attribute .* was assigned")
            yield
    finally:
        logger.setLevel(level)


def not_captured(model: nn.Module, error: Exception) -> PicojouleError:
    reason = " ".join(str(error).split())[:300]
    return PicojouleError(
        f"torch.export cannot follow the forward pass of {type(model).__name__} ({type(error).__name__}: {reason}): "
        "let nothing in it depend on the values of tensors, and keep the first axis for the batch"
    )


def layer_of(path: list[str], layers: dict[str, Any]) -> str | None:
    """The spiking layer in which an operation stands, from the names of the modules around it."""
    return next((name for name in path if name in layers), None)
