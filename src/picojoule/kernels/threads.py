"""Compiled loops on the threads that PyTorch already has, those of its OpenMP library.

After each operator PyTorch's threads spin for a while, waiting for the next one. Threads of picojoule's own would have
to fight them for the cores, so PyTorch's are asked, through the library's `GOMP_parallel`. What they execute is machine
code from end to end, which neither raises nor waits for the interpreter's lock. The handler of a signal, Ctrl-C's for
one, runs only after the call has returned, with every element in its place.

What it gains: time, with the fused passes (`fused`) on all cores instead of one and no second set of threads beside
PyTorch's; `benchmarks/switches.py` times a training step with and without.

The calling thread does everything alone, with the same bits as the result, if PICOJOULE_THREADS=0 is set, where PyTorch
has no such library (builds for Windows or without OpenMP), and in a process forked from this one, for a fork takes no
threads along. (Forked before this module was imported, a process needs `torch.set_num_threads(1)`, as it does for
PyTorch's own operators.)
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import torch

from picojoule.kernels.jit import entry, intrinsic, ir, types
from picojoule.kernels.switches import Switch
from picojoule.kernels.torch_private import extension_library

BLOCK = 1 << 16
"""Elements that a thread takes at a time, some 0.05 ms: one whose core is busy with something else holds nobody up."""

Kernel = Callable[[Any, Any, Any, Any], None]
"""`kernel(arrays, constants, first, stop)` writes the elements from first to stop, each from its own place alone."""

_ADDRESS = ctypes.c_void_p
_Body = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS, ctypes.c_int64, ctypes.c_int64)  # without the interpreter's lock
_Parallel = ctypes.CFUNCTYPE(None, _ADDRESS, _ADDRESS, ctypes.c_uint, ctypes.c_uint)


def run_on_threads(
    kernel: Kernel, element: Any, arrays: Sequence[int], constants: Sequence[float], size: int, block: int = BLOCK
) -> None:
    """Run a kernel over all elements, on as many threads as PyTorch uses.

    Args:
        kernel: What Numba can compile.
        element: Numba's type of the arrays' elements.
        arrays: The addresses of arrays that the caller keeps alive.
        constants: The numbers that the kernel takes beside them.
        size: The number of elements of each array.
        block: Elements that a thread takes at a time.
    """
    body = entry(kernel, _signature(element))
    addresses = (_ADDRESS * len(arrays))(*arrays)
    numbers = (ctypes.c_double * len(constants))(*constants)
    threads, parallel = torch.get_num_threads(), _parallel()
    if parallel is None or _forked or threads == 1 or size <= block or not Switch.THREADS.is_on:
        _Body(body)(addresses, numbers, 0, size)
        return
    task = (ctypes.c_int64 * 6)(0, size, body, ctypes.addressof(addresses), ctypes.addressof(numbers), block)
    # Always all of them, for libgomp ends the threads that a smaller number leaves over.
    parallel(entry(_take_blocks, _TASK), task, threads, 0)


@cache
def _parallel() -> Callable[..., None] | None:
    """Return `void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags)`, or None.

    Found as PyTorch's own calls of it were: first among what the whole process shares, which a preloaded library comes
    before, then in what PyTorch brought. The OpenMP libraries of Intel and LLVM have it too, for programs made by GCC.
    """
    if not torch.backends.openmp.is_available():
        return None
    for library in (None, extension_library()):
        # Not in it; no such file; on Windows there is no None.
        with suppress(AttributeError, OSError, TypeError):
            return _Parallel(("GOMP_parallel", ctypes.CDLL(library)))
    return None


_forked = False


def _note_the_fork() -> None:
    global _forked
    _forked = True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_the_fork)


# --- What the threads execute ----------------------------------------------------------------------------------------

_TASK = types.void(types.CPointer(types.int64))


def _signature(element: Any) -> Any:
    return types.void(types.CPointer(types.CPointer(element)), types.CPointer(types.float64), types.int64, types.int64)


def _take_blocks(task: Any) -> None:
    """Run the kernel on one block after the other until none is left.

    The task: where the next block begins, the size, the kernel, its arrays and constants, and a block's elements.
    """
    size, kernel, arrays, constants, block = task[1], task[2], task[3], task[4], task[5]
    first = _fetch_and_add(task, block)
    while first < size:
        _call(kernel, arrays, constants, first, min(first + block, size))
        first = _fetch_and_add(task, block)


@intrinsic
def _fetch_and_add(context: Any, counter: Any, step: Any) -> Any:
    """Increase a counter and return what it was, in one step that no two threads take at once."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", *arguments, ordering="monotonic")

    return types.int64(types.CPointer(types.int64), types.int64), generate


@intrinsic
def _call(context: Any, kernel: Any, arrays: Any, constants: Any, first: Any, stop: Any) -> Any:
    """Call the C function at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = ir.PointerType(ir.IntType(8))
        address, arrays, constants, first, stop = arguments
        function = ir.FunctionType(ir.VoidType(), (pointer, pointer, first.type, stop.type))
        places = (builder.inttoptr(place, pointer) for place in (arrays, constants))
        builder.call(builder.inttoptr(address, function.as_pointer()), (*places, first, stop))
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 5), generate
