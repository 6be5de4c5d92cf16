"""Functions that Numba compiles: the only module that imports Numba, which not everybody has installed.

Who can do without compiled code imports this module, and those that need it, inside a function (as `fused` does).
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils
from numba.extending import intrinsic as numba_intrinsic
from numba.extending import models, overload, register_model
from numba.np import arrayobj

from picojoule.io.background import Task

__all__ = [
    "array_at",
    "cgutils",
    "compiled",
    "entry",
    "inlined",
    "intrinsic",
    "ir",
    "kernel",
    "models",
    "overload",
    "register_model",
    "source_digest",
    "types",
]

Function = TypeVar("Function", bound=Callable[..., Any])

# Kernels allocate nothing. With Numba's reference counts they would count every array up and down, atomically, for each
# pixel: more than half the time of a quiet network.
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy", "_nrt": False}


def source_digest(*modules: str) -> int:
    """Return a number that changes with the source of any of these modules.

    Args:
        *modules: Names of modules that have been imported.

    Returns:
        A checksum of their sources, never 0.
    """
    sources = (inspect.getsource(sys.modules[module]).encode() for module in modules)
    return zlib.crc32(b"".join(sources)) + 1


def compiled(function: Function) -> Function:
    """Compile a function at its first call, to run without the interpreter's lock; keep the machine code on disk.

    Where neither the installation nor the user's own cache folder can be written to, every process compiles afresh.
    The first call belongs into another thread (`background.run_in_thread`), as `entry` does it by itself. Numba looks
    for changes only in the function's own file and in what it closes over: see `source_digest`.

    Args:
        function: What Numba can compile.

    Returns:
        The function, compiled when it is called.
    """
    dispatcher: Any = njit(**_OPTIONS)(function)
    with contextlib.suppress(RuntimeError):
        dispatcher.enable_caching()
    return cast("Function", dispatcher)


def kernel(function: Function) -> Function:
    """Let a function be called by compiled ones.

    Args:
        function: What Numba can compile.

    Returns:
        The function as a part of what calls it, compiled with it.
    """
    part: Any = njit(**_OPTIONS)(function)
    return cast("Function", part)


def inlined(function: Function) -> Function:
    """Let a function be inlined into the inner loops of compiled ones.

    Args:
        function: What Numba can compile.

    Returns:
        The function as a part of what calls it.
    """
    part: Any = njit(inline="always", **_OPTIONS)(function)
    return cast("Function", part)


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make an instruction for compiled functions out of LLVM code that a function writes.

    Args:
        function: Takes Numba's typing context and the types of the arguments, and returns the instruction's signature
            and the function that writes its code.

    Returns:
        The instruction, to be called in compiled functions.
    """
    instruction: Callable[..., Any] = numba_intrinsic(prefer_literal=True)(function)
    return instruction


@intrinsic
def array_at(typing: Any, kind: Any, address: Any, length: Any) -> Any:
    """Look at memory as an array of numbers of NumPy's type `kind`, in a compiled function; it keeps nothing alive."""
    array = types.Array(kind.dtype, 1, "C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        made = arrayobj.make_array(array)(context, builder)
        size = context.get_constant(types.intp, context.get_abi_sizeof(context.get_data_type(kind.dtype)))
        data = builder.inttoptr(arguments[1], made.data.type)
        arrayobj.populate_array(made, data=data, shape=[arguments[2]], strides=[size], itemsize=size, meminfo=None)
        return made._getvalue()

    return array(kind, types.int64, types.int64), generate


def entry(function: Callable[..., None], signature: Any) -> int:
    """Return the address of a compiled function that machine code can call, valid for as long as the process lives.

    It is compiled at the first call, and kept on disk if that is possible. An exception of the function would be lost
    without a trace, so it must not raise any.

    Args:
        function: What Numba can compile.
        signature: Its types, as Numba writes them.

    Returns:
        The address of a C function.
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
