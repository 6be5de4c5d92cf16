"""Passing rules, for operations that carry values on: outputs whose derivative is the number of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.kernels.torch_private import tree_map_only
from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.pools import adaptive_average_pool, average_pool, sum_pool

PassingRule = Callable[[Call], Any]
"""Gives the operation's output with connections as derivative, or `NotImplemented` where these arguments have no
rule."""


def identity(call: Call) -> Any:
    """Pass on each element's own connections, whatever the operation does to its value: ∂out_i/∂in_i = 1.

    Args:
        call: The call of an operation that keeps the shape of its first argument.

    Returns:
        The first argument; `NotImplemented` where that is no activation.

    >>> x = torch.ones(2)
    >>> identity(Call(torch.sigmoid, (x,), {}, "exact", torch.is_tensor))
    tensor([1., 1.])
    """
    x = call.argument(0, "input")
    if not call.is_activation(x):
        return NotImplemented
    # A new tensor, like the operation's own: what is later added to the result must not reach its input.
    return x if call.in_place else x.clone()


def aliased(call: Call) -> Any:
    """Give the same memory another name, where the operation would cut the gradient: a detached spike still costs."""
    x: Tensor = call.args[0]
    return x if call.in_place else x.view_as(x)


def natural(call: Call) -> Any:
    """Run the operation itself, which moves, copies, drops or adds elements: its own derivative counts connections.

    Args:
        call: The call of an operation with one activation, its first argument.

    Returns:
        The operation's own output; `NotImplemented` where other arguments are activations too.

    >>> natural(Call(torch.flip, (torch.tensor([1.0, 2.0]), (0,)), {}, "exact", torch.is_tensor))
    tensor([2., 1.])
    """
    x = call.argument(0, "input")
    others = [*call.args[1:], *(value for key, value in call.kwargs.items() if key != "input")]
    if not call.is_activation(x) or any(map(call.is_activation, others)):
        return NotImplemented
    return call.run(*call.args, **call.kwargs)


def indexing(call: Call) -> Any:
    """Index x[...] by numbers, slices or constant index tensors; an index that depends on data has no rule."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    if any(map(call.is_activation, index)):
        return NotImplemented
    return call.run(*call.args, **call.kwargs)


def assignment(call: Call) -> Any:
    """Assign x[...] = y by numbers, slices or constant index tensors."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    if any(map(call.is_activation, index)):
        return NotImplemented
    target, position, value = call.args
    _forget_constant(call, target)
    return call.run(target, position, value if call.is_activation(value) else 0)


def copied(call: Call) -> Any:
    """Copy by x.copy_(y)."""
    target, value = call.argument(0, "input"), call.argument(1, "src")
    _forget_constant(call, target)
    return target.copy_(value if call.is_activation(value) else torch.zeros_like(value))


def _forget_constant(call: Call, target: Tensor) -> None:
    """Clear a constant that activations are written into, whose numbers would look like some of them."""
    if not call.is_activation(target):
        with torch.no_grad():
            target.zero_()


def joined(call: Call) -> Any:
    """Join by cat or stack: constants among the parts bring no connections."""

    def neutral(t: Tensor) -> Tensor:
        return t if call.is_activation(t) else torch.zeros_like(t)

    args, kwargs = tree_map_only(Tensor, neutral, (call.args, call.kwargs))
    return call.run(*args, **kwargs)


def added(call: Call) -> Any:
    """Add a ± b: both sides' connections add up; a constant is a bias, which is not a synapse."""
    terms = [call.argument(0, "input"), call.argument(1, "other")]
    parts = [t if call.is_activation(t) else torch.zeros_like(t) for t in terms if isinstance(t, Tensor)]
    return sum(parts[1:], start=parts[0].clone())


def added_in_place(call: Call) -> Any:
    """Add in place, a += b or a −= b."""
    target, other = call.argument(0, "input"), call.argument(1, "other")
    _forget_constant(call, target)
    return target.add_(other) if call.is_activation(other) else target


def scaled(call: Call) -> Any:
    """Scale x·c or x/c by a constant: each element passes on its connections, but for those that a mask takes away."""
    first, second = call.argument(0, "input"), call.argument(1, "other")
    if call.is_activation(first) and call.is_activation(second):
        return NotImplemented
    x, constant = (first, second) if call.is_activation(first) else (second, first)
    if x is second and (call.in_place or "div" in call.function.__name__):
        return NotImplemented  # c / x is no scaling, and c *= x writes spikes into a constant
    if isinstance(constant, Tensor) and torch.broadcast_shapes(x.shape, constant.shape) != x.shape:
        if x.requires_grad:
            raise PicojouleError(
                f"multiplies each spike by several constants (shape {tuple(x.shape)} times {tuple(constant.shape)}), "
                "which are synapses written by hand: write them with nn.Linear or a convolution"
            )
        return NotImplemented
    mask = None if "div" in call.function.__name__ else call.mask_of(constant)
    if mask is None:
        return x if call.in_place else x.clone()
    if not bool(mask.any()) and not (call.in_place and not isinstance(constant, Tensor)):
        return NotImplemented  # a mask that leaves nothing, or a value that is zero only now
    mask = mask.to(x.device, x.dtype)
    return x.mul_(mask) if call.in_place else x * mask


