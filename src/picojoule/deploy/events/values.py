"""What flows along the edges of a network while it is compiled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from picojoule.deploy.events.folding import Affine, Doubles
from picojoule.deploy.events.program import Floats, Map


@dataclass(eq=False)
class Buffer:
    """Memory for a map of numbers, given its place when all operations are known."""

    size: int
    kept: bool = False
    """Still to be read after the run."""
    at: int = -1


@dataclass(eq=False)
class Step:
    """An operation in the making: fields of `program.OPERATION`, with buffers where memory has no place yet."""

    fields: dict[str, int | Buffer]
    rows: Floats | None = None
    """Weights [blocks, rows, lanes]; kept open until the end, because what follows may still be folded into them."""
    init: Doubles = field(default_factory=lambda: np.zeros(0))
    """What each output channel begins with: its bias."""
    scale: float = 1.0
    """Of the input, where it is a whole number of spikes times this."""

    def scale_outputs(self, gain: Doubles, shift: Doubles | float = 0.0) -> None:
        """Let the synapses give gain · current + shift, channel by channel."""
        assert self.rows is not None
        self.init = self.init * gain + shift
        if (gain != 1).any():
            blocks, _, lanes = self.rows.shape
            padded = np.pad(gain, (0, blocks * lanes - len(gain)), constant_values=1.0)
            self.rows *= padded.astype(np.float32).reshape(blocks, 1, lanes)

    @property
    def buffers(self) -> list[Buffer]:
        return [value for value in self.fields.values() if isinstance(value, Buffer)]


@dataclass(frozen=True, eq=False)
class Spikes:
    """One bit a neuron."""

    map: Map
    mask: int


@dataclass(frozen=True, eq=False)
class Counts:
    """Numbers made of spikes (behind an average pool, or a sum), and how many spikes stand behind each."""

    map: Map
    values: Buffer
    counts: Buffer
    scale: float | None
    """Values are counts times this; None if it differs from place to place."""
    most: int
    """No count is larger."""


@dataclass(frozen=True, eq=False)
class Analog:
    """Currents, or what comes from the network's input: gain · numbers + shift."""

    map: Map
    numbers: Buffer
    affine: Affine
    pixels: bool = False
    """Made of the input alone, so that synapses may take it."""
    planar: bool = False
    """Channel by channel, as the input comes, instead of pixel by pixel."""
    made_by: Step | None = None
    """The synapses that wrote it, if nothing else reads it: then what follows may become part of them."""


Value = Spikes | Counts | Analog


def describe(value: Any) -> str:
    return {Spikes: "spikes", Counts: "sums of spikes", Analog: "currents"}.get(type(value), "no tensor")


class Refused(Exception):
    """A layer without a rule; the message is the remedy."""


def value_of(x: Any) -> Value:
    """What a rule is given, if that is a value and no number or size."""
    if not isinstance(x, Spikes | Counts | Analog):
        raise Refused("let it work on what the layers before it emit")
    return x


def map_of(shape: tuple[int, ...]) -> Map:
    """[B, F], [B, C, L] or [B, C, H, W]."""
    if len(shape) == 2:
        return Map(shape[1])
    if len(shape) == 3:
        return Map(shape[1], 1, shape[2])
    if len(shape) == 4:
        return Map(*shape[1:])
    raise Refused(f"its shape {shape} has no place here: use [batch, features], [batch, channels, length] or images")
