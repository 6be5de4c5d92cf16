"""What the C library does with memory that is freed.

A training step allocates its activations and frees them again. By default glibc hands large pieces back to the system
each time, and the next step pays for every page once more.

What it gains: 98 000 page faults in each training step of VGG11 with 100 images become 2, by `benchmarks/switches.py`,
which also times the step. PICOJOULE_ALLOCATOR=0 leaves the C library as it is; results are the same, to the bit.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from picojoule.kernels.switches import Switch

# M_TRIM_THRESHOLD, M_MMAP_THRESHOLD and M_MMAP_MAX of glibc's <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_MIB = 1 << 20
_DEFAULTS = {_MMAP_MAX: 65536, _MMAP_THRESHOLD: 32 * _MIB, _TRIM_THRESHOLD: 64 * _MIB}
"""glibc's own settings: M_MMAP_MAX as documented in mallopt(3), the thresholds at the ends that glibc moves them to by
itself in a process that frees large pieces (DEFAULT_MMAP_THRESHOLD_MAX on 64 bits, and twice that)."""


@contextmanager
def retain_freed_memory() -> Iterator[None]:
    """Let freed memory stay with the process, up to its peak, until the block ends.

    Does nothing where the C library is not glibc, or if PICOJOULE_ALLOCATOR=0 is set.

    Yields:
        Nothing.

    Raises:
        PicojouleError: If PICOJOULE_ALLOCATOR is set to anything but 0 or 1.

    >>> with retain_freed_memory():
    ...     total = sum(len(bytes(1 << 20)) for _ in range(3))
    >>> total
    3145728
    """
    libc = _glibc() if Switch.ALLOCATOR.is_on else None
    if libc is None:
        yield
        return
    libc.mallopt(_MMAP_MAX, 0)
    libc.mallopt(_TRIM_THRESHOLD, -1)  # never
    try:
        yield
    finally:
        for option, value in _DEFAULTS.items():
            libc.mallopt(option, value)
        libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    """Return the C library if it is glibc."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None
