"""Synaptic operations counted in the kernels that really ran, on real spikes: nothing of picojoule, no gradients.

Every tensor's memory has a shadow: how many spikes each element carries, and what else it is made of. A dispatch mode
sees each kernel of the real forward pass and does to the shadows what the kernel did to the values. Where a kernel
multiplies by weights, every spike is charged once for each weight that it meets and that is not zero. What is a spike
is known by where it came from (the output of a neuron, a max pool of spikes), never by its value.

An operation that the shadow cannot follow makes its results `LOST`; if they reach weights, the oracle abstains.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

from fuzz.kernels import ELEMENTWISE, MATRIX, MOVES, PASSES, SUMS, VIEWS, adaptive_average, average, dilated_columns
from fuzz.shadows import CURRENT, INPUT, KINDS, LOST, SCALED, SHARE, SPIKE, SUMMED, WEIGHTED, Shadow, Shadows


class Oracle(Shadows, TorchDispatchMode):
    """Counts while it is active. `mark_input` and `watched` say where values and spikes come from."""

    def __init__(self) -> None:
        Shadows.__init__(self)
        TorchDispatchMode.__init__(self)
        self.synops = 0.0
        """Of spikes and weights that are not zero."""
        self.dense_synops = 0.0
        """The same if no weight were zero."""
        self.macs = 0.0
        """Weights that are not zero and meet anything else (the input, currents), and products of two such values."""
        self.dense_macs = 0.0
        self.unit_synops = 0.0
        """Of spikes that reach neurons without a weight."""
        self.lost: list[str] = []
        """Operations between spikes and weights that could not be followed: the oracle abstains."""
        self.odd: list[str] = []
        """Things that picojoule must refuse: spikes that are no whole numbers."""
        self.hidden: list[str] = []
        """Products in all but name whose cost cannot be told: picojoule must refuse them or find more than we did."""
        self.kernels: set[str] = set()
        self.foreign: set[str] = set()
        self.synaptic_kernels = 0
        self.inside = 0
        """Neurons that are running: what they multiply themselves is no synapse."""

    def mark_spikes(self, name: str, spikes: Tensor) -> None:
        values = spikes.detach().double()
        if not bool(((values >= 0) & (values == values.round())).all()):
            self.odd.append(f"{name} emitted values that are no numbers of spikes")
        self.put(spikes, Shadow(values.clamp(min=0), torch.full(values.shape, SPIKE, dtype=torch.uint8)))

    def mark_end(self, where: str, values: Any) -> None:
        """Sums of weighted spikes have met no other weights when they come to a neuron or to the network's end."""
        if any(self.get(leaf).any(SUMMED) for leaf in tree_leaves(values) if isinstance(leaf, Tensor)):
            self.hidden.append(f"a weighted sum by hand that goes into {where}")

    @contextlib.contextmanager
    def watched(self, neurons: dict[str, nn.Module], identities: Iterable[nn.Module] = ()) -> Iterator[Oracle]:
        """Follow a forward pass: what these modules return are spikes; `identities` return what they were given."""

        def fired(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                with _disable_current_modes():
                    self.inside -= 1
                    self.mark_spikes(name, output[0] if isinstance(output, tuple) else output)

            return hook

        def passed(module: nn.Module, args: Any, output: Any) -> None:
            with _disable_current_modes():
                self.put(output, self.get(args[0]))

        def fed(module: nn.Module, args: Any) -> None:
            with _disable_current_modes():
                self.mark_end(f"a {type(module).__name__}", args)
                self.inside += 1
                for leaf in (leaf for leaf in tree_leaves(args) if isinstance(leaf, Tensor)):
                    shadow = self.get(leaf)
                    if shadow.any(SPIKE) and shadow.any(LOST):
                        self.lost.append("spikes reach neurons through an operation that was not followed")
                    self.unit_synops += float((shadow.counts * (shadow.bits & SPIKE).ne(0)).sum())

        handles = [module.register_forward_hook(fired(name)) for name, module in neurons.items()]
        handles += [module.register_forward_pre_hook(fed) for module in neurons.values()]
        handles += [module.register_forward_hook(passed) for module in identities]
        try:
            with self:
                yield self
        finally:
            for handle in handles:
                handle.remove()

    # ------------------------------------------------------------------------------------------------------- kernels

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
        before = {id(t): self._snapshot(t) for t in tensors}
        out = func(*args, **kwargs)
        if any(shadow.bits.any() for shadow in before.values()):
            self._follow(func, args, kwargs, before, out)
        return out

    def _snapshot(self, t: Tensor) -> Shadow:
        shadow = self.get(t)
        return Shadow(shadow.counts.clone(), shadow.bits.clone())

    def _follow(self, func: Any, args: Any, kwargs: Any, before: dict[int, Shadow], out: Any) -> None:
        name = func.overloadpacket.__name__
        self.kernels.add(name)
        if func.namespace not in ("aten", "prims", "quantized", "_quantized"):
            self.foreign.add(name)
        plain = name[:-1] if name.endswith("_") and not name.startswith("_") else name

        def shadow(value: Any) -> Shadow:
            if isinstance(value, Tensor):
                return before[id(value)]
            return Shadow(torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.uint8))

        first = next((leaf for leaf in tree_leaves(out) if isinstance(leaf, Tensor)), None)
        if first is None or plain in VIEWS:
            return
        if name in self.foreign:  # whatever it is called
            self._lose(name, before.values(), out)
        elif plain in MATRIX:
            self._matrix(plain, args, shadow, first)
        elif plain == "convolution":
            self._convolution(args, shadow, first)
        elif plain in ("linear_dynamic", "linear_relu_dynamic"):
            self._packed(args, shadow, first)
        elif plain in MOVES:
            self._move(func, plain, args, kwargs, shadow, first)
        elif plain in ELEMENTWISE:
            self._elementwise(plain, args, kwargs, shadow, first, in_place=plain != name)
        elif plain in SUMS:
            self._sum(plain, args, kwargs, shadow, first)
        elif plain in PASSES:
            self.put(first, shadow(args[0]))
        elif plain.startswith(("max_pool", "adaptive_max_pool")):
            self._max_pool(name, shadow(args[0]), first)
        elif plain.startswith("avg_pool"):
            pooled = shadow(args[0])
            self.put(first, self._linear(pooled, lambda x: average(x, args)))
        elif plain.startswith("_adaptive_avg_pool"):
            self.put(first, self._linear(shadow(args[0]), lambda x: adaptive_average(x, first.shape)))
        else:
            self._lose(name, before.values(), out)

    def _linear(self, x: Shadow, kernel: Callable[[Tensor], Tensor]) -> Shadow:
        """Counts that add up, and kinds that are joined, through a kernel that sums."""
        bits = sum(
            (kernel((x.bits & kind).ne(0).double()) > 0.5).to(torch.uint8) * kind for kind in KINDS if x.any(kind)
        )
        counts = kernel(x.counts)
        return Shadow(counts, bits if isinstance(bits, Tensor) else torch.zeros(counts.shape, dtype=torch.uint8))

    def _lose(self, name: str, shadows: Iterable[Shadow], out: Any) -> None:
        union = 0
        for shadow in shadows:
            union |= shadow.union
        if union & SPIKE and name in self.foreign:
            self.hidden.append(f"{name}, an operation of the user's own")
        if union & SPIKE:
            union |= LOST
        if name == "_softmax":
            union |= SHARE
        for leaf in tree_leaves(out):
            if isinstance(leaf, Tensor):
                self.fill(leaf, union)

    def _move(self, func: Any, name: str, args: Any, kwargs: Any, shadow: Any, out: Tensor) -> None:
        if name in ("_to_copy", "clone", "contiguous", "lift_fresh_copy"):
            self.put(out, shadow(args[0]))
            return
        if name == "copy":
            moved = shadow(args[1])
            self.put(out, Shadow(moved.counts.expand(out.shape), moved.bits.expand(out.shape)))
            return
        if name in ("masked_fill", "fill", "zero"):
            old, mask = shadow(args[0]), args[1] if name == "masked_fill" else torch.ones((), dtype=torch.bool)
            self.put(out, Shadow(old.counts * ~mask, old.bits * ~mask))
            return
        indices = (
            {id(leaf) for leaf in tree_leaves((args[1:], kwargs)) if isinstance(leaf, Tensor)}
            if (name in ("index", "index_select", "gather", "index_put"))
            else set()
        )
        if name == "index_put":
            indices -= {id(args[2])}
        if name == "constant_pad_nd":
            args = (*args[:2], 0)

        def ran(part: str) -> Tensor:
            def swapped(t: Tensor) -> Tensor:
                return t if id(t) in indices or t.dtype == torch.bool else getattr(shadow(t), part).double()

            moved: Tensor = func(*tree_map_only(Tensor, swapped, args), **tree_map_only(Tensor, swapped, kwargs))
            return moved

        self.put(out, Shadow(ran("counts"), ran("bits").to(torch.uint8)))

    def _elementwise(self, name: str, args: Any, kwargs: Any, shadow: Any, out: Tensor, *, in_place: bool) -> None:
        a, b = args[0], args[1] if len(args) > 1 else 0.0
        left, right = shadow(a), shadow(b)
        if name in ("add", "sub", "rsub"):
            alpha = kwargs.get("alpha", args[2] if len(args) > 2 else 1)
            counts = left.counts + (right.counts if alpha else 0)
            bits = left.bits | (right.bits if alpha else 0)
            both = (left.bits & (SPIKE | CURRENT)).ne(0) & (right.bits & (SPIKE | CURRENT)).ne(0) & bool(alpha)
            summed = both & (bits & SPIKE).ne(0) & (bits & (SCALED | WEIGHTED)).ne(0)
            self.put(out, Shadow(counts, bits | summed.to(torch.uint8) * SUMMED))
            return
        if name == "neg":
            self.put(out, left)
            return
        if left.union and right.union:
            passed = _let_through(a, b, left, right, out)
            if left.union == right.union == SPIKE and name == "mul" and passed is not None:
                self.put(out, Shadow(passed, torch.full(out.shape, SPIKE, dtype=torch.uint8)))
            elif name in ("mul", "div"):
                self._gate(name, a, b, left, right, out)
            else:
                self._lose(name, (left, right), out)
            return
        if right.union and name == "div":
            self._lose(name, (left, right), out)
            return
        carried, other = (left, b) if left.union else (right, a)
        scale = other if isinstance(other, Tensor) else torch.tensor(other)
        there = scale.detach().ne(0)
        if name == "div" or (not carried.any(SPIKE) and not in_place and not there.any()):
            there = torch.ones_like(there)  # pixels times nothing stay pixels: the factor may be zero only now
        weighted = _weighting(scale.detach()) if carried.any(SPIKE) else 0
        bits = (carried.bits | (carried.bits & SPIKE).ne(0) * weighted) * there
        self.put(out, Shadow(carried.counts * there, bits.to(torch.uint8)))

    def _gate(self, name: str, a: Tensor, b: Tensor, left: Shadow, right: Shadow, out: Tensor) -> None:
        """A product, element by element, with an analog factor: spikes let values pass, or analog values multiply."""
        spiking = [(t, x) for t, x in ((a, left), (b, right)) if x.any(SPIKE) and not x.any(SHARE)]
        if not spiking:
            if not self.inside and (left.union | right.union) & CURRENT and not (left.union | right.union) & LOST:
                self.macs += out.numel()
                self.dense_macs += out.numel()
            self.fill(out, left.union | right.union)
            return
        (values, x), analog = spiking[0], right if spiking[0][1] is left else left
        if len(spiking) > 1 or name == "div" or x.union != SPIKE or _is_lost(analog) or not _are(values, x.counts):
            self.lost.append("a gate of which it cannot be told what it lets through")
            self._lose(name, (left, right), out)
            return
        self.synops += float(x.counts.expand(out.shape).sum())
        self.dense_synops += float(x.counts.expand(out.shape).sum())
        self.fill(out, CURRENT)

    def _product(self, a: Tensor, b: Tensor, left: Shadow, right: Shadow, out: Tensor) -> bool:
        """A product of two activations, pair by pair; False if it cannot be told what they are."""
        counts = []
        for values, x in ((a, left), (b, right)):
            if x.union & LOST or (x.any(SPIKE) and (x.union != SPIKE or not _are(values, x.counts))):
                return False
            counts.append(x.counts if x.any(SPIKE) else torch.ones_like(x.counts))
        met = float(torch.matmul(*counts).sum())
        if left.any(SPIKE) or right.any(SPIKE):
            self.synops += met
            self.dense_synops += met
        else:
            self.macs += met
            self.dense_macs += met
        self.fill(out, CURRENT)
        return True

    def _sum(self, name: str, args: Any, kwargs: Any, shadow: Any, out: Tensor) -> None:
        x = shadow(args[0])
        dims = args[1] if len(args) > 1 and isinstance(args[1], list | tuple | int) else kwargs.get("dim")
        if x.any(WEIGHTED) and (x.any(LOST) or name == "cumsum"):
            self.hidden.append(f"{name} of spikes times weights")
        elif x.any(WEIGHTED):  # a product in all but name
            self.synops += float(x.counts.sum())
            self.dense_synops += float(x.counts.sum())
            self.fill(out, CURRENT)
            return
        elif x.any(SCALED):
            self.lost.append("a sum of scaled spikes")
        if name == "cumsum":
            self._lose(name, [x], out)
            return
        keep = (args[2] if len(args) > 2 and isinstance(args[2], bool) else kwargs.get("keepdim", False)) or False
        axes = (
            list(range(x.counts.dim())) if dims in (None, [], ()) else [dims] if isinstance(dims, int) else list(dims)
        )
        self.put(out, self._linear(x, lambda t: t.sum(axes, keepdim=keep) if axes else t))

    def _max_pool(self, name: str, x: Shadow, out: Tensor) -> None:
        if x.union == SPIKE:
            self.mark_spikes(name, out)
        else:
            self._lose(name, [x], out)

    # ------------------------------------------------------------------------------------------------------ synapses

    def _charge(
        self, x: Shadow, arriving: Callable[[Tensor, Tensor], Tensor], weight: Tensor, out: Tensor, add: int = 0
    ) -> None:
        """`arriving(x, w)` is the kernel itself; with counts and ones it says how many spikes meet a weight."""
        self.synaptic_kernels += 1
        present = weight.detach().ne(0).double()
        ones = torch.ones_like(present)
        if x.any(LOST):
            self.lost.append("spikes reach weights through an operation that was not followed")
        spikes = x.counts * ((x.bits & SPIKE).ne(0) & (x.bits & CURRENT).eq(0))  # what is added to currents is analog
        self.synops += float(arriving(spikes, present).sum())
        self.dense_synops += float(arriving(spikes, ones).sum())
        analog = ((x.bits & (INPUT | CURRENT)).ne(0)).double()
        self.macs += float(arriving(analog, present).sum())
        self.dense_macs += float(arriving(analog, ones).sum())
        self.fill(out, CURRENT | add)

    def _matrix(self, name: str, args: Any, shadow: Any, out: Tensor) -> None:
        a, b = args[1:3] if name in ("addmm", "baddbmm", "addmv", "addbmm") else args[:2]
        left, right = shadow(a), shadow(b)
        added = 0
        if name in ("addmm", "baddbmm", "addmv", "addbmm"):
            added = shadow(args[0]).union
            if added & SPIKE:
                added |= LOST
        if left.union and right.union:
            if added or not self._product(a, b, left, right, out):
                self.lost.append("a product of two activations")
                self.fill(out, LOST | CURRENT)
        elif left.union:
            self._charge(left, lambda x, w: torch.matmul(x, w), b, out, added)
        elif right.union:
            self._charge(right, lambda x, w: torch.matmul(w, x), a, out, added)
        else:
            self.fill(out, added)

    def _convolution(self, args: Any, shadow: Any, out: Tensor) -> None:
        x, weight, _, *how = args
        if shadow(weight).union:
            self.lost.append("a convolution with activations for weights")
            self.fill(out, LOST | CURRENT)
            return
        self._charge(shadow(x), lambda x, w: dilated_columns(x, w, how), weight, out)

    def _packed(self, args: Any, shadow: Any, out: Tensor) -> None:
        """A quantised layer, whose weights are packed: all are taken to be there."""
        weight = torch.ones(out.shape[-1], args[0].shape[-1])
        self._charge(shadow(args[0]), lambda x, w: x @ w.t(), weight, out)


