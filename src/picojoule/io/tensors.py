"""Tensors on disk: safetensors with a checksum, so that loading runs no code and damage is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from picojoule.io import files

_METADATA = "picojoule"
_INT8, _SCALE, _LARGEST_INT8 = "int8", ".scale", 127


def pack_tensors(tensors: dict[str, Tensor], notes: dict[str, Any], int8: Collection[str] = ()) -> bytes:
    """Give the content of a file of tensors, with a checksum.

    Args:
        tensors: The tensors by name.
        notes: A few plain values beside them, as in JSON.
        int8: The names of those that are rounded to whole numbers from −127 to 127, with a scale for each slice along
            the first dimension; they are read as floats again.

    Returns:
        The bytes of a safetensors file; equal tensors and notes give equal bytes.
    """
    plain = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    for name in int8:
        plain[name], plain[name + _SCALE] = _rounded(plain[name])
    text = json.dumps(notes | ({_INT8: sorted(int8)} if int8 else {}), allow_nan=False)
    # One entry only: safetensors writes several in any order, and equal runs are to have equal files.
    content: bytes = save(plain, metadata={_METADATA: f"{_digest(plain, text)} {text}"})
    return content


class DamagedTensors(Exception):
    """The error of a file of tensors that cannot be read, or is not what was written."""


def read_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file of tensors.

    Args:
        path: The file.

    Returns:
        The tensors by name, and the notes.

    Raises:
        DamagedTensors: If it cannot be read, or does not match its checksum.
    """
    try:
        files.check_regular(path)
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 — not a mapping
    except (OSError, SafetensorError, ValueError) as fault:
        raise DamagedTensors(files.reason(fault)) from None
    digest, _, text = metadata.get(_METADATA, "").partition(" ")
    if digest != _digest(tensors, text):
        raise DamagedTensors("its content does not match its checksum")
    try:
        notes: dict[str, Any] = files.parse_json(text)
    except ValueError as fault:
        raise DamagedTensors(files.reason(fault)) from None
    for name in notes.pop(_INT8, ()):
        tensors[name] = tensors[name].float() * tensors.pop(name + _SCALE)
    return tensors, notes


def _rounded(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Round a tensor to whole numbers, with the scale of each slice along the first dimension."""
    others = tuple(range(1, tensor.dim()))
    scale = (tensor.float().abs().amax(dim=others, keepdim=True) / _LARGEST_INT8).clamp_min(1e-30)
    return (tensor / scale).round().to(torch.int8), scale


def _digest(tensors: dict[str, Tensor], notes: str) -> str:
    digest = hashlib.blake2b(notes.encode(), digest_size=16)
    for name, tensor in sorted(tensors.items()):
        digest.update(f"\n{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
