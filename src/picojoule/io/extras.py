"""Packages that only a part of picojoule needs, and the extra that installs each of them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from picojoule.errors import PicojouleError

EXTRA_OF: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("filelock", "kornia", "lightning_fabric", "PIL", "pydantic", "safetensors"), "train"),
        **dict.fromkeys(("scipy", "sklearn", "tomli", "tomli_w", "typer"), "train"),
        **dict.fromkeys(("altair", "vl_convert"), "report"),
        **dict.fromkeys(("llvmlite", "numba"), "events"),
        **dict.fromkeys(("pytorch_lightning", "torchmetrics"), "lightning"),
        **dict.fromkeys(("h5py", "nir"), "nir"),
        **dict.fromkeys(("onnx", "onnxruntime", "onnxscript"), "onnx"),
        "ray": "ray",
        "tensorboard": "tensorboard",
    }
)
"""By the name under which a package is imported. `pyproject.toml` says which packages each extra installs."""


def lacks_numba(fault: ModuleNotFoundError) -> bool:
    """Return whether an import failed because Numba, the compiler, or its own compiler is not installed.

    Args:
        fault: What the import statement raised.

    Returns:
        Whether it did; False where another package is missing.

    >>> lacks_numba(ModuleNotFoundError("No module named 'llvmlite.ir'", name="llvmlite.ir"))
    True
    """
    return (fault.name or "").partition(".")[0] in ("numba", "llvmlite")


def explained(fault: ModuleNotFoundError, what: str) -> Exception:
    """Turn the failure to import an optional package into one sentence with the command that installs it.

    Args:
        fault: What the import statement raised.
        what: What was asked for, as the subject of the sentence.

    Returns:
        A `PicojouleError`, or the fault itself where the missing module belongs to none of picojoule's extras.

    >>> print(explained(ModuleNotFoundError("No module named 'altair'", name="altair"), "picojoule.report"))
    picojoule.report needs the package altair: install it with `pip install 'picojoule[report]'`
    """
    package = "numba" if lacks_numba(fault) else (fault.name or "").partition(".")[0]
    if package not in EXTRA_OF:
        return fault
    return PicojouleError(
        f"{what} needs the package {package}: install it with `pip install 'picojoule[{EXTRA_OF[package]}]'`"
    )
