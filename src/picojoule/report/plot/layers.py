"""Which layers a picture shows, and the spikes of each as plain numbers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from picojoule.errors import PicojouleError, unknown
from picojoule.spikes.activity import Activity, check_activity


def chosen_layers(what: str, activity: Activity, layers: Iterable[str] | None) -> list[str]:
    """Check which layers are to be shown.

    Args:
        what: The picture, for errors.
        activity: What `picojoule.watch` recorded.
        layers: Names of layers; None is all that have neurons, so no max pools.

    Returns:
        The names, in the order in which they were asked for.

    Raises:
        PicojouleError: If there is no such layer, or nothing was recorded.
    """
    check_activity(what, activity)
    if layers is None:
        return [name for name in activity if name not in activity.relays]
    if isinstance(layers, str):
        layers = [layers]
    names = list(layers)
    for name in names:
        if name not in activity:
            raise unknown("layer", str(name), list(activity))
    if not names:
        raise PicojouleError(f"{what} needs a layer: name one, or leave `layers` out for all of them")
    return names


def spikes_of(activity: Activity, name: str) -> Tensor:
    """Return the spikes of a layer as [T, B, …], detached, in float32 on the CPU.

    Args:
        activity: What `picojoule.watch` recorded.
        name: The layer.

    Returns:
        The spikes.
    """
    return torch.stack([step.detach() for step in activity.by_step(name)]).float().cpu()


def checked_sample(sample: int, samples: int) -> int:
    """Check the number of a sample.

    Args:
        sample: The sample, counted from 0.
        samples: How many there are.

    Returns:
        The sample.

    Raises:
        PicojouleError: If there is no such sample.
    """
    if type(sample) is not int or not 0 <= sample < samples:
        raise PicojouleError(f"sample={sample!r} is not one of the {samples} that were watched: count from 0")
    return sample
