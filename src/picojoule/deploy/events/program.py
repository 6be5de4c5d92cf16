"""A compiled network: a short list of instructions and the memory that they work on.

Everything is flat. Maps are channels-last: a pixel of `Map.pitch` float32 numbers, or of `Map.words` 64-bit words with
one bit per neuron. What differs from one time step to the next has a frame for each of them, one behind the other; what
does not has one frame, and a step of 0 from each to the next. Weights of a synaptic layer are
`[block][kernel row][kernel column][input channel][lane]`, where a block is as many output channels as one vector has
lanes: what one spike adds to one block is contiguous.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, auto
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
WORD = 64
COPIED = 16
"""Lists are copied, and maps read, so many numbers at a time; they have room for as many more at their end."""
LONGEST_LIST = 1 << 19
"""Weight rows that are listed before they are added up: those of a part of the images or of their maps, if need be."""


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
    READ_OUT = auto()  # the sum over all time steps, scaled
    OUTPUT = auto()  # a map as the answer


class Emission(IntEnum):
    """What becomes of a current."""

    CURRENT = 0  # it is written
    SPIKE = auto()  # a bit where it reaches the threshold
    MEMBRANE = auto()  # it charges a membrane that fires at most once in a step: bits
    COUNTED = auto()  # it charges a membrane that may fire several times in a step: numbers


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
    *("lanes", "blocks", "rows", "fan", "fan_table"),
    # time steps of the target, and how far it is from each to the next
    *("steps", "source_step", "other_step", "target_step"),
    # what becomes of the current, and by which numbers (see `MEMBRANE`)
    *("emission", "membrane", "zeroes"),
    # flags, tables of windows, and which counters to advance (of synaptic operations, of spikes)
    *("spiking", "dense", "repeated", "streamed", "largest", "windows", "counter", "emitter"),
)
INSTRUCTION = np.dtype([(name, np.int64) for name in FIELDS])
MEMBRANE = ("threshold", "kept", "most", "floor")
"""The numbers of a membrane, in their order among the constants: `kept` is 1 − leak; see `picojoule.neurons.lif`."""
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
    steps: int
    time_axis: bool
    """Whether the network shows the steps in an axis of their own, [T, B, …], instead of the batch axis, [T·B, …]."""


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
    """What the spikes and the numbers of one image take."""
    steps: int = 1
    """Time steps T."""


class Memory(NamedTuple):
    """Everything that a running program reads and writes.

    The first three never change; the rest belongs to one call at a time. Several images lie one behind the other. The
    order is known to `kernels.interpreter`.
    """

    constants: Floats
    bytes: NDArray[np.int8]
    tables: NDArray[np.int32]
    masks: NDArray[np.uint64]
    maps: Floats
    image_words: int
    image_numbers: int
    """How far it is from one image to the next among the masks and among the maps."""
    images: int
    """Images that there is room for."""
    places: NDArray[np.int32]
    """Where the entries of each input pixel begin, step by step and image by image."""
    entries: NDArray[np.int32]
    """What is active: (column · channels + channel) · lanes."""
    values: Floats
    multiplicities: NDArray[np.int32]
    """How many spikes stand behind an entry."""
    spikes_before: NDArray[np.int32]
    """How many stand behind the entries before each input pixel."""
    window_images: NDArray[np.int32]
    window_pixels: NDArray[np.int32]
    """The image and the output pixel of each window that is listed."""
    starts: NDArray[np.int32]
    """Where the rows of each of them begin, step by step."""
    rows: NDArray[np.int32]
    """Offsets of rows of weights."""
    row_values: Floats
    sums: Floats
    """The currents of one window in all steps, where they do not stay in registers."""
    reached: NDArray[np.int64]
    """Synaptic operations of one layer, by image."""

    @classmethod
    def of(cls, program: Program, images: int = 1) -> Memory:
        """Allocate what a program needs, for one thread.

        Args:
            program: The program.
            images: How many images it answers layer by layer, before the next ones.

        Returns:
            The memory; constants, bytes and tables are the program's own.
        """
        instructions = program.instructions
        synaptic = instructions[instructions["opcode"] == Opcode.SYNAPSES]
        listing = instructions[np.isin(instructions["opcode"], (Opcode.SYNAPSES, Opcode.SUM_SPIKES))]
        frames = images * program.steps
        pixels = frames * int((listing["in_height"] * listing["in_width"]).max(initial=0))
        entries = listing["in_height"] * listing["in_width"] * (listing["last"] - listing["first"])
        most = frames * int((entries * np.maximum(listing["repeated"], 1)).max(initial=0))
        windows = images * int((synaptic["out_height"] * synaptic["out_width"]).max(initial=1))
        under_one = program.steps * synaptic["rows"] * np.maximum(synaptic["repeated"], 1)
        in_all = images * int((synaptic["out_height"] * synaptic["out_width"] * under_one).max(initial=0))
        rows = min(max(LONGEST_LIST, int(under_one.max(initial=0))), in_all)
        return cls(
            constants=program.constants,
            bytes=program.bytes,
            tables=program.tables,
            masks=np.zeros(images * program.mask_words, dtype=np.uint64),
            maps=aligned(images * program.map_numbers + COPIED),
            image_words=program.mask_words,
            image_numbers=program.map_numbers,
            images=images,
            places=np.zeros(pixels + 1, dtype=np.int32),
            entries=np.empty(most + COPIED, dtype=np.int32),
            values=np.empty(most + COPIED, dtype=np.float32),
            multiplicities=np.empty(most, dtype=np.int32),
            spikes_before=np.zeros(pixels + 1, dtype=np.int32),
            window_images=np.empty(windows + 1, dtype=np.int32),
            window_pixels=np.empty(windows + 1, dtype=np.int32),
            starts=np.empty(windows * program.steps + 1, dtype=np.int32),
            rows=np.empty(rows + COPIED, dtype=np.int32),
            row_values=np.empty(rows + COPIED, dtype=np.float32),
            sums=aligned(program.steps * int(instructions["out_pitch"].max(initial=0))),
            reached=np.zeros(images, dtype=np.int64),
        )

    def addresses(self) -> NDArray[np.int64]:
        """Write down where everything is, as `kernels.execute` takes it.

        Returns:
            For each field its address and length; a number and 0 for one that is a number. It keeps nothing alive.
        """
        pairs = ((x, 0) if isinstance(x, int) else (x.ctypes.data, len(x)) for x in self)
        return np.array([number for pair in pairs for number in pair], dtype=np.int64)


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
