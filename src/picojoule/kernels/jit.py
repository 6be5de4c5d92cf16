"""Functions that Numba compiles."""

from __future__ import annotations

import contextlib
import inspect
import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from numba import cfunc, njit
from numba.extending import intrinsic as numba_intrinsic

from picojoule.io.background import Task

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

    The first call belongs into another thread (`background.apart`), as `entry` does it by itself.
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


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Few instructions: the function gives their type and writes their code."""
    instruction: Callable[..., Any] = numba_intrinsic(prefer_literal=True)(function)
    return instruction


def entry(function: Callable[..., None], signature: Any) -> int:
    """The address of the compiled function, which machine code can call, and which stays for as long as the process.

    Compiled at the first call, and kept on disk if that is possible. What it can raise nobody would ever know of: let
    that be nothing.
    """
    key = (function, signature)
    compilation = _compilations.get(key) or _compilations.setdefault(key, Task(partial(_compile, function, signature)))
    return int(compilation.result().address)


_compilations: dict[tuple[Callable[..., None], Any], Task[Any]] = {}
"""In threads of their own: LLVM calls Python back, and what a signal's handler raised in there would be lost.

An interruption reaches whoever waits, and the compiler finishes all the same.
"""


# Once the function is inlined there, the wrapper that Numba puts around it loses what it would tell Python of an error.
_FOR_MACHINE_CODE = {**_OPTIONS, "forceinline": True}


def _compile(function: Callable[..., None], signature: Any) -> Any:
    try:
        return cfunc(signature, cache=True, **_FOR_MACHINE_CODE)(function)
    except (RuntimeError, OSError):  # nowhere to write to, as with `compiled`, or no room there
        return cfunc(signature, **_FOR_MACHINE_CODE)(function)
