"""What may happen to spikes at a network's end at no cost: votes, thresholds, softmaxes, statistics.

None of these operations has weights. Each takes one activation and numbers; with a tensor of constants beside it, it
could be a layer of synapses (a comparison with prototypes), and is not free. An operation that is neither here nor in
the other tables is refused between spikes and the model's output, as it is between spikes and a synapse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_leaves

from picojoule.synapses.rules.call import Call
from picojoule.synapses.rules.passing import SCALING

ELEMENTWISE = frozenset(
    "abs absolute and bitwise_and bitwise_not bitwise_or bool ceil celu clamp clamp_max clamp_min clip elu eq exp exp2 "
    "expm1 fix float_power floor floor_divide floordiv ge gelu greater greater_equal gt hardsigmoid hardtanh heaviside "
    "int invert isfinite isinf isnan le leaky_relu less less_equal log log10 log1p log2 logical_and logical_not "
    "logical_or logical_xor logit logsigmoid long lt mish nan_to_num ne not_equal or pow rdiv reciprocal relu relu6 "
    "remainder round rpow rsqrt selu sgn short sigmoid sign silu softplus softsign special_expit sqrt square tanh "
    "threshold trunc uint8 xor".split()
)
"""Each element becomes a function of itself."""

ORDERING = frozenset(
    "amax amin aminmax all any argmax argmin argsort bincount count_nonzero cummax cummin gumbel_softmax histc "
    "kthvalue log_softmax max maximum median min minimum mode msort multinomial nanmedian nonzero one_hot quantile "
    "softmax softmin sort topk unique".split()
)
"""Elements are compared with each other: a vote."""

ADDING = frozenset("cumsum logcumsumexp mean nanmean nansum sum".split())
"""Elements are added up, which makes synapses of constants that they were multiplied by."""

STATISTICS = frozenset("linalg_vector_norm logsumexp norm normalize std std_mean var var_mean".split())
"""The same inside of a statistic."""

_BETWEEN_ACTIVATIONS = frozenset(
    "and bitwise_and bitwise_or logical_and logical_or logical_xor maximum minimum or xor".split()
)
_FREE = ELEMENTWISE | ORDERING | ADDING | STATISTICS


def bare(name: str) -> str:
    """The name of an operation without the marks of an operator or of writing in place."""
    return name.strip("_")


def is_constant_tensor(call: Call, value: Any) -> bool:
    """Whether a value is more than one number and no activation."""
    return isinstance(value, Tensor) and value.numel() > 1 and not call.is_activation(value)


def is_free(name: str, call: Call, *, has_rule: bool) -> bool:
    """Whether an operation of spikes, which no passing rule has taken, costs nothing at a network's end.

    Args:
        name: the operation's name in PyTorch.
        call: its arguments.
        has_rule: whether it has a passing rule, which did not fit these arguments.

    Returns:
        Whether it is known to be free.
    """
    tensors = [leaf for leaf in tree_leaves((call.args, call.kwargs)) if isinstance(leaf, Tensor)]
    activations = [tensor for tensor in tensors if call.is_activation(tensor)]
    if bare(name) in _FREE:
        alone = len(activations) == 1 or bare(name) in _BETWEEN_ACTIVATIONS
        return alone and not any(is_constant_tensor(call, tensor) for tensor in tensors)
    if name in SCALING:
        return len(activations) == 1 or "div" in name
    if name == "__getitem__":  # chosen by data, but only among activations: a table read by spikes is weights
        return call.is_activation(call.args[0])
    return has_rule and _MOVES_OR_ADDS.get(name, _first_alone)(call)


def _first_alone(call: Call) -> bool:
    others: Sequence[Any] = [*call.args[1:], *(value for key, value in call.kwargs.items() if key != "input")]
    return call.is_activation(call.argument(0, "input")) and not any(map(call.is_activation, others))


_MOVES_OR_ADDS: dict[str, Callable[[Call], bool]] = {
    **dict.fromkeys("cat concat concatenate dstack hstack stack vstack".split(), lambda call: True),
    **dict.fromkeys("add subtract sub rsub __rsub__ add_ sub_ subtract_ copy_".split(), lambda call: True),
    "__setitem__": lambda call: not call.is_activation(call.args[1]),
    "interpolate": lambda call: call.argument(3, "mode", "nearest") in ("nearest", "nearest-exact"),
    **dict.fromkeys("lp_pool1d lp_pool2d lp_pool3d".split(), lambda call: bool(call.argument(1, "norm_type") == 1)),
}
"""Operations with a rule for spikes, which do the same to what is no longer spikes: whether they do, with these
arguments."""
