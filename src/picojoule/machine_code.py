"""Functions that Numba compiles."""

from __future__ import annotations

import contextlib
import inspect
import sys
import zlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])

# Kernels allocate nothing. With Numba's reference counts they would count every array up and down, atomically, for each
# pixel: more than half the time of a quiet network.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def source_digest(*modules: str) -> int:
    """A number that changes with the source of any of these modules."""
    sources = (inspect.getsource(sys.modules[module]).encode() for module in modules)
    return zlib.crc32(b"".join(sources)) + 1


def compiled(function: Function) -> Function:
    """Compile at the first call, without the interpreter's lock, and keep the machine code on disk if that is possible.

    Numba looks for changes only in the function's own file and in what it closes over: see `source_digest`.
    """
    dispatcher: Any = njit(**_OPTIONS)(function)
    # Where neither the installation nor the user's own cache folder can be written to, every process compiles afresh.
    with contextlib.suppress(RuntimeError):
        dispatcher.enable_caching()
    return cast("Function", dispatcher)


def kernel(function: Function) -> Function:
    """Part of a compiled function."""
    part: Any = njit(**_OPTIONS)(function)
    return cast("Function", part)


def inlined(function: Function) -> Function:
    """Part of a kernel's inner loop."""
    part: Any = njit(inline="always", **_OPTIONS)(function)
    return cast("Function", part)
