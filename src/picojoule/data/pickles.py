"""CIFAR's Python batches, read without unpickling.

The official batches are protocol-2 pickles of a dictionary: lists of small integers and of byte strings, and one uint8
array. An unpickler calls whatever a pickle names. This reader calls nothing: the file is split into its instructions
by the tables of `pickletools`, and the few that such a dictionary needs are followed here on plain values. Three names
occur in the official files, all of them numpy's for "an array of uint8"; they are recognised as words, never looked up.
Any other name is refused before anything is read, any other instruction when it is reached.

Memory is bounded too: instructions are read one at a time, no more of them than a few times what the largest official
file has, and only byte strings, which are the pixels, may be long.
"""

from __future__ import annotations

import io
import math
import pickletools
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from picojoule.errors import PicojouleError

PIXELS = 3 * 32 * 32

_RECONSTRUCT = "numpy.core.multiarray._reconstruct"
_NDARRAY = "numpy.ndarray"
_DTYPE = "numpy.dtype"
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_STRINGS = {"SHORT_BINSTRING": 1, "BINSTRING": 4}
"""Bytes that their length takes."""
_NUMBERS = frozenset({"BININT", "BININT1", "BININT2"})
_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}

_MOST_INSTRUCTIONS = 1_000_000
"""The largest official batch, CIFAR-100's 50 000 training images, has a quarter of them."""
_LONGEST_ARGUMENT = 1024
"""Bytes of a name or a number; byte strings are as long as the file has them."""
_SHOWN_NAMES = 3
_OPCODES = {opcode.code.encode("latin-1"): opcode for opcode in pickletools.opcodes}

Instruction = tuple[str, Any]


@dataclass(frozen=True)
class _Name:
    """A name that the pickle mentions: only ever compared with the three known ones."""

    text: str


@dataclass
class _Array:
    """The array while it is being described: `values` is set by the BUILD instruction."""

    values: NDArray[np.uint8] | None = None


class _Uint8:
    """Numpy's description of the uint8 type."""


_MARK = object()


def cifar_records(content: bytes, label_keys: Sequence[str], where: str) -> bytes:
    """Convert a CIFAR Python batch to the official *binary* form: for each image its label bytes, then its 3072 pixels.

    Args:
        content: The file's bytes, `train` or `data_batch_1` for example.
        label_keys: The dictionary's label lists in the order of the binary form: `labels` for CIFAR-10, `coarse_labels`
            and `fine_labels` for CIFAR-100.
        where: The file's name for error messages.

    Returns:
        The bytes of the binary file.

    Raises:
        PicojouleError: The content is not such a batch.
    """
    batch = read_batch(content, where)
    data = batch.get(b"data")
    if not isinstance(data, np.ndarray) or data.ndim != 2 or data.shape[1] != PIXELS:
        raise PicojouleError(f"{where} is not a CIFAR batch, for it has no array 'data' of {PIXELS} columns: {_REMEDY}")
    columns = [_label_column(batch, key, len(data), where) for key in label_keys]
    rows: bytes = np.concatenate([*columns, data], axis=1).tobytes()
    return rows