def cast(call: Call) -> Any:
    """Change dtype or device: counts must not lose digits, so only the device is followed."""
    x = call.args[0]
    result = call.run(*call.args, **call.kwargs)
    return x.to(result.device)


def padded(call: Call) -> Any:
    """Pad: zeros (or any constant) bring no connections; reflect, replicate and circular copy them."""
    x, pad, mode = call.argument(0, "input"), call.argument(1, "pad"), call.argument(2, "mode", "constant")
    return call.run(x, pad, mode)


def mean(call: Call) -> Any:
    """Sum in place of the mean, which passes the same connections."""
    kwargs = {k: v for k, v in call.kwargs.items() if k != "dtype"}
    return torch.sum(*call.args, **kwargs)


def upsampled(call: Call) -> Any:
    """Upsample by nearest neighbours, which copies; every other mode mixes by weights and has no rule."""
    if call.argument(3, "mode", "nearest") not in ("nearest", "nearest-exact"):
        return NotImplemented
    return call.run(*call.args, **call.kwargs)


SCALING = tuple("mul multiply div divide true_divide mul_ multiply_ div_ divide_ true_divide_".split())
PASSING: dict[str, PassingRule] = {
    **dict.fromkeys(
        "alpha_dropout batch_norm dropout dropout1d dropout2d dropout3d dropout_ feature_alpha_dropout "
        "feature_dropout neg neg_".split(),
        identity,
    ),
    **dict.fromkeys("data detach detach_ positive requires_grad_".split(), aliased),
    **dict.fromkeys(
        "T adjoint broadcast_to channel_shuffle chunk clone contiguous diagonal expand expand_as flatten flip fliplr "
        "flipud fold gather hsplit index_select mT movedim moveaxis narrow permute pixel_shuffle pixel_unshuffle ravel "
        "repeat repeat_interleave reshape reshape_as roll rot90 select split split_with_sizes squeeze squeeze_ sum "
        "swapaxes swapdims t take_along_dim tensor_split tile transpose unbind unflatten unfold unsqueeze unsqueeze_ "
        "view view_as vsplit".split(),
        natural,
    ),
    **dict.fromkeys("cat concat concatenate dstack hstack stack vstack".split(), joined),
    **dict.fromkeys("add subtract sub rsub __rsub__".split(), added),
    **dict.fromkeys("add_ sub_ subtract_".split(), added_in_place),
    **dict.fromkeys(SCALING, scaled),
    **dict.fromkeys("bfloat16 cpu cuda double float half to type type_as".split(), cast),
    **dict.fromkeys("avg_pool1d avg_pool2d avg_pool3d".split(), average_pool),
    **dict.fromkeys("lp_pool1d lp_pool2d lp_pool3d".split(), sum_pool),
    **dict.fromkeys("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d".split(), adaptive_average_pool),
    "__getitem__": indexing,
    "__setitem__": assignment,
    "copy_": copied,
    "interpolate": upsampled,
    "mean": mean,
    "pad": padded,
}

RANDOM = frozenset(
    "alpha_dropout bernoulli bernoulli_ cauchy_ dropout dropout1d dropout2d dropout3d dropout_ exponential_ "
    "feature_alpha_dropout feature_dropout geometric_ log_normal_ multinomial normal normal_ poisson rand rand_like "
    "randint randint_like randn randn_like random_ randperm uniform_".split()
)
"""Operations whose result is drawn."""

CREATING = frozenset(
    "empty_like full_like new_empty new_full new_ones new_zeros ones_like rand_like randint_like randn_like "
    "zeros_like".split()
)
"""Operations that take only the shape of their argument: the result is a constant."""

SHAPED_BY = frozenset("expand_as reshape_as type_as view_as".split())
"""Operations that take only the shape (or dtype) of their second argument."""

READING = frozenset(
    "__array__ __bool__ __complex__ __contains__ __dlpack__ __float__ __index__ __int__ allclose data_ptr equal "
    "is_nonzero item numpy storage tolist untyped_storage".split()
)
"""Operations that hand a value to Python, where it can decide what runs next."""

_COUNT_KEEPING = frozenset(
    name
    for name, rule in PASSING.items()
    if rule in (aliased, assignment, cast, copied, indexing, joined, natural, padded, upsampled)
)


def keeps_counts(name: str, call: Call) -> bool:
    """Whether whole numbers of spikes stay whole numbers of spikes, so that a max pool may still relay them."""
    if name in ("add", "add_"):
        operands = call.argument(0, "input"), call.argument(1, "other")
        return all(map(call.is_activation, operands)) and call.kwargs.get("alpha", 1) == 1
    return name in _COUNT_KEEPING
