"""The share of active inputs up to which a layer is faster by events, on this machine.

It is measured once for each shape, precision and number of threads, and kept: in the process, and in the folder
`kernels` of the user's cache folder for picojoule, one small file each. A file that is damaged, or was made by another
processor, another PyTorch or other kernels, is not used. Where nothing can be written, every process measures anew.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from picojoule.errors import PicojouleError
from picojoule.io import files
from picojoule.io.cache_folder import cache_folder
from picojoule.kernels.event_driven.geometry import Geometry

_FEW_PRODUCTS = 1 << 22
"""Multiplications of a batch: below, a layer is dense, for calling the kernels takes longer."""

_ENOUGH_PRODUCTS = 1 << 28
"""Multiplications that show what a layer costs: a calibration takes no more images than that needs."""

_FEWEST_IMAGES = 16
_KINDS = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


def break_even(shape: Geometry, kind: torch.dtype, *, valued: bool = False) -> float:
    """Return the share of active inputs up to which output and weight gradient are faster by events.

    Args:
        shape: The shape of the layer.
        kind: float32 or bfloat16.
        valued: Whether the active inputs have different values, as pooled spikes and residual sums have.

    Returns:
        One of 1/2, 1/√8, 1/4, …, or 0 for a layer that is never faster.
    """
    if shape.products() < _FEW_PRODUCTS:
        return 0.0
    conditions = _conditions(_measured_part(shape), kind, valued)
    if conditions not in _known:
        _known[conditions] = _from_disk(conditions)
    found = _known[conditions]
    if found is None:
        from picojoule.kernels.event_driven.measurement import measured_break_even  # which brings the compiler

        found = _known[conditions] = measured_break_even(_measured_part(shape), kind, valued=valued)
        _to_disk(conditions, found)
    return found


_known: dict[str, float | None] = {}


def _measured_part(shape: Geometry) -> Geometry:
    """Take as many images of a batch as a calibration needs."""
    wanted = -(-_ENOUGH_PRODUCTS * shape.images // shape.products())
    return replace(shape, images=min(shape.images, max(wanted, _FEWEST_IMAGES)))


# --- On disk ---------------------------------------------------------------------------------------------------------


def _conditions(shape: Geometry, kind: torch.dtype, valued: bool) -> str:
    """Write down everything that the times depend on, as JSON."""
    layer = {"shape": asdict(shape), "kind": _KINDS[kind], "valued": valued}
    content = {**layer, "threads": torch.get_num_threads(), **_machine()}
    return json.dumps(content, sort_keys=True)


@cache
def _machine() -> dict[str, Any]:
    return {
        "processor": processor_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "torch": torch.__version__,
        "kernels": _kernels_digest(),
    }


def processor_name() -> str:
    """Return the name of the processor, as far as the system tells it.

    Returns:
        The name, or that of the architecture.
    """
    with contextlib.suppress(OSError, ValueError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), flags=re.MULTILINE)
        if found is not None:
            return found.group(1)
    return platform.processor() or platform.machine()


def _kernels_digest() -> str:
    """Return a checksum of this folder's sources: other kernels take other times."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _place(conditions: str) -> Path:
    return cache_folder() / "kernels" / f"{hashlib.sha256(conditions.encode()).hexdigest()[:32]}.json"


def _from_disk(conditions: str) -> float | None:
    """Read what was measured under the same conditions; None where there is nothing that can be used."""
    try:
        content = files.read_json(_place(conditions))
        share = content["break_even"]
        usable = content["conditions"] == json.loads(conditions) and type(share) in (int, float) and 0 <= share <= 1
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):  # the last: there is no home folder
        return None
    return float(share) if usable else None


def _to_disk(conditions: str, share: float) -> None:
    content = json.dumps({"break_even": share, "conditions": json.loads(conditions)}, indent=1)
    with contextlib.suppress(PicojouleError, RuntimeError):  # the file only saves time
        path = _place(conditions)
        files.make_folder(path.parent)
        files.write_atomically(path, content.encode())
