"""Rows of numbers added up in registers, by their addresses in memory.

A row is `count` numbers (a literal) side by side: float32, or bfloat16 in pairs. A pair is one word of 32 bits whose
lower half is number i and whose upper half is number i + count/2, so that a shift and a mask make float32 of them with
no lane changing its place. Sums are float32 always.
"""

from __future__ import annotations

from typing import Any

from picojoule.kernels.jit import cgutils, intrinsic, ir, types
from picojoule.kernels.lanes import Lanes, Values

_I32, _I64 = ir.IntType(32), ir.IntType(64)

_KINDS: dict[str, tuple[Any, Any]] = {
    "i32": (_I32, types.int32),
    "i64": (_I64, types.int64),
    "u64": (_I64, types.uint64),
    "u32": (_I32, types.uint32),
    "u16": (ir.IntType(16), types.uint16),
    "f32": (ir.FloatType(), types.float32),
}


def _pointer(builder: Any, address: Any, kind: Any) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def _constant(vector: ir.VectorType, value: int) -> Any:
    return ir.Constant(vector, [value] * vector.count)


def _words(count: int) -> ir.VectorType:
    return ir.VectorType(_I32, count)


def _spread(builder: Any, value: Any, vector: ir.VectorType) -> Any:
    """Put the same number into every lane."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(first, undefined, _constant(_words(vector.count), 0))


def _joined(builder: Any, low: Any, high: Any, count: int) -> Any:
    """Join two halves to one vector of `count` lanes."""
    return builder.shuffle_vector(low, high, ir.Constant(_words(count), list(range(count))))


@intrinsic
def read(typing: Any, kind: Any, address: Any, index: Any) -> Any:
    """Read number `index` of those of a kind (a literal) that begin at an address; int32 comes as int64."""
    element, value = _KINDS[kind.literal_value]
    widened = types.int64 if kind.literal_value == "i32" else value

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        number = builder.load(builder.gep(_pointer(builder, args[1], element), [args[2]]), align=element_bytes(element))
        return builder.sext(number, _I64) if kind.literal_value == "i32" else number

    return widened(kind, types.int64, types.int64), generate


@intrinsic
def write(typing: Any, kind: Any, address: Any, index: Any, value: Any) -> Any:
    """Write number `index` of those of a kind (a literal) that begin at an address."""
    element, number = _KINDS[kind.literal_value]

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        place = builder.gep(_pointer(builder, args[1], element), [args[2]])
        builder.store(args[3], place, align=element_bytes(element))
        return context.get_dummy_value()

    return types.void(kind, types.int64, types.int64, number), generate


def element_bytes(element: Any) -> int:
    """Return the bytes of an element of LLVM's type."""
    return 4 if isinstance(element, ir.FloatType) else element.width // 8


# --- Sums ------------------------------------------------------------------------------------------------------------


