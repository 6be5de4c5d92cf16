"""A compiled network: a short list of instructions and the memory that they work on.

Everything is flat. Maps are channels-last: a pixel of `Map.pitch` float32 numbers, or of `Map.words` 64-bit words with
one bit per neuron. Weights of a synaptic layer are `[block][kernel row][kernel column][input channel][lane]`, where a
block is as many output channels as one vector has lanes: what one spike adds to one block is contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
WORD = 64
COPIED = 8
"""Lists are copied so many numbers at a time; they have room for as many more at their end."""
LARGEST_TILE = 1 << 19
"""Weight rows that are listed before they are added up: the list of a part of the output map, if need be."""


class Opcode(IntEnum):
    """What an instruction does. Numba reads them as plain numbers."""

    INPUT = auto()  # an image as it comes: channel by channel
    INTERLEAVE = auto()  # the same as a channels-last map
    SYNAPSES = auto()  # adds up the weights of what is active; fires, or writes currents
    FIRE = auto()  # currents to spikes
    COMBINE = auto()  # a·x + b·y + c, channel by channel
    UNPACK = auto()  # bits of spikes as numbers
    FLATTEN = auto()  # a map as one pixel of many channels
    PLACE = auto()  # one group's channels into the whole map
    SUM_SPIKES = auto()  # average pool of spikes: what passes, and how many spikes that is
    RELAY_SPIKES = auto()  # max pool of spikes
    POOL_MAP = auto()  # average or max pool of numbers
    OUTPUT = auto()  # a map as the answer


FIELDS = (
    # where: offsets into masks (spikes), maps (numbers) or constants (weights and the like); -1 is nothing
    *("opcode", "source", "counts", "other", "target", "weights", "bytes", "scales", "init", "threshold"),
    # the part of the input's channels that is read, and the map they are in
    *("first", "last", "in_height", "in_width", "in_pitch", "in_words", "channel_step", "pixel_step"),
    # the target map
    *("out_channels", "out_height", "out_width", "out_pitch", "out_words", "out_first"),
    # the window
    *("kernel_h", "kernel_w", "stride_h", "stride_w", "pad_h", "pad_w", "dilation_h", "dilation_w"),
    # how the weights lie, rows of a block, synapses of a row (or the table that has them)
    *("lanes", "blocks", "rows", "fan", "fan_table", "tile"),
    # flags, tables of windows, and which counters to advance (of synaptic operations, of spikes)
    *("spiking", "dense", "repeated", "fires", "streamed", "largest", "windows", "counter", "emitter"),
)
INSTRUCTION = np.dtype([(name, np.int64) for name in FIELDS])
Instruction = Any
"""One such record, as compiled code sees it: with its fields as attributes."""


@dataclass(frozen=True)
class Map:
    """The shape of one sample's values: channels of height × width. A vector is one pixel of many channels."""

    channels: int
    height: int = 1
    width: int = 1

    @property
    def pixels(self) -> int:
        """Pixels of the map."""
        return self.height * self.width

    @property
    def neurons(self) -> int:
        """Values of the map: channels times pixels."""
        return self.channels * self.pixels

    @property
    def lanes(self) -> int:
        """The width of vectors that the channels are cut into."""
        return 16 if self.channels <= 32 else 64

    @property
    def pitch(self) -> int:
        """Numbers from one pixel to the next."""
        return -(-self.channels // self.lanes) * self.lanes

    @property
    def words(self) -> int:
        """64-bit words that the spikes of one pixel take."""
        return -(-self.channels // WORD)


@dataclass(frozen=True, eq=False)
class SpikeMap:
    """Where the spikes of a layer, or of a relay, are after a run."""

    name: str
    map: Map
    shape: tuple[int, ...]
    """The shape that the network shows, without its batch axis."""
    relay: bool
    binary: bool
    """Bits among the masks; else numbers among the maps, as a relay of spike counts leaves them."""
    address: int


@dataclass(frozen=True, eq=False)
class Program:
    """What the kernels run, and how much memory they need for it."""

    instructions: NDArray[Any]
    """Records of `INSTRUCTION`."""
    constants: Floats
    bytes: NDArray[np.int8]
    tables: NDArray[np.int32]
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    spiking: tuple[SpikeMap, ...]
    synaptic: tuple[str, ...]
    """Names of the layers of synapses, in the order of their counters."""
    mask_words: int
    map_numbers: int


class Memory(NamedTuple):
    """Everything that a running program reads and writes.

    The first three never change; the rest belongs to one thread. The order is that of the
    arguments of `kernels.execute`.
    """

    constants: Floats
    bytes: NDArray[np.int8]
    tables: NDArray[np.int32]
    masks: NDArray[np.uint64]
    maps: Floats
    places: NDArray[np.int32]
    """Where the entries of each input pixel begin."""
    entries: NDArray[np.int32]
    """What is active: (column · channels + channel) · lanes."""
    values: Floats
    multiplicities: NDArray[np.int32]
    """How many spikes stand behind an entry."""
    spikes_before: NDArray[np.int32]
    """How many stand behind the entries before each input pixel."""
    starts: NDArray[np.int32]
    """Where the rows of each output pixel begin."""
    rows: NDArray[np.int32]
    """Offsets of rows of weights."""
    row_values: Floats
    sums: Floats
    """The currents of one pixel, where they are too many for registers."""

    @classmethod
    def of(cls, program: Program) -> Memory:
        """Allocate what a program needs, for one thread.

        Args:
            program: The program.

        Returns:
            The memory; constants, bytes and tables are the program's own.
        """
        instructions = program.instructions
        synaptic = instructions[instructions["opcode"] == Opcode.SYNAPSES]
        listing = instructions[np.isin(instructions["opcode"], (Opcode.SYNAPSES, Opcode.SUM_SPIKES))]
        pixels = int((listing["in_height"] * listing["in_width"]).max(initial=0))
        entries = listing["in_height"] * listing["in_width"] * (listing["last"] - listing["first"])
        most = int((entries * np.maximum(listing["repeated"], 1)).max(initial=0))
        tile = int((synaptic["tile"] * synaptic["rows"] * np.maximum(synaptic["repeated"], 1)).max(initial=0))
        return cls(
            constants=program.constants,
            bytes=program.bytes,
            tables=program.tables,
            masks=np.zeros(program.mask_words, dtype=np.uint64),
            maps=aligned(program.map_numbers),
            places=np.zeros(pixels + 1, dtype=np.int32),
            entries=np.empty(most + COPIED, dtype=np.int32),
            values=np.empty(most + COPIED, dtype=np.float32),
            multiplicities=np.empty(most, dtype=np.int32),
            spikes_before=np.zeros(pixels + 1, dtype=np.int32),
            starts=np.empty(int(synaptic["tile"].max(initial=0)) + 1, dtype=np.int32),
            rows=np.empty(tile + COPIED, dtype=np.int32),
            row_values=np.empty(tile + COPIED, dtype=np.float32),
            sums=aligned(int(synaptic["out_pitch"].max(initial=0))),
        )


def aligned(numbers: int) -> Floats:
    """Allocate zeros that begin at a cache line, so that no vector lies across two.

    Args:
        numbers: How many.

    Returns:
        The zeros.
    """
    room = np.zeros(numbers + 16, dtype=np.float32)
    first = (-room.ctypes.data % 64) // 4
    return room[first : first + numbers]
