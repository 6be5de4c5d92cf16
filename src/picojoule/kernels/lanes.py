"""Vectors that live in registers, and words of bits, for kernels that Numba compiles.

A value of type `Lanes(n)` is n numbers side by side, as LLVM's vector `<n x float>`: an addition of 64 lanes is eight
AVX instructions, four AVX-512 ones or sixteen of NEON, and a loop that adds to a local variable keeps it in registers.
Numba by itself would make an array of it, in memory.
"""

from __future__ import annotations

from typing import Any

from picojoule.kernels.jit import intrinsic, ir, models, register_model, types

Values = list[Any]

_ELEMENTS = {"f32": ir.FloatType(), "i32": ir.IntType(32), "i16": ir.IntType(16), "i8": ir.IntType(8)}


class Lanes(types.Type):
    """The type of n numbers of one kind, side by side in registers.

    Args:
        count: How many numbers.
        kind: "f32", "i32", "i16" or "i8".
    """

    def __init__(self, count: int, kind: str = "f32") -> None:
        self.count, self.kind = count, kind
        super().__init__(name=f"Lanes({count} x {kind})")

    @property
    def vector(self) -> ir.VectorType:
        """LLVM's vector type for these numbers."""
        return ir.VectorType(_ELEMENTS[self.kind], self.count)


@register_model(Lanes)
class _LanesModel(models.PrimitiveModel):
    def __init__(self, manager: Any, lanes: Lanes) -> None:
        super().__init__(manager, lanes, lanes.vector)  # type: ignore[no-untyped-call]  # Numba's own


@intrinsic
def nothing(typing: Any, count: Any) -> Any:
    """Make zeros, with which a sum begins."""
    lanes = Lanes(count.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return ir.Constant(lanes.vector, [0.0] * lanes.count)

    return lanes(count), generate


@intrinsic
def lowest_bit(typing: Any, bits: Any) -> Any:
    """Find the place of the lowest 1 in a word that is not 0."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return types.int64(types.uint64), generate


@intrinsic
def ones(typing: Any, bits: Any) -> Any:
    """Count the bits of a word that are 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.ctpop(args[0])

    return types.int64(types.uint64), generate