def _row(builder: Any, lanes: Lanes, address: Any, paired: bool) -> Any:
    if not paired:
        return builder.load(_pointer(builder, address, lanes.vector), align=4)
    half = _words(lanes.count // 2)
    floats = ir.VectorType(ir.FloatType(), half.count)
    pairs = builder.load(_pointer(builder, address, half), align=4)
    low = builder.bitcast(builder.shl(pairs, _constant(half, 16)), floats)
    high = builder.bitcast(builder.and_(pairs, _constant(half, 0xFFFF0000)), floats)
    return _joined(builder, low, high, lanes.count)


@intrinsic
def plus_row(typing: Any, paired: Any, lanes: Any, address: Any) -> Any:
    """Compute the sum + the row at an address, which is of bfloat16 if `paired` (a literal) is 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.fadd(args[1], _row(builder, lanes, args[2], bool(paired.literal_value)))

    return lanes(paired, lanes, types.int64), generate


@intrinsic
def plus_multiple(typing: Any, paired: Any, lanes: Any, factor: Any, address: Any) -> Any:
    """Compute the sum + factor · the row at an address, rounded once where the processor can."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        row = _row(builder, lanes, args[3], bool(paired.literal_value))
        return _fused(builder, _spread(builder, args[2], lanes.vector), row, args[1])

    return lanes(paired, lanes, types.float32, types.int64), generate


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    vector = c.type
    name = f"llvm.fmuladd.v{vector.count}f32"
    function = cgutils.get_or_insert_function(builder.module, ir.FunctionType(vector, [vector] * 3), name)
    return builder.call(function, [a, b, c])


@intrinsic
def times_number(typing: Any, lanes: Any, factor: Any) -> Any:
    """Compute factor · the sum."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return builder.fmul(args[0], _spread(builder, args[1], lanes.vector))

    return lanes(lanes, types.float32), generate


# --- To memory -------------------------------------------------------------------------------------------------------


def _store_first(builder: Any, values: Any, address: Any, count: Any, size: int) -> None:
    """Write the first `count` lanes."""
    vector = values.type
    pointer = _pointer(builder, address, vector)
    mask_type = ir.VectorType(ir.IntType(1), vector.count)
    places = ir.Constant(_words(vector.count), list(range(vector.count)))
    limit = _spread(builder, builder.trunc(count, _I32), _words(vector.count))
    mask = builder.icmp_signed("<", places, limit)
    element = "f32" if size == 4 else "i16"
    signature = ir.FunctionType(ir.VoidType(), [vector, vector.as_pointer(), _I32, mask_type])
    name = f"llvm.masked.store.v{vector.count}{element}.p0"
    function = cgutils.get_or_insert_function(builder.module, signature, name)
    builder.call(function, [values, pointer, ir.Constant(_I32, size), mask])


def _rounded(builder: Any, values: Any, count: int) -> Any:
    """Round float32 to the nearest bfloat16, to even from halfway; NaN stays NaN."""
    words = _words(count)
    bits = builder.bitcast(values, words)
    odd = builder.and_(builder.lshr(bits, _constant(words, 16)), _constant(words, 1))
    even = builder.add(bits, builder.add(odd, _constant(words, 0x7FFF)))
    quiet = builder.or_(bits, _constant(words, 1 << 22))
    chosen = builder.select(builder.fcmp_unordered("uno", values, values), quiet, even)
    return builder.trunc(builder.lshr(chosen, _constant(words, 16)), ir.VectorType(ir.IntType(16), count))


@intrinsic
def keep(typing: Any, short: Any, address: Any, lanes: Any, count: Any) -> Any:
    """Write the first `count` numbers of a sum, as bfloat16 if `short` (a literal) is 1."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        if short.literal_value:
            _store_first(builder, _rounded(builder, args[2], lanes.count), args[1], args[3], 2)
        else:
            _store_first(builder, args[2], args[1], args[3], 4)
        return context.get_dummy_value()

    return types.void(short, types.int64, lanes, types.int64), generate


@intrinsic
def keep_all(typing: Any, address: Any, lanes: Any) -> Any:
    """Write all numbers of a sum as float32."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        builder.store(args[1], _pointer(builder, args[0], lanes.vector), align=4)
        return context.get_dummy_value()

    return types.void(types.int64, lanes), generate


@intrinsic
def paired_halves(typing: Any, count: Any, target: Any, source: Any) -> Any:
    """Write `count` bfloat16 numbers (a literal), which lie in their order at `source`, as pairs."""
    half = count.literal_value // 2
    shorts, words = ir.VectorType(ir.IntType(16), half), _words(half)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        first = _pointer(builder, args[2], shorts)
        low = builder.zext(builder.load(first, align=2), words)
        high = builder.zext(builder.load(builder.gep(first, [ir.Constant(_I32, 1)]), align=2), words)
        pairs = builder.or_(low, builder.shl(high, _constant(words, 16)))
        builder.store(pairs, _pointer(builder, args[1], words), align=4)
        return context.get_dummy_value()

    return types.void(count, types.int64, types.int64), generate


# --- Turning ---------------------------------------------------------------------------------------------------------

SQUARE = 16
"""Rows and columns of float32 that are turned around in registers."""


def _turned(builder: Any, address: Any, stride: Any) -> list[Any]:
    """Load a square of float32, whose rows are so many bytes apart, and turn it around.

    Four rounds of exchanges: in each, rows s apart swap the numbers that stand s away from where they belong.
    """
    vector = ir.VectorType(ir.FloatType(), SQUARE)
    rows = []
    for i in range(SQUARE):
        place = builder.add(address, builder.mul(stride, ir.Constant(_I64, i)))
        rows.append(builder.load(_pointer(builder, place, vector), align=4))
    for s in (1, 2, 4, 8):
        upper = [i if not i & s else SQUARE + i - s for i in range(SQUARE)]
        lower = [i + s if not i & s else SQUARE + i for i in range(SQUARE)]
        for i in (i for i in range(SQUARE) if not i & s):
            a, b = rows[i], rows[i + s]
            rows[i] = builder.shuffle_vector(a, b, ir.Constant(_words(SQUARE), upper))
            rows[i + s] = builder.shuffle_vector(a, b, ir.Constant(_words(SQUARE), lower))
    return rows


@intrinsic
def turn_square(typing: Any, target: Any, target_stride: Any, source: Any, source_stride: Any) -> Any:
    """Write a square of float32 with rows and columns exchanged; strides are bytes from row to row."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        for i, row in enumerate(_turned(builder, args[2], args[3])):
            place = builder.add(args[0], builder.mul(args[1], ir.Constant(_I64, i)))
            builder.store(row, _pointer(builder, place, row.type), align=4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 4), generate


@intrinsic
def turn_pairs(typing: Any, target: Any, target_stride: Any, low: Any, high: Any, source_stride: Any) -> Any:
    """Write two squares of float32, rows and columns exchanged, as bfloat16: the low and high halves of pairs."""
    words = _words(SQUARE)

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        halves = []
        for source in args[2:4]:
            rows = _turned(builder, source, args[4])
            halves.append([builder.zext(_rounded(builder, row, SQUARE), words) for row in rows])
        for i, (first, second) in enumerate(zip(*halves, strict=True)):
            pairs = builder.or_(first, builder.shl(second, _constant(words, 16)))
            place = builder.add(args[0], builder.mul(args[1], ir.Constant(_I64, i)))
            builder.store(pairs, _pointer(builder, place, words), align=4)
        return context.get_dummy_value()

    return types.void(*(types.int64,) * 5), generate


# --- Active numbers --------------------------------------------------------------------------------------------------


def _masks(builder: Any, address: Any, size: int, reference: Any) -> tuple[Any, Any]:
    """Find which of 64 numbers of so many bytes are not 0, and which of these are not the reference, as bits."""
    vector = ir.VectorType(ir.IntType(8 * size), 64)
    numbers = builder.load(_pointer(builder, address, vector), align=size)
    sign = 1 << (8 * size - 1)
    active = builder.icmp_unsigned("!=", builder.and_(numbers, _constant(vector, sign - 1)), _constant(vector, 0))
    wanted = builder.trunc(reference, vector.element) if size < 4 else reference
    other = builder.icmp_unsigned("!=", numbers, _spread(builder, wanted, vector))
    return tuple(builder.bitcast(bits, _I64) for bits in (active, builder.and_(active, other)))


@intrinsic
def active_bits(typing: Any, size: Any, address: Any) -> Any:
    """Find which of 64 numbers of so many bytes (a literal, 2 or 4) are not zero: a bit each, the lowest first."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return _masks(builder, args[1], size.literal_value, ir.Constant(_I32, 0))[0]

    return types.uint64(size, types.int64), generate


@intrinsic
def other_bits(typing: Any, size: Any, address: Any, reference: Any) -> Any:
    """Find which of 64 numbers are neither zero nor the number with these bits: a bit each, the lowest first."""

    def generate(context: Any, builder: Any, signature: Any, args: Values) -> Any:
        return _masks(builder, args[1], size.literal_value, args[2])[1]

    return types.uint64(size, types.int64, types.uint32), generate