def read_batch(content: bytes, where: str) -> dict[bytes, Any]:
    r"""Read the dictionary that a CIFAR Python batch describes: byte strings, integers, lists of them, a uint8 array.

    Args:
        content: The file's bytes.
        where: The file's name for error messages.

    Returns:
        The dictionary.

    Raises:
        PicojouleError: The content is truncated, or has anything in it that no CIFAR batch has.

    >>> read_batch(b"\x80\x02}q\x01U\x05labelq\x02K\x07s.", "an example")
    {b'label': 7}
    >>> read_batch(b"cos\nsystem\n(S'echo hello'\ntR.", "an example")
    Traceback (most recent call last):
    picojoule.PicojouleError: an example names os.system, which no CIFAR batch does, so nothing of it was run ...
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # an escape that is none: damage, which shows below
            _refuse_foreign_names(_instructions(content), where)
            result = _follow(_instructions(content), where)
    except PicojouleError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError) as fault:
        # pickletools, a stack that is too short and a memo that was never set all mean the same to the user.
        raise PicojouleError(f"{where} is truncated or not a CIFAR batch ({fault}): {_REMEDY}") from fault
    if not isinstance(result, dict):
        raise PicojouleError(f"{where} is not a CIFAR batch, for it holds no dictionary of byte strings: {_REMEDY}")
    return {key: value.values if isinstance(value, _Array) else value for key, value in result.items()}


_REMEDY = "take the file from the official archive again, or use the binary version of the data set"


def _label_column(batch: dict[bytes, Any], key: str, rows: int, where: str) -> NDArray[np.uint8]:
    labels = batch.get(key.encode())
    if not isinstance(labels, list) or len(labels) != rows:
        raise PicojouleError(
            f"{where} is not the expected CIFAR batch, for it has no list '{key}' of {rows}: {_REMEDY}"
        )
    if not all(type(label) is int and 0 <= label < 256 for label in labels):
        raise PicojouleError(f"{where} has labels in '{key}' that are not small integers: {_REMEDY}")
    return np.array(labels, dtype=np.uint8)[:, None]


def _instructions(content: bytes) -> Iterator[Instruction]:
    """Read name and argument of each instruction when it is asked for."""
    stream = io.BytesIO(content)  # shares the bytes
    for _ in range(_MOST_INSTRUCTIONS):
        code = stream.read(1)
        if not code:
            raise ValueError("it does not end")
        if code not in _OPCODES:
            raise ValueError(f"at byte {stream.tell() - 1} is {code!r}, which is not an instruction")
        opcode = _OPCODES[code]
        yield opcode.name, _argument(opcode, stream)
        if opcode.name == "STOP":
            return
    raise ValueError(f"it has more than {_MOST_INSTRUCTIONS:,} instructions")


def _argument(opcode: pickletools.OpcodeInfo, stream: io.BytesIO) -> Any:
    if opcode.name in _STRINGS:
        length = int.from_bytes(stream.read(_STRINGS[opcode.name]), "little")
        text = stream.read(length)
        if len(text) != length:
            raise ValueError("a byte string does not end")
        return text
    if opcode.arg is None:
        return None
    if opcode.arg.n >= 0:  # so many bytes
        return opcode.arg.reader(stream)
    start = stream.tell()
    excerpt = io.BytesIO(stream.read(_LONGEST_ARGUMENT))  # a reader takes what it finds, however much
    argument = opcode.arg.reader(excerpt)
    stream.seek(start + excerpt.tell())
    return argument


def _names(program: Iterable[Instruction]) -> Iterator[str]:
    """List every importable name that the instructions mention, in any protocol."""
    texts: deque[str] = deque(maxlen=2)
    for opcode, argument in program:
        if opcode in ("GLOBAL", "INST"):
            yield str(argument).replace(" ", ".")
        elif opcode == "STACK_GLOBAL":
            yield ".".join(texts)
        elif isinstance(argument, str):
            texts.append(argument)
        elif isinstance(argument, bytes):
            texts.append(argument[:_LONGEST_ARGUMENT].decode("latin-1"))


def _refuse_foreign_names(program: Iterable[Instruction], where: str) -> None:
    foreign: list[str] = []
    for name in _names(program):
        if name not in (_RECONSTRUCT, _NDARRAY, _DTYPE, *foreign):
            foreign.append(name)  # 1 000 letters at most
        if len(foreign) == _SHOWN_NAMES:
            break
    if foreign:
        raise PicojouleError(
            f"{where} names {', '.join(foreign)}, which no CIFAR batch does, so nothing of it was run or read: "
            f"do not use this file, and {_REMEDY}"
        )


def _follow(program: Iterable[Instruction], where: str) -> Any:
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        at = len(stack) - 1
        while stack[at] is not _MARK:
            at -= 1
        items = stack[at + 1 :]
        del stack[at:]
        return items

    for opcode, argument in program:
        if opcode == "PROTO":
            continue
        if opcode == "STOP":
            return stack.pop()
        if opcode in _STRINGS or opcode in _NUMBERS:
            stack.append(argument)
        elif opcode in _CONSTANTS:
            stack.append(_CONSTANTS[opcode])
        elif opcode == "MARK":
            stack.append(_MARK)
        elif opcode == "EMPTY_LIST":
            stack.append([])
        elif opcode == "EMPTY_DICT":
            stack.append({})
        elif opcode in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif opcode in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif opcode == "TUPLE":
            stack.append(tuple(since_mark()))
        elif opcode in _TUPLES:
            stack[-_TUPLES[opcode] :] = [tuple(stack[-_TUPLES[opcode] :])]
        elif opcode in ("APPEND", "APPENDS"):
            items = since_mark() if opcode == "APPENDS" else [stack.pop()]
            _expect(stack[-1], list).extend(items)
        elif opcode in ("SETITEM", "SETITEMS"):
            pairs = since_mark() if opcode == "SETITEMS" else [stack.pop(-2), stack.pop()]
            for key in pairs[::2]:
                _expect(key, bytes)  # the hash of tuples within tuples can take for ever
            _expect(stack[-1], dict).update(zip(pairs[::2], pairs[1::2], strict=True))
        elif opcode == "GLOBAL":
            stack.append(_Name(str(argument).replace(" ", ".")))
        elif opcode == "REDUCE":
            arguments = stack.pop()
            stack.append(_described(stack.pop(), arguments))
        elif opcode == "BUILD":
            state = stack.pop()
            _complete(stack[-1], state)
        else:
            raise PicojouleError(f"{where} has the instruction {opcode}, which no CIFAR batch has: {_REMEDY}")
    raise ValueError("it does not end")


def _expect(value: Any, kind: type[Any]) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a {kind.__name__} was expected")
    return value


def _described(name: object, arguments: object) -> _Array | _Uint8:
    if name == _Name(_RECONSTRUCT) and arguments == (_Name(_NDARRAY), (0,), b"b"):
        return _Array()
    if name == _Name(_DTYPE) and isinstance(arguments, tuple) and arguments[0] == b"u1":
        return _Uint8()
    raise TypeError("it describes something other than an array of uint8")


def _complete(value: object, state: object) -> None:
    if isinstance(value, _Uint8):
        return
    if not isinstance(value, _Array) or not isinstance(state, tuple):
        raise TypeError("it sets the state of something that has none")
    _, shape, kind, fortran_order, pixels = state
    if not isinstance(kind, _Uint8) or type(pixels) is not bytes or type(shape) is not tuple:
        raise TypeError("its array is not of uint8")
    if not all(type(extent) is int and extent >= 0 for extent in shape) or math.prod(shape) != len(pixels):
        raise ValueError("its array's shape and content disagree")
    value.values = np.frombuffer(pixels, dtype=np.uint8).reshape(shape, order="F" if fortran_order else "C")
