"""What flows along the edges of a network while it is lowered: spikes, sums of spikes, and currents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from picojoule.deploy.events.affine import Affine, Doubles
from picojoule.deploy.events.program import Floats, Map
from picojoule.deploy.graph.refusal import Unsupported


@dataclass(eq=False)
class Buffer:
    """Memory for a map of numbers, which gets its address when all instructions are known."""

    frame: int
    """Numbers in one time step."""
    frames: int = 1
    """Time steps that differ."""
    live_out: bool = False
    """Still to be read after the run, so that no other buffer may take its place."""
    address: int = -1

    @property
    def size(self) -> int:
        """Numbers in all."""
        return self.frame * self.frames

    @property
    def step(self) -> int:
        """How far it is from one time step to the next."""
        return self.frame if self.frames > 1 else 0


@dataclass(eq=False)
class PendingInstruction:
    """An instruction in the making: fields of `program.INSTRUCTION`, with buffers where there is no address yet."""

    fields: dict[str, int | Buffer]
    rows: Floats | None = None
    """Weights [blocks, rows, lanes]; kept open until the end, because what follows may still be folded into them."""
    init: Doubles = field(default_factory=lambda: np.zeros(0))
    """What each output channel begins with: its bias."""
    scale: float = 1.0
    """Of the input, where it is a whole number of spikes times this."""

    def scale_outputs(self, gain: Doubles, shift: Doubles | float = 0.0) -> None:
        """Fold a scale and a shift into the weights, so that synapses give gain · current + shift.

        Args:
            gain: One factor for each output channel.
            shift: What is added to each.
        """
        assert self.rows is not None
        self.init = self.init * gain + shift
        if (gain != 1).any():
            blocks, _, lanes = self.rows.shape
            padded = np.pad(gain, (0, blocks * lanes - len(gain)), constant_values=1.0)
            self.rows *= padded.astype(np.float32).reshape(blocks, 1, lanes)

    @property
    def buffers(self) -> list[Buffer]:
        """The buffers that it reads or writes."""
        return [value for value in self.fields.values() if isinstance(value, Buffer)]


@dataclass(frozen=True, eq=False)
class Spikes:
    """Binary spikes, one bit per neuron."""

    map: Map
    mask: int
    """Where the bits begin, in words."""
    frames: int

    @property
    def step(self) -> int:
        """How far it is from one time step to the next, in words."""
        return self.map.pixels * self.map.words if self.frames > 1 else 0


@dataclass(frozen=True, eq=False)
class Counts:
    """Numbers made of spikes (behind an average pool, or a sum), and how many spikes stand behind each."""

    map: Map
    values: Buffer
    counts: Buffer
    scale: float | None
    """Values are counts times this; None if it differs from place to place."""
    most: float
    """No count is larger."""

    @property
    def frames(self) -> int:
        """Time steps that differ."""
        return self.values.frames


@dataclass(frozen=True, eq=False)
class Analog:
    """Currents, or what comes from the network's input: gain · numbers + shift."""

    map: Map
    numbers: Buffer
    affine: Affine
    from_input: bool = False
    """Made of the input alone, so that synapses may take it."""
    planar: bool = False
    """Channel by channel, as the input comes, instead of pixel by pixel."""
    producer: PendingInstruction | None = None
    """The synapses that wrote it, if nothing else reads it: then what follows may become part of them."""

    @property
    def frames(self) -> int:
        """Time steps that differ: 1 where the current is the same in all."""
        return self.numbers.frames


Value = Spikes | Counts | Analog


def describe(value: Any) -> str:
    """Name the kind of a value, for a refusal.

    Args:
        value: What a rule was given.

    Returns:
        A noun.

    Example:
        >>> describe(3)
        'something that is not a tensor'
    """
    names = {Spikes: "spikes", Counts: "sums of spikes", Analog: "currents"}
    return names.get(type(value), "something that is not a tensor")


def value_of(x: Any) -> Value:
    """Check that a rule is given a value and not a number or a size.

    Args:
        x: What the rule was given.

    Returns:
        The same.

    Raises:
        Unsupported: If it is not a value.
    """
    if not isinstance(x, Spikes | Counts | Analog):
        raise Unsupported("let it work on what the layers before it emit")
    return x


def map_of(shape: tuple[int, ...]) -> Map:
    """Read the map of one sample from the shape of a batch.

    Args:
        shape: [B, F], [B, C, L] or [B, C, H, W].

    Returns:
        The map; a vector is one pixel, a sequence one row of pixels.

    Raises:
        Unsupported: If the shape has another number of axes.

    Example:
        >>> map_of((8, 3, 5))
        Map(channels=3, height=1, width=5)
    """
    if len(shape) == 2:
        return Map(shape[1])
    if len(shape) == 3:
        return Map(shape[1], 1, shape[2])
    if len(shape) == 4:
        return Map(*shape[1:])
    raise Unsupported(
        "use [batch, features], [batch, channels, length] or images", because=f"which has the shape {shape}"
    )
