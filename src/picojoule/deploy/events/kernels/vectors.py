"""Vectors that live in registers (`kernels.lanes`), read from arrays and written to them.

Indices count elements of the (flat, contiguous) array.
"""

from __future__ import annotations

from typing import Any

from picojoule.kernels.jit import cgutils, intrinsic, ir, types
from picojoule.kernels.lanes import Lanes, Values


def _place(context: Any, builder: Any, array_type: Any, array: Any, index: Any, vector: ir.VectorType) -> Any:
    """Make a pointer to the lanes that begin at an element of an array."""
    start = builder.gep(context.make_array(array_type)(context, builder, array).data, [index])
    return builder.bitcast(start, vector.as_pointer())


def _loaded(builder: Any, place: Any, bytes_each: int) -> Any:
    value = builder.load(place)
    value.align = bytes_each
    return value


def _broadcast(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """Put the same number into every lane."""
    first = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(first, ir.Constant(vector, ir.Undefined), zeros)


@intrinsic
def at(typing: Any, array: Any, index: Any) -> Any:
    """Read array[index] as int64, where the index is known to be valid: Numba would look for negative ones."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        return builder.sext(builder.load(builder.gep(data, [args[1]]), align=4), ir.IntType(64))

    return types.int64(array, types.intp), generate


@intrinsic
def put(typing: Any, array: Any, index: Any, value: Any) -> Any:
    """Write array[index] = value, of int32, where the index is known to be valid."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        data = context.make_array(array)(context, builder, args[0]).data
        builder.store(builder.trunc(args[2], ir.IntType(32)), builder.gep(data, [args[1]]), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.int64), generate


@intrinsic
def active(typing: Any, count: Any, array: Any, index: Any) -> Any:
    """Find which of `count` (a literal) float32 numbers of an array are not 0: one bit each, the lowest first."""
    lanes = Lanes(count.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        numbers = _loaded(builder, _place(context, builder, array, args[1], args[2], lanes.vector), 4)
        zeros = ir.Constant(lanes.vector, [0.0] * lanes.count)
        bits = builder.bitcast(builder.fcmp_unordered("!=", numbers, zeros), ir.IntType(lanes.count))
        return builder.zext(bits, ir.IntType(64))

    return types.uint64(count, array, types.intp), generate


@intrinsic
def load(typing: Any, count: Any, array: Any, index: Any) -> Any:
    """Read `count` (a literal) float32 numbers of an array."""
    lanes = Lanes(count.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return _loaded(builder, _place(context, builder, array, args[1], args[2], lanes.vector), 4)

    return lanes(count, array, types.intp), generate


@intrinsic
def broadcast(typing: Any, count: Any, array: Any, index: Any) -> Any:
    """Make `count` (a literal) times the same float32 number of an array."""
    lanes = Lanes(count.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        data = context.make_array(array)(context, builder, args[1]).data
        return _broadcast(builder, builder.load(builder.gep(data, [args[2]]), align=4), lanes.vector)

    return lanes(count, array, types.intp), generate


@intrinsic
def store(typing: Any, array: Any, index: Any, lanes: Any) -> Any:
    """Write float32 lanes into an array."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        builder.store(args[2], _place(context, builder, array, args[0], args[1], lanes.vector), align=4)
        return context.get_dummy_value()

    return types.void(array, types.intp, lanes), generate


@intrinsic
def plus(typing: Any, lanes: Any, array: Any, index: Any) -> Any:
    """Compute lanes + array[index:]."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        row = _loaded(builder, _place(context, builder, array, args[1], args[2], lanes.vector), 4)
        return builder.fadd(args[0], row)

    return lanes(lanes, array, types.intp), generate


@intrinsic
def times(typing: Any, lanes: Any, array: Any, index: Any) -> Any:
    """Compute lanes · array[index:]."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        row = _loaded(builder, _place(context, builder, array, args[1], args[2], lanes.vector), 4)
        return builder.fmul(args[0], row)

    return lanes(lanes, array, types.intp), generate


@intrinsic
def plus_scaled(typing: Any, lanes: Any, factors: Any, which: Any, array: Any, index: Any) -> Any:
    """Compute lanes + factors[which] · array[index:], rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        factor = builder.load(
            builder.gep(context.make_array(factors)(context, builder, args[1]).data, [args[2]]), align=4
        )
        row = _loaded(builder, _place(context, builder, array, args[3], args[4], lanes.vector), 4)
        return _fused(builder, lanes, _broadcast(builder, factor, lanes.vector), row, args[0])

    return lanes(lanes, factors, types.intp, array, types.intp), generate


@intrinsic
def plus_product(typing: Any, lanes: Any, first: Any, i: Any, second: Any, j: Any) -> Any:
    """Compute lanes + first[i:] · second[j:], rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        a = _loaded(builder, _place(context, builder, first, args[1], args[2], lanes.vector), 4)
        b = _loaded(builder, _place(context, builder, second, args[3], args[4], lanes.vector), 4)
        return _fused(builder, lanes, a, b, args[0])

    return lanes(lanes, first, types.intp, second, types.intp), generate


def _fused(builder: Any, lanes: Lanes, a: Any, b: Any, c: Any) -> Any:
    """Compute a · b + c, rounded once where the processor can."""
    signature = ir.FunctionType(lanes.vector, [lanes.vector] * 3)
    name = f"llvm.fmuladd.v{lanes.count}f32"
    return builder.call(cgutils.get_or_insert_function(builder.module, signature, name), [a, b, c])


@intrinsic
def reaches(typing: Any, lanes: Any, array: Any, index: Any) -> Any:
    """Compare each lane with array[index:]: one bit per lane, the lowest first, set where it is ≥; NaN never is."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        row = _loaded(builder, _place(context, builder, array, args[1], args[2], lanes.vector), 4)
        bits = builder.bitcast(builder.fcmp_ordered(">=", args[0], row), ir.IntType(lanes.count))
        return bits if lanes.count == 64 else builder.zext(bits, ir.IntType(64))

    return types.uint64(lanes, array, types.intp), generate


@intrinsic
def copy(typing: Any, count: Any, target: Any, to: Any, source: Any, index: Any) -> Any:
    """Copy `count` (a literal) float32 numbers: target[to:] = source[index:]."""
    vector = Lanes(count.literal_value).vector

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        numbers = _loaded(builder, _place(context, builder, source, args[3], args[4], vector), 4)
        builder.store(numbers, _place(context, builder, target, args[1], args[2], vector), align=4)
        return context.get_dummy_value()

    return types.void(count, target, types.intp, source, types.intp), generate


@intrinsic
def copy_plus(typing: Any, count: Any, target: Any, to: Any, source: Any, index: Any, offset: Any) -> Any:
    """Copy `count` (a literal) int32 numbers with an offset: target[to:] = source[index:] + offset."""
    vector = Lanes(count.literal_value, "i32").vector

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        numbers = _loaded(builder, _place(context, builder, source, args[3], args[4], vector), 4)
        shifted = builder.add(numbers, _broadcast(builder, args[5], vector))
        builder.store(shifted, _place(context, builder, target, args[1], args[2], vector), align=4)
        return context.get_dummy_value()

    return types.void(count, target, types.intp, source, types.intp, types.int32), generate


@intrinsic
def no_counts(typing: Any, count: Any, kind: Any) -> Any:
    """Make zeros: `count` lanes of "i16" or "i32" (both literals)."""
    lanes = Lanes(count.literal_value, kind.literal_value)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return ir.Constant(lanes.vector, [0] * lanes.count)

    return lanes(count, kind), generate


@intrinsic
def plus_bytes(typing: Any, lanes: Any, array: Any, index: Any) -> Any:
    """Add a row of int8 to int16 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        row_type = Lanes(lanes.count, "i8").vector
        row = _loaded(builder, _place(context, builder, array, args[1], args[2], row_type), 1)
        return builder.add(args[0], builder.sext(row, lanes.vector))

    return lanes(lanes, array, types.intp), generate


@intrinsic
def widened(typing: Any, wide: Any, narrow: Any) -> Any:
    """Add int16 lanes to int32 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.add(args[0], builder.sext(args[1], wide.vector))

    return wide(wide, narrow), generate


@intrinsic
def as_floats(typing: Any, wide: Any) -> Any:
    """Convert int32 lanes to float32 lanes."""
    lanes = Lanes(wide.count)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.sitofp(args[0], lanes.vector)

    return lanes(wide), generate


@intrinsic
def total(typing: Any, first: Any, second: Any) -> Any:
    """Add two groups of float32 lanes."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.fadd(args[0], args[1])

    return first(first, second), generate
