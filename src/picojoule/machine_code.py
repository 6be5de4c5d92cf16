"""Functions that Numba compiles."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar, cast

from numba import njit

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile at the first call, without the interpreter's lock, and keep the machine code on disk if that is possible.

    Numba watches the file of the function alone: what it calls from other files has to be touched with it.
    """
    dispatcher: Any = njit(nogil=True, error_model="numpy")(function)
    # Where neither the installation nor the user's own cache folder can be written to, every process compiles afresh.
    with contextlib.suppress(RuntimeError):
        dispatcher.enable_caching()
    return cast("Function", dispatcher)


def inlined(function: Function) -> Function:
    """Part of a compiled function's inner loop."""
    part: Any = njit(nogil=True, error_model="numpy", inline="always")(function)
    return cast("Function", part)
