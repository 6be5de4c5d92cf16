"""Masks: constants whose zeros take synapses away, however the forward pass applies them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_leaves, tree_map_only
from picojoule.synapses.rules.passing import RANDOM
from picojoule.synapses.tags import Origin, Tags

_PLACING = frozenset(
    "gather index_add index_add_ index_copy index_copy_ index_put index_put_ index_select one_hot scatter scatter_ "
    "scatter_add scatter_add_ take_along_dim".split()
)
"""Operations that put elements where whole numbers say."""
_CASTS = frozenset("bfloat16 double float half to type type_as".split())

_DRAWS = 4
"""Positive, negative, large of either sign, small of either sign."""


class Masks:
    """A record of the synapses that masks leave: what is not zero whatever the weights are.

    Positions that are learned (delays, a kernel built from taps) put weights where they are when the model is traced.

    A mask is a constant of the model (a buffer, or made of buffers and numbers), never a parameter, whose zeros may be
    gone after the next step of training, and never drawn: what dropout takes away is counted. A weight's own zeros are
    synapses. So each operation on weights runs again on other numbers in place of the weights, with either sign, large
    and small; what stays zero in all of these draws is masked.
    """

    def __init__(self, tags: Tags, pruned: list[tuple[nn.Module, str]]) -> None:
        self._tags = tags
        self._left: dict[int, tuple[Tensor, Tensor | None]] = {}
        """By the identity of a tensor made of weights: where it is left, or None where that cannot be said. Views of a
        tensor have views of its entry, so that what is written into one shows in all."""
        self._pruned: dict[int, Tensor] = {}
        """Masks of `torch.nn.utils.prune` and what is made of them, which may be zero everywhere."""
        for module, name in pruned:
            mask, weight = getattr(module, f"{name}_mask"), getattr(module, name)
            self._left[id(weight)] = (weight, mask.detach().ne(0))
            self._pruned |= {id(mask): mask, id(weight): weight}

    def mask_of(self, constant: Any) -> Tensor | None:
        """Find where the constant in a product is not zero, if it has zeros that are there to stay."""
        if isinstance(constant, bool | int | float):
            return torch.zeros((), dtype=torch.bool) if constant == 0 else None
        if not isinstance(constant, Tensor):
            return None
        mask = self.entry(constant) if self._is_made_of_weights(constant) else constant.detach().ne(0)
        if mask is None or self._tags.get(constant).origin & ~(Origin.CONSTANT | Origin.WEIGHT | Origin.PLAIN):
            return None
        return None if bool(mask.all()) else mask

    def is_empty(self, constant: Any) -> bool:
        """Whether a factor is zero everywhere: a mask that leaves nothing, or a value that will change."""
        mask = self.mask_of(constant)
        return mask is not None and id(constant) not in self._pruned and not bool(mask.any())

    def left_of(self, weight: Tensor) -> Tensor:
        """Find the synapses of a weight, as ones and zeros, float64 on the CPU.

        Args:
            weight: The weight of a synaptic operation.

        Returns:
            A tensor of the weight's shape.

        Raises:
            PicojouleError: It cannot be known which synapses are left, or none would be; a clause that follows the
                name of the operation.
        """
        left = self.entry(weight) if id(weight) in self._left else torch.ones((), dtype=torch.bool)
        if left is None:
            raise PicojouleError(
                "has a weight that is made from a pruned or masked one, so it cannot be known which synapses are left: "
                "use the masked weight as it is"
            )
        if id(weight) not in self._pruned and not bool(left.any()):
            raise PicojouleError(
                "has a weight that a tensor of the model makes zero everywhere, so that no synapse would be left: if "
                "that is a mask, leave this layer out, and if it changes later, trace with a value that it takes then"
            )
        return left.cpu().double().expand(weight.shape)

    def followed(
        self,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        run: Callable[[], Any],
    ) -> Any:
        """Run an operation on constants and note where its result is zero whatever the weights are.

        Args:
            func: The operation.
            args: Its arguments.
            kwargs: Its named arguments.
            target: What it writes into, or None.
            run: Runs it as it is.

        Returns:
            The result of `run`.
        """
        taken = _tensors((args, kwargs))
        if not any(map(self._is_made_of_weights, taken)):
            return run()
        before = target.detach().clone() if isinstance(target, Tensor) else None
        out = run()
        made = _tensors(out) if before is None else [target]
        if made:
            again = _Rerun(self, func, args, kwargs, target, before)
            try:
                if func.__name__ in RANDOM:
                    raise _NoOtherNumbers("what is drawn differs without other weights")
                with torch.no_grad():
                    found: list[Tensor | None] = list(again.left_of_results())
            except Exception:  # the operation takes no other numbers
                whole = all(self._is_whole(tensor) for tensor in taken)
                found = [_everywhere(tensor) if whole else None for tensor in made]
            self._note(made, found)
            if any(id(tensor) in self._pruned for tensor in taken):
                self._pruned |= {id(tensor): tensor for tensor in made}
        return out

    def entry(self, tensor: Tensor) -> Tensor | None:
        """Find where a tensor made of weights is left; a parameter is left everywhere."""
        if id(tensor) not in self._left:
            self._left[id(tensor)] = (tensor, _everywhere(tensor))
        left = self._left[id(tensor)][1]
        return left if left is not None and left.shape == tensor.shape else None

    def is_drawn(self, tensor: Tensor) -> bool:
        """Whether other numbers may stand in a tensor's place: those of weights, and what is drawn anew."""
        return bool(self._tags.get(tensor).origin & (Origin.WEIGHT | Origin.RANDOM)) or id(tensor) in self._left

    def _is_made_of_weights(self, tensor: Tensor) -> bool:
        return bool(self._tags.get(tensor).origin & Origin.WEIGHT)

    def _is_whole(self, tensor: Tensor) -> bool:
        if self.is_drawn(tensor):
            left = self.entry(tensor)
            return left is not None and bool(left.all())
        return tensor.layout == torch.strided and bool(tensor.ne(0).all())

    def _note(self, made: list[Tensor], found: list[Tensor | None]) -> None:
        for tensor, left in zip(made, found, strict=True):
            known = self._left.get(id(tensor), (tensor, None))[1]
            if known is not None and left is not None and known.shape == left.shape:
                known.copy_(left)  # in place, for the views of it
            else:
                self._left[id(tensor)] = (tensor, left)


