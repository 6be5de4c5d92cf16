"""Environment variables that switch off what is done natively to save time or memory.

Each native trick has one, and all of them are read here. `0` switches it off, `1` or nothing leaves it on. What is
computed stays the same, up to rounding where the trick's own docstring says so; `results/speed.md` has the table.
"""

from __future__ import annotations

import enum
import os

from picojoule.errors import PicojouleError


class Switch(enum.Enum):
    """A native trick, by the environment variable that switches it off."""

    ALLOCATOR = "PICOJOULE_ALLOCATOR"
    """Memory that a training step frees stays with the process (`kernels.allocator`)."""
    FUSED = "PICOJOULE_FUSED"
    """Surrogate gradients and dropout in one compiled pass over the memory (`kernels.fused`)."""
    RECOMPUTATION = "PICOJOULE_RECOMPUTATION"
    """No potential is kept behind a batch norm (`neurons.recomputation`)."""
    SPARSE = "PICOJOULE_SPARSE"
    """Convolutions and linear layers of `picojoule.sparse` skip silent inputs (`kernels.event_driven`)."""
    THREADS = "PICOJOULE_THREADS"
    """Compiled passes run on the threads of PyTorch's OpenMP library (`kernels.threads`)."""

    @property
    def is_on(self) -> bool:
        """Whether the trick may be used, by the environment as it is now.

        Raises:
            PicojouleError: If the variable is set to anything but 0 or 1.

        >>> os.environ["PICOJOULE_FUSED"] = "0"
        >>> Switch.FUSED.is_on
        False
        >>> del os.environ["PICOJOULE_FUSED"]
        >>> Switch.FUSED.is_on
        True
        """
        value = os.environ.get(self.value, "1")
        if value not in ("0", "1", ""):
            raise PicojouleError(f"{self.value}={value!r} is not valid: set it to 0 for off, or to 1 or nothing for on")
        return value != "0"
