"""How weights lie in memory: rows that one spike adds, in float32 or in bytes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from picojoule.deploy.events.program import Floats


def as_rows(weight: Floats, lanes: int) -> Floats:
    """Arrange the weights of a convolution so that what one spike adds to a block of channels is contiguous.

    Args:
        weight: Weights [O, I, KH, KW].
        lanes: Output channels in one block.

    Returns:
        Rows [blocks, KH·KW·I, lanes], with zeros in the lanes that have no output channel.

    Example:
        >>> as_rows(np.ones((3, 2, 1, 1), dtype=np.float32), 16).shape
        (1, 2, 16)
    """
    outputs = weight.shape[0]
    blocks = -(-outputs // lanes)
    padded = np.zeros((blocks * lanes, *weight.shape[1:]), dtype=np.float32)
    padded[:outputs] = weight
    split = padded.reshape(blocks, lanes, *weight.shape[1:])
    return np.ascontiguousarray(split.transpose(0, 3, 4, 2, 1)).reshape(blocks, -1, lanes)


def as_bytes(rows: Floats) -> tuple[NDArray[np.int8], Floats]:
    """Round rows of weights to int8, with one scale for each output channel: weight ≈ scale · byte.

    Args:
        rows: Rows [blocks, rows, lanes].

    Returns:
        The bytes, of the same shape, and the scales [blocks · lanes].

    Example:
        >>> bytes, scales = as_bytes(np.array([[[1.0], [-0.5]]], dtype=np.float32))
        >>> bytes.ravel().tolist()
        [127, -64]
    """
    largest = np.abs(rows).max(axis=1, keepdims=True)
    scales = np.where(largest > 0, largest / 127, 1).astype(np.float32)
    return np.rint(rows / scales).astype(np.int8), scales.reshape(-1)


def floats(tensor: Tensor) -> Floats:
    """Convert a tensor to a NumPy array of float32.

    Args:
        tensor: Any tensor of numbers.

    Returns:
        The same numbers on the CPU.
    """
    values: Floats = tensor.detach().to("cpu", torch.float32).numpy()
    return values