class _NoOtherNumbers(Exception):
    """An operation on weights cannot be run again on other numbers in their place."""


class _Rerun:
    """One operation on weights, run again on other numbers."""

    def __init__(
        self,
        masks: Masks,
        func: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        target: Any,
        before: Tensor | None,
    ) -> None:
        self._masks, self._func, self._taken = masks, func, (args, kwargs)
        self._target, self._before = target, before
        """What the operation writes into, and what stood there."""

    def left_of_results(self) -> list[Tensor]:
        """Find where each result of the operation is left."""
        found: list[Tensor] = []
        for draw in range(_DRAWS):
            numbers: dict[int, Tensor] = {}
            made = self._run(partial(self._drawn, draw, numbers))
            compared = not any(tensor.dtype == torch.bool for tensor in numbers.values())
            if self._before is not None:
                made = [numbers[id(self._target)]]
            elif _share_memory(made, list(numbers.values())):
                return self._run(self._entry)  # another name for the same memory: the same view of the entry
            left = [tensor.ne(0) | (compared and tensor.dtype == torch.bool) for tensor in made]
            found = [old | new for old, new in zip(found, left, strict=True)] if found else left
        return found

    def _run(self, replaced: Callable[[Tensor], Tensor]) -> list[Tensor]:
        args, kwargs = tree_map_only(Tensor, replaced, self._taken)
        return _tensors(self._func(*args, **kwargs))

    def _entry(self, tensor: Tensor) -> Tensor:
        left = self._masks.entry(tensor) if self._masks.is_drawn(tensor) else tensor
        if left is None:
            raise _NoOtherNumbers("what is left of a weight cannot be said")
        return left

    def _drawn(self, draw: int, numbers: dict[int, Tensor], tensor: Tensor) -> Tensor:
        """Draw other numbers in a tensor's place: positive, negative, large and small of either sign."""
        if id(tensor) in numbers:
            return numbers[id(tensor)]
        value = self._before if self._before is not None and tensor is self._target else tensor.detach()
        if self._masks.is_drawn(tensor):
            if not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool):
                if self._func.__name__ in _PLACING:  # positions that were learned: taps are where they are now
                    numbers[id(tensor)] = value
                    return value
                if self._func.__name__ in _CASTS:
                    numbers[id(tensor)] = self._entry(tensor).to(tensor.dtype)
                    return numbers[id(tensor)]
                raise _NoOtherNumbers("whole numbers may be indices, which no others can stand for")
            generator = torch.Generator().manual_seed(len(numbers) * _DRAWS + draw)
            size = 1 + torch.rand(tensor.shape, generator=generator, dtype=torch.float64)
            sign = (1 - 2 * torch.randint(2, tensor.shape, generator=generator)) if draw > 1 else 1 - 2 * draw
            drawn = size * sign * (1, 1, 100, 0.01)[draw]
            drawn = drawn.gt(0) if tensor.dtype == torch.bool else drawn.to(tensor.dtype)
            value = drawn.to(tensor.device) * self._entry(tensor)
        elif tensor is self._target:
            value = value.clone()
        numbers[id(tensor)] = value
        return value


def _everywhere(tensor: Tensor) -> Tensor:
    """Make True at each element, as a dense tensor: sparse layouts have no comparison and no filling."""
    if tensor.layout == torch.strided:
        return torch.ones_like(tensor, dtype=torch.bool)
    return torch.ones(tensor.shape, dtype=torch.bool, device=tensor.device)


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]


def _share_memory(made: list[Tensor], taken: list[Tensor]) -> bool:
    memory = {tensor.untyped_storage().data_ptr() for tensor in taken}
    return any(tensor.untyped_storage().data_ptr() in memory for tensor in made)
