"""Trained networks that ship with picojoule: weights by name, verified by hash.

Each is the folder of a run: its recipe, its result and its weights, whose convolutions and linear layers are rounded to
int8. The figures are those of the rounded weights. `scripts/weights.py` makes such a folder of a run and writes it
down in `index.json`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from torch import Tensor

from picojoule.errors import PicojouleError, unknown
from picojoule.io import files

HOME = Path(__file__).parent
INDEX = HOME / "index.json"
WEIGHTS = "weights.safetensors"


class Weights(NamedTuple):
    """What is known of weights that ship with picojoule."""

    sha256: str
    """Of their file."""
    accuracy: float
    """Share of right answers on the test images."""
    joules: float
    """Energy of the spikes per test image."""
    share: float
    """That energy relative to the network trained without a penalty."""
    recipe: str
    """The digest of the recipe that they were trained with."""


@cache
def index() -> Mapping[str, Weights]:
    """List the weights that ship with picojoule.

    Returns:
        What is known of each, by names such as "cnn7/fashion-mnist-baseline".

    >>> all(len(weights.sha256) == 64 for weights in index().values())
    True
    """
    return MappingProxyType({name: Weights(**each) for name, each in json.loads(files.read_text(INDEX)).items()})


def folder(name: str) -> Path | None:
    """Find the run folder of weights that ship with picojoule.

    Args:
        name: Such as "cnn7/fashion-mnist-baseline".

    Returns:
        The folder; None where there is no such name.

    >>> folder("cnn7/no-such-weights") is None
    True
    """
    return HOME / name if name in index() else None


def load(model: str, name: str) -> dict[str, Tensor]:
    """Read weights that ship with picojoule.

    Args:
        model: The name of the network.
        name: The name of the weights.

    Returns:
        The state of the network, in float32.

    Raises:
        PicojouleError: If there are none of that name, or the file is not the one that was written down.

    Example:
        >>> [load(*key.split("/"))["conv1.weight"].dtype for key in list(index())[:1]]
        [torch.float32]
    """
    from picojoule.io.tensors import DamagedTensors, read_tensors  # brings safetensors, which the core does without

    known = {key.partition("/")[2]: weights for key, weights in index().items() if key.startswith(f"{model}/")}
    if name not in known:
        raise unknown(f"weights of {model}", name, known)
    path = HOME / model / name / WEIGHTS
    try:
        if hashlib.sha256(files.read_bytes(path)).hexdigest() != known[name].sha256:
            raise DamagedTensors("its content does not match its hash")
        return read_tensors(path)[0]
    except (OSError, DamagedTensors) as fault:
        raise PicojouleError(f"{path} cannot be used ({fault}): install picojoule anew") from None
