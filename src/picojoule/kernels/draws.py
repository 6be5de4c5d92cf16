"""Random draws as a hash of a position and a seed, so that any part of them can be drawn again, in any order.

A draw has 32 bits. With ⊕ for exclusive or, ≫ for a shift to the right, k and l for the low and high half of the seed,
and everything modulo 2³²:

    h = position · KNUTH + k
    h = (h ⊕ (h ≫ 16)) · MURMUR + l
    h = (h ⊕ (h ≫ 16)) · PROSPECTOR[0]
    h = (h ⊕ (h ≫ 15)) · PROSPECTOR[1]
    draw = h ⊕ (h ≫ 15)

Here with PyTorch's operators; `fused_loops` has the same as a compiled loop, with the same bits. The statistics of the
draws are tested in `tests/zoo/test_dropout.py`.
"""

from __future__ import annotations

import torch
from torch import Tensor

LEVELS = 1 << 32
"""A draw is one of so many."""

KNUTH = 0x9E3779B1
"""A prime close to 2³² / golden ratio, for multiplicative hashing (Knuth, The Art of Computer Programming 3, section
6.4); in xxHash it is PRIME32_1."""

MURMUR = 0x85EBCA6B
"""The first multiplier of MurmurHash3's finaliser `fmix32` (Appleby, 2011)."""

PROSPECTOR = (0x21F0AAAD, 0x735A2D97)
"""With the shifts 16, 15, 15: two rounds that mix 32 bits with little bias, found by the search of hash-prospector
(Wellons, github.com/skeeto/hash-prospector) and known from splitmix32 for 32 bits."""

_BITS = LEVELS - 1


def draw(first: int, stop: int, seed: int) -> Tensor:
    """Draw for the positions from first to stop.

    Args:
        first: The first position.
        stop: The position behind the last.
        seed: Up to 64 bits.

    Returns:
        The draws, from 0 to 2³² − 1, as int64.

    >>> torch.equal(draw(0, 8, seed=5)[3:], draw(3, 8, seed=5))
    True
    """
    h = torch.arange(first, stop, device="cpu") & _BITS
    h = (_times(h, KNUTH) + (seed & _BITS)) & _BITS
    h = (_times(h ^ (h >> 16), MURMUR) + (seed >> 32)) & _BITS
    h = _times(h ^ (h >> 16), PROSPECTOR[0])
    h = _times(h ^ (h >> 15), PROSPECTOR[1])
    return h ^ (h >> 15)


def _times(h: Tensor, factor: int) -> Tensor:
    """Multiply modulo 2³²; the factor as a signed number, so that no product leaves 64 bits."""
    return (h * (factor - LEVELS if factor >= LEVELS // 2 else factor)) & _BITS
