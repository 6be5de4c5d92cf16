"""The machine: what it is, and how much of its memory this process has held."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from typing import Any


def machine() -> dict[str, Any]:
    """Describe the machine in a few words.

    Returns:
        Its processor, the cores that this process may use, and the bytes of its memory; None where the system does not
        tell.

    >>> sorted(machine())
    ['cores', 'memory_bytes', 'processor']
    """
    return {"processor": _processor(), "cores": cores(), "memory_bytes": _memory_bytes()}


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def peak_bytes() -> int | None:
    """Return the most memory that this process has held, in bytes; None where the system does not tell."""
    try:
        import resource
    except ImportError:  # not a POSIX system
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _processor() -> str:
    """Name the processor as its maker does, or its architecture."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def _memory_bytes() -> int | None:
    with contextlib.suppress(AttributeError, ValueError, OSError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None
