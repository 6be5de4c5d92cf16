"""Expressions: how spikes that no module emits are made of those that modules emit.

The structural pass notes the chain of passing operations by which a tensor of spikes came about. `Replay` runs that
chain again on the spikes that were recorded in a real forward pass, so that products and gates of spikes can be counted
without intercepting anything while the network runs. The chain holds numbers of spikes: scales by constants are left
out of it, and a mean is the sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import torch
from torch import Tensor

from picojoule.errors import Clause
from picojoule.kernels.torch_private import tree_map
from picojoule.spikes.sums import precise
from picojoule.synapses.rules.call import Call

Operation: TypeAlias = Callable[[Call], Any]


@dataclass(frozen=True, eq=False)
class Emitted:
    """What a layer or relay emits in one of its calls."""

    name: str
    call: int
    pass_number: int = 0
    """Which call of the model emits it, where a structural pass calls it several times."""


@dataclass(frozen=True, eq=False)
class Made:
    """What an operation makes of other expressions, which stand among the arguments of its call."""

    operation: Operation
    call: Call


@dataclass(frozen=True, eq=False)
class Part:
    """One of several results."""

    of: Expression
    index: int


@dataclass(frozen=True, eq=False)
class Complement:
    """1 − s."""

    of: Expression


@dataclass(frozen=True, eq=False)
class Scaled:
    """The same numbers of spikes, each worth something else than 1."""

    of: Expression


@dataclass(frozen=True, eq=False)
class Pairs:
    """The number of pairs of spikes that meet in a product, of all samples and steps together.

    Σ_k (Σ_n A_nk)(Σ_m B_km) where the two sums are known, else the sum of the product itself.
    """

    left: Expression
    right: Expression
    product: Callable[[Tensor, Tensor], Tensor]
    summed: tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]] | None = None

    def of(self, left: Tensor, right: Tensor) -> Tensor:
        """Count the pairs in two operands."""
        dtype = precise(left.device)
        if self.summed is None:
            return self.product(left.to(dtype), right.to(dtype)).sum()
        one, other = (f(x).to(dtype) for f, x in zip(self.summed, (left, right), strict=True))
        return (one * other).sum()


Expression: TypeAlias = Emitted | Made | Part | Complement | Scaled | Pairs
_KINDS = (Emitted, Made, Part, Complement, Scaled, Pairs)


@dataclass(frozen=True)
class PerSample:
    """A number of an operation, such as a size, that is so many times the number of samples."""

    times: int


@dataclass(frozen=True, eq=False)
class Filled:
    """A constant tensor of which every element is the same and whose shape depends on the number of samples."""

    like: Tensor
    shape: tuple[int | PerSample, ...]


def as_it_is(call: Call) -> Any:
    """Run an operation itself."""
    return call.run(*call.args, **call.kwargs)


class Replay:
    """The values of expressions, given what was emitted.

    Args:
        emitted: What a layer emitted in one of its calls.
        samples: The number of samples.
        marking: Whether values are marks that follow the spikes of some samples or steps, for which 1 − s is s.
        counting: Whether values are counts of a real forward pass, of which 1 − s has to be one too.
    """

    def __init__(
        self, emitted: Callable[[str, int], Tensor], samples: int, *, marking: bool = False, counting: bool = False
    ) -> None:
        self._emitted, self._samples, self._marking, self._counting = emitted, samples, marking, counting
        self._known: dict[int, tuple[Expression, Any]] = {}

    def __call__(self, expression: Expression) -> Any:
        """Compute the value of an expression, once."""
        if id(expression) not in self._known:
            self._known[id(expression)] = (expression, self._value(expression))
        return self._known[id(expression)][1]

    def _value(self, expression: Expression) -> Any:
        if isinstance(expression, Emitted):
            return self._emitted(expression.name, expression.call)
        if isinstance(expression, Part):
            return self(expression.of)[expression.index]
        if isinstance(expression, Complement):
            return self(expression.of) if self._marking else self._complement(self(expression.of))
        if isinstance(expression, Scaled):
            return self(expression.of)
        if isinstance(expression, Pairs):
            return expression.of(self(expression.left), self(expression.right))
        return self._made(expression)

    def _complement(self, spikes: Tensor) -> Tensor:
        if self._counting and not bool((spikes.detach() <= 1).all()):
            raise Clause(
                "makes negative values or NaN of the spikes that it takes, as 1 − s does of more than one spike: let "
                "the layers in front of it emit 0 and 1 only"
            )
        return 1 - spikes

    def _made(self, made: Made) -> Any:
        inner = list(parents(made))
        values = {id(value): value for value in map(self, inner)}
        device = next(iter(values.values())).device

        def number(value: Any) -> Any:
            if isinstance(value, _KINDS):
                return self(value)
            if isinstance(value, PerSample):
                return value.times * self._samples
            if isinstance(value, slice):
                return slice(number(value.start), number(value.stop), number(value.step))
            if isinstance(value, Filled):
                return value.like.new_full(tuple(map(number, value.shape)), value.like.flatten()[0].item()).to(device)
            return value.to(device) if isinstance(value, Tensor) else value

        call = made.call
        args, kwargs = tree_map(number, (call.args, call.kwargs), is_leaf=_is_leaf)
        if call.in_place:  # what was recorded must stay as it is
            args = (args[0].clone(), *args[1:])
            values[id(args[0])] = args[0]
        activation = any_of(values)
        return made.operation(replace(call, args=args, kwargs=kwargs, is_activation=activation, psi="exact"))


def any_of(values: dict[int, Any]) -> Callable[[Any], bool]:
    """Make the test whether a nest of values holds one of these tensors."""
    return lambda nest: any(id(leaf) in values for leaf in _leaves(nest))


def _is_leaf(value: Any) -> bool:
    return isinstance(value, _KINDS)


def _leaves(nest: Any) -> list[Any]:
    found: list[Any] = []
    tree_map(found.append, nest, is_leaf=_is_leaf)
    return found


def parents(expression: Expression) -> Iterator[Expression]:
    """List the expressions that one is made of directly."""
    if isinstance(expression, Part | Complement | Scaled):
        yield expression.of
    elif isinstance(expression, Pairs):
        yield from (expression.left, expression.right)
    elif isinstance(expression, Made):
        yield from (leaf for leaf in _leaves((expression.call.args, expression.call.kwargs)) if _is_leaf(leaf))


def sources(*expressions: Expression) -> list[Emitted]:
    """List what was emitted and has a part in these expressions."""
    return [expression for expression in _all(expressions) if isinstance(expression, Emitted)]


def has_complement(expression: Expression) -> bool:
    """Whether 1 − s has a part in an expression."""
    return any(isinstance(part, Complement) for part in _all((expression,)))


def is_moved_complement(expression: Expression | None) -> bool:
    """Whether an expression is 1 − s, moved or scaled: a spike that stops what it meets."""
    while isinstance(expression, Made | Scaled | Part):
        above = list(parents(expression))
        adds_up = isinstance(expression, Made) and expression.call.function.__name__ in ("sum", "fold", "add", "add_")
        if len(above) != 1 or adds_up:
            return False
        (expression,) = above
    return isinstance(expression, Complement)


def are_scaled(expression: Expression) -> bool:
    """Whether the values are something else than numbers of spikes, some of them at least."""
    return any(isinstance(part, Scaled) for part in _all((expression,)))


def _all(expressions: tuple[Expression, ...]) -> list[Expression]:
    """List expressions and all that they are made of."""
    seen: dict[int, Expression] = {}
    waiting = list(expressions)
    while waiting:
        expression = waiting.pop()
        if id(expression) not in seen:
            seen[id(expression)] = expression
            waiting += parents(expression)
    return list(seen.values())


class Generalised:
    """Two expressions of the same spikes, for different numbers of samples, as one for any number.

    Args:
        samples: How many samples each of the two is made for.
    """

    def __init__(self, samples: tuple[int, int]) -> None:
        self._samples = samples
        self._known: dict[int, tuple[Expression, Expression]] = {}

    def __call__(self, one: Expression, other: Expression) -> Expression:
        """Join two expressions.

        Raises:
            Clause: They differ in more than numbers that grow with the samples; a clause.
        """
        if id(one) not in self._known:
            self._known[id(one)] = (one, self._joined(one, other))
        return self._known[id(one)][1]

    def _joined(self, one: Expression, other: Expression) -> Expression:
        if type(one) is not type(other):
            raise Clause("is made by other operations in a batch of another size")
        if isinstance(one, Emitted) and isinstance(other, Emitted):
            if (one.name, one.call) != (other.name, other.call):
                raise Clause("is made of other layers in a batch of another size")
            return Emitted(one.name, one.call)
        if isinstance(one, Part) and isinstance(other, Part):
            return Part(self(one.of, other.of), self._number(one.index, other.index))
        if isinstance(one, Complement) and isinstance(other, Complement):
            return Complement(self(one.of, other.of))
        if isinstance(one, Scaled) and isinstance(other, Scaled):
            return Scaled(self(one.of, other.of))
        if isinstance(one, Pairs) and isinstance(other, Pairs):
            return replace(one, left=self(one.left, other.left), right=self(one.right, other.right))
        assert isinstance(one, Made)
        assert isinstance(other, Made)
        if one.call.function != other.call.function and one.call.function.__name__ != other.call.function.__name__:
            raise Clause("is made by other operations in a batch of another size")
        args, kwargs = self._nest((one.call.args, one.call.kwargs), (other.call.args, other.call.kwargs))
        return Made(one.operation, replace(one.call, args=args, kwargs=kwargs))

    def _nest(self, one: Any, other: Any) -> Any:
        if isinstance(one, _KINDS):
            return self(one, other)
        if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
            return type(one)([self._nest(a, b) for a, b in zip(one, other, strict=True)])
        if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
            return {key: self._nest(one[key], other[key]) for key in one}
        if isinstance(one, slice) and isinstance(other, slice):
            return slice(*(self._number(getattr(one, end), getattr(other, end)) for end in ("start", "stop", "step")))
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            return self._constant(one, other)
        return self._number(one, other)

    def _number(self, one: Any, other: Any) -> Any:
        if type(one) is int and type(other) is int and one != other:
            times, rest = divmod(one, self._samples[0])
            if rest or times * self._samples[1] != other:
                raise Clause(
                    f"takes the number {one} in a batch of {self._samples[0]} and {other} in one of {self._samples[1]}"
                )
            return PerSample(times)
        return one

    def _constant(self, one: Tensor, other: Tensor) -> Any:
        if one is other or (one.shape == other.shape and torch.equal(one, other)):
            return one
        value = one.flatten()[:1]
        if one.dim() == other.dim() and value.numel() and bool((one == value).all()) and bool((other == value).all()):
            shape = tuple(self._number(a, b) for a, b in zip(one.shape, other.shape, strict=True))
            return Filled(value.clone(), shape)
        raise Clause("takes a constant tensor that depends on the number of samples")


@dataclass
class Expressions:
    """The expressions of the tensors of one structural pass."""

    _by_tensor: dict[int, tuple[Tensor, int, Expression]] = field(default_factory=dict)
    """By identity: the tensor, its version then, and its expression."""

    def put(self, tensor: Tensor, expression: Expression | None, version: int) -> None:
        """Note the expression of a tensor, or that it has none."""
        if expression is None:
            self._by_tensor.pop(id(tensor), None)
        else:
            self._by_tensor[id(tensor)] = (tensor, version, expression)

    def of(self, tensor: Tensor, version: int) -> Expression | None:
        """Find the expression of a tensor; None if it holds no numbers of spikes, or was overwritten since."""
        entry = self._by_tensor.get(id(tensor))
        return entry[2] if entry is not None and entry[1] == version else None
