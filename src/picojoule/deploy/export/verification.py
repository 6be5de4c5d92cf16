"""An exported network is executed and compared with the original before anything is given out."""

from __future__ import annotations

from torch import Tensor, nn

from picojoule.deploy.graph.operations import network_and_zeros
from picojoule.deploy.graph.refusal import Destination
from picojoule.deploy.reproduction import Execute, difference, probes
from picojoule.errors import PicojouleError


def refuse_difference(model: nn.Module, example: Tensor, destination: Destination, execute: Execute) -> None:
    """Refuse an export that does something else than the network on noise or on the example.

    Args:
        model: The network.
        example: A batch as the network takes it.
        destination: The export.
        execute: Runs what was exported on a batch.

    Raises:
        PicojouleError: If an output or a spike differs by more than rounding.
    """
    model, zeros = network_and_zeros(model, example, destination)
    found = difference(model, probes(example.to(zeros.device)), execute)
    if found is not None:
        raise PicojouleError(
            f"{destination.name} does not reproduce {type(model).__name__} ({found}), so nothing was written: remove "
            "hooks, and let its output depend on nothing but the image, its weights and the settings of its layers"
        )