def _is_lost(x: Shadow) -> bool:
    """Whether it cannot be told if these are spikes or analog values."""
    return x.union & LOST != 0 and not bool((x.bits & SHARE).all())


def _are(values: Tensor, counts: Tensor) -> bool:
    """Whether values are the spikes that were counted, as those of 1 − s are not."""
    return torch.equal(values.detach().double(), counts)


def _let_through(a: Any, b: Any, left: Shadow, right: Shadow, out: Tensor) -> Tensor | None:
    """The spikes behind a gate of spikes by spikes, or None if they cannot be told.

    Scaled spikes are as many as they were, whatever they are worth; those of 1 − s are the whole numbers that come.
    """
    if all(torch.equal(t.detach().ne(0), x.counts.ne(0)) for t, x in ((a, left), (b, right))):
        return left.counts * right.counts
    values = [t.detach().double() for t in (a, b)]
    if all(bool(((v >= 0) & (v == v.round())).all()) for v in values):
        return out.detach().double()
    return None


def _weighting(scale: Tensor) -> int:
    """What a constant makes of spikes that it multiplies: nothing for a number or a mask of zeros and ones."""
    wide = sum(size > 1 for size in scale.shape)
    if not wide and scale.untyped_storage().nbytes() > scale.element_size():  # a number out of a table of weights
        return SCALED
    if not wide or bool(((scale == 0) | (scale == 1)).all()):
        return 0
    return SCALED if wide == 1 else WEIGHTED
