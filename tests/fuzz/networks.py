"""Random spiking networks, each from a list of small decisions, so that a failing one can be made smaller.

A `Spec` names the network's parts one after another (`blocks`) and what is done to it once it stands (`changes`). Each
part has a number of its own for its random choices: leaving one out does not change the others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import picojoule as pj
from fuzz.blocks import BLOCKS
from fuzz.changes import CHANGES
from fuzz.ends import ENDS
from fuzz.making import Making, TooSmall

Part = tuple[str, int]
"""What it is, and the seed of its choices."""

PLAIN = ("synapse", "pool", "residual", "concatenation", "dropout", "flatten")
"""Blocks of ordinary networks."""

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "half": torch.half}


@dataclass(frozen=True)
class Spec:
    seed: int
    spatial: int
    neuron: str
    steps: int
    how: str
    """Over time: "once", "folded" (neurons with a membrane), "loop" (inside the forward pass), "calls"."""
    dtype: str
    batch: int
    blocks: tuple[Part, ...]
    end: Part
    changes: tuple[Part, ...] = ()
    plain: bool = False
    """Only layers that engine and exporters take."""

    def smaller(self) -> list[Spec]:
        """The same with one thing less, for finding out what a failure needs."""
        fewer = [replace(self, changes=_without(self.changes, i)) for i in range(len(self.changes))]
        fewer += [replace(self, blocks=_without(self.blocks, i)) for i in range(len(self.blocks))]
        plain = {"dtype": "float32", "batch": 1, "neuron": "spike", "end": ("linear", 0)}
        fewer += [replace(self, **{key: value}) for key, value in plain.items() if getattr(self, key) != value]
        if self.steps > 1:
            fewer.append(replace(self, steps=1, how="once", neuron="spike"))
        return fewer

    def __str__(self) -> str:
        parts = " ".join(f"{name}:{seed}" for name, seed in (*self.blocks, self.end))
        done = " ".join(f"{name}:{seed}" for name, seed in self.changes) or "-"
        over = f", {self.steps} steps {self.how}" if self.steps > 1 else ""
        kind = f"{'plain ' * self.plain}{self.spatial}-d {self.neuron} {self.dtype} batch {self.batch}{over}"
        return f"{kind} [{parts}] changed by [{done}]"


def _without(parts: tuple[Part, ...], i: int) -> tuple[Part, ...]:
    return parts[:i] + parts[i + 1 :]


def drawn(seed: int) -> Spec:
    """The spec of a case."""
    chance = Random(seed)

    def part(names: dict[str, Any]) -> Part:
        weights = [getattr(maker, "weight", 1) for maker in names.values()]
        return chance.choices(list(names), weights)[0], chance.randrange(10**6)

    blocks, ends = BLOCKS, ENDS
    spatial = chance.choice([0, 1, 2, 2, 2, 3])
    plain = chance.random() < 0.4
    if plain:
        spatial = chance.choice([0, 2, 2])
        blocks, ends = ({name: table[name] for name in names} for table, names in ((BLOCKS, PLAIN), (ENDS, ["linear"])))
    how = chance.choices(["once", "folded", "loop", "calls"], [15, 2, 1, 1] if plain else [7, 2, 1, 1])[0]
    neuron = chance.choice(["if", "lif"]) if how == "folded" else "spike"
    return Spec(
        seed=seed,
        spatial=spatial,
        neuron=neuron,
        steps=1 if how == "once" else chance.choice([2, 3]),
        how=how,
        dtype=chance.choices(list(DTYPES), [12, 3, 1, 1])[0],
        batch=chance.choice([1, 2, 3, 3, 5]),
        blocks=(("synapse", chance.randrange(10**6)), *(part(blocks) for _ in range(chance.choice([1, 2, 3, 4, 5])))),
        end=part(ends),
        changes=tuple(
            part(CHANGES) for _ in range(chance.choices([0, 1, 2, 3], [6, 4, 1, 0] if plain else [3, 5, 3, 1])[0])
        ),
        plain=plain,
    )


class Network(nn.Module):
    """Blocks one after another."""

    def __init__(self, blocks: list[nn.Module], steps: int, how: str) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.steps, self.how = steps, how

    def once(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "folded":
            out = self.once(torch.cat([x] * self.steps))
            return out.unflatten(0, (self.steps, -1)).mean(0)
        if self.how == "loop":
            return torch.stack([self.once(x) for _ in range(self.steps)]).mean(0)
        return self.once(x)


@dataclass
class Built:
    """A network to be tried, with what an oracle has to know of it."""

    spec: Spec
    model: nn.Module
    images: Tensor
    used: list[str] = field(default_factory=list)
    """The blocks and changes that took effect."""
    identities: list[nn.Module] = field(default_factory=list)
    accidental_zeros: bool = False
    """Whether weights may be zero by rounding; whether such synapses count is not said."""
    reset: Callable[[], None] = lambda: None

    @property
    def neurons(self) -> dict[str, nn.Module]:
        kinds = (pj.Spike, pj.IF, pj.LIF)
        return {name: module for name, module in self.model.named_modules() if isinstance(module, kinds)}


SIZES = {0: (), 1: (6, 7, 9), 2: (4, 5, 6), 3: (3, 4)}


def built(spec: Spec) -> Built:
    """The network of a spec, in evaluation mode, and images that make it fire."""
    torch.manual_seed(spec.seed % 2**31)
    chance = Random(spec.seed)
    shape = (chance.choice([1, 2, 3, 4]), *(chance.choice(SIZES[spec.spatial]) for _ in range(spec.spatial)))
    steps = spec.steps if spec.how == "folded" else 1

    def neuron() -> nn.Module:
        threshold = chance.choice([0.2, 0.5, 1.0])
        if spec.neuron == "spike":
            return pj.Spike(threshold)
        kind = pj.IF if spec.neuron == "if" else pj.LIF
        return kind(threshold, max_spikes=chance.choice([None, 1, 2]), steps=steps)

    making = Making(neuron, (2 * steps, *shape), plain=spec.plain)
    blocks: list[nn.Module] = []
    used = []
    parts = [(name, seed, BLOCKS[name]) for name, seed in spec.blocks] + [(*spec.end, ENDS[spec.end[0]])]
    for name, seed, maker in parts:
        making.chance = Random(seed)
        try:
            block = maker(making)
            with torch.no_grad():
                out = block.eval()(torch.rand(making.shape))
        except TooSmall:
            continue
        if not 0 < out[0].numel() <= 4000:
            continue
        making.shape = tuple(out.shape)
        blocks.append(block)
        used.append(name)
    model: nn.Module = Network(blocks, spec.steps, spec.how)
    images = torch.randn(spec.batch, *shape)
    made = Built(spec, model.eval(), images, used, list(making.identities), making.accidental_zeros)
    _lively(made.model, torch.cat([images] * 2))
    for name, seed in spec.changes:
        if CHANGES[name](made, Random(seed)):
            made.used.append(name)
    dtype = DTYPES[spec.dtype]
    made.model, made.images = made.model.to(dtype).eval(), made.images.to(dtype)
    forget_states(made.model)
    return made


def _lively(model: nn.Module, images: Tensor) -> None:
    """Weights so large that about every other neuron fires, and running statistics that are not 0 and 1."""
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.running_mean.normal_(0, 0.2)
            module.running_var.uniform_(0.3, 2)
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0.3, 0.5)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.5)
            elif name.endswith("bias"):
                parameter.add_(0.1)


def forget_states(model: nn.Module) -> None:
    for module in model.modules():
        if hasattr(module, "state"):
            module.state = None
