"""What each operation does to connections: the table that the structural pass reads.

Two kinds of operation matter between a spike and the neuron that receives it.

* **Synaptic** operations (`SYNAPTIC`) multiply activations by weights. Their rule gives, for every element of the
  input, the number of synapses that it feeds. A bias is not a synapse; a weight removed by a pruning mask is not one
  either.
* **Passing** operations (`PASSING`) carry values on: pools, reshapes, sums, skips. Their rule computes an output whose
  derivative with respect to the input is the number of *connections*: 1 where the real derivative is 1/k² (an average
  pool), 1 where it is some learnt scale (batch norm), unchanged where the operation only moves or adds values.

An operation in neither table is refused when it stands between a spike and a synapse. A further one is declared in one
line:

>>> from picojoule import rules
>>> rules.declare_rule("hardtanh", rules.identity)  # each element passes on its own connections
>>> "hardtanh" in rules.PASSING
True
>>> del rules.PASSING["hardtanh"]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from picojoule.errors import PicojouleError

Psi = Literal["exact", "uniform", "paper"]
"""How ψ is counted: see `picojoule.trace`."""


@dataclass(frozen=True)
class Call:
    """One operation as the model called it, and the convention it is counted by."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    psi: Psi
    is_activation: Callable[[Any], bool]
    """Whether a value carries spikes or the network's input (as opposed to a constant, a number or an index)."""

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        if len(self.args) > position:
            return self.args[position]
        return self.kwargs.get(name, default)

    @property
    def in_place(self) -> bool:
        name = self.function.__name__
        return name.endswith("_") and not name.endswith("__")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


PassingRule = Callable[[Call], Any]
"""Gives the operation's output with connections as derivative, or `NotImplemented` where these arguments have no
rule."""

FanOut = Callable[[Call, Tensor, Tensor], Tensor]
"""(call, input, weights present as ones and zeros) → synapses fed by each element of the input, broadcastable to it."""


# ------------------------------------------------------------------------------------------------------------- synaptic


def _per_element(count: Callable[[Tensor], Tensor], shape: Sequence[int]) -> Tensor:
    """The derivative of Σ count(x): how many synapses each element of x feeds."""
    probe = torch.zeros(tuple(shape), dtype=torch.float64, requires_grad=True)
    (fan_out,) = torch.autograd.grad(count(probe).sum(), probe)
    return fan_out


def _require_batch(x: Tensor, present: Tensor) -> None:
    if x.dim() != present.dim():
        raise PicojouleError(
            f"takes an input of shape {tuple(x.shape)}, which has no batch axis: give an example with a batch axis"
        )


def convolution(call: Call, x: Tensor, present: Tensor) -> Tensor:
    """Conv1d–3d. Output channels only add up, so they are summed away before the (now tiny) convolution is probed."""
    stride, padding = call.argument(3, "stride", 1), call.argument(4, "padding", 0)
    dilation, groups = call.argument(5, "dilation", 1), call.argument(6, "groups", 1)
    _require_batch(x, present)
    kernel = present.view(groups, -1, *present.shape[1:]).sum(1)  # [groups, C_in / groups, *k]
    spatial = present.dim() - 2
    one_sample = (1, *x.shape[-spatial - 1 :])

    def count(probe: Tensor) -> Tensor:
        outputs: Tensor = call.run(probe, kernel, None, stride, padding, dilation, groups)
        return outputs

    if call.psi == "exact":
        return _per_element(count, one_sample).squeeze(0)
    # The paper's closed formula W'H'/(WH)·C'·k², the same everywhere on the map that enters the convolution.
    outputs = math.prod(count(torch.zeros(one_sample, dtype=torch.float64)).shape[-spatial:])
    per_channel = kernel.flatten(2).sum(2).flatten()
    uniform: Tensor = per_channel * outputs / math.prod(one_sample[-spatial:])
    return uniform.view(-1, *[1] * spatial)


def transposed_convolution(call: Call, x: Tensor, present: Tensor) -> Tensor:
    """ConvTranspose1d–3d: an input element reaches k² outputs a channel, fewer where the output is cropped."""
    settings = [
        call.argument(i, name, default)
        for i, name, default in (
            (3, "stride", 1),
            (4, "padding", 0),
            (5, "output_padding", 0),
            (6, "groups", 1),
            (7, "dilation", 1),
        )
    ]
    _require_batch(x, present)
    kernel = present.sum(1, keepdim=True)  # [C_in, 1, *k]
    spatial = present.dim() - 2
    if call.psi == "exact":
        return _per_element(
            lambda probe: call.run(probe, kernel, None, *settings), (1, *x.shape[-spatial - 1 :])
        ).squeeze(0)
    return kernel.flatten(1).sum(1).view(-1, *[1] * spatial)


def linear(call: Call, x: Tensor, present: Tensor) -> Tensor:
    """y = x Wᵀ: each input reaches every row of W."""
    return present.sum(0) if present.dim() == 2 else present


def matrix_product(call: Call, x: Tensor, present: Tensor) -> Tensor:
    """x W or W x with a constant W of one or two axes (a linear layer written by hand)."""
    if present.dim() > 2:
        raise PicojouleError(
            "a matrix product with a constant of more than two axes has no rule: write it as nn.Linear, one call for "
            "each matrix"
        )
    if call.argument(0, "input") is x:
        return present.sum(1) if present.dim() == 2 else present
    weights = present.sum(0) if present.dim() == 2 else present  # W x
    return weights.unsqueeze(-1) if x.dim() > 1 else weights


SYNAPTIC: dict[str, FanOut] = {
    "linear": linear,
    "matmul": matrix_product,
    "mm": matrix_product,
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
    "conv_transpose1d": transposed_convolution,
    "conv_transpose2d": transposed_convolution,
    "conv_transpose3d": transposed_convolution,
}

EITHER_SIDE = frozenset(["matmul", "mm"])
"""Synaptic operations whose weights may stand on the left."""

UNCOUNTED = frozenset(
    "addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul dot einsum embedding_bag gru gru_cell inner kron lstm "
    "lstm_cell multi_dot multi_head_attention_forward mv outer rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell "
    "scaled_dot_product_attention tensordot vdot _native_multi_head_attention _transformer_encoder_layer_fwd".split()
)
"""Products that cost operations but have no rule: refused wherever they touch an activation, even when nothing follows
them."""

KERNELS = frozenset(
    "_addmm_activation _cdist_forward _conv_depthwise2d _convolution _cudnn_rnn _embedding_bag "
    "_embedding_bag_forward_only _int_mm _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_fused_attention_overrideable _scaled_mm _slow_conv2d_forward _sparse_addmm _sparse_mm "
    "_thnn_fused_gru_cell _thnn_fused_lstm_cell _trilinear conv_depthwise3d conv_tbc convolution "
    "convolution_overrideable cudnn_convolution cudnn_convolution_transpose ger linalg_matmul linalg_vecdot "
    "miopen_convolution miopen_rnn mkldnn_convolution mkldnn_linear mkldnn_rnn_layer slow_conv3d_forward "
    "slow_conv_dilated2d slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d thnn_conv2d".split()
)
"""The same products as PyTorch's kernels name them: how one is noticed that was called past the tables (TorchScript,
`torch.ops`)."""


# -------------------------------------------------------------------------------------------------------------- passing


def identity(call: Call) -> Any:
    """Every element passes on its own connections, whatever the operation does to its value."""
    x = call.argument(0, "input")
    if not call.is_activation(x):
        return NotImplemented
    # A new tensor, like the operation's own: what is later added to the result must not reach its input.
    return x if call.in_place else x.clone()


def aliased(call: Call) -> Any:
    """Another name for the same memory, whose gradient the operation would cut: a detached spike still costs."""
    x: Tensor = call.args[0]
    return x if call.in_place else x.view_as(x)


def natural(call: Call) -> Any:
    """The operation moves, copies, drops or adds elements: its own derivative counts connections."""
    x = call.argument(0, "input")
    others = [*call.args[1:], *(value for key, value in call.kwargs.items() if key != "input")]
    if not call.is_activation(x) or any(map(call.is_activation, others)):
        return NotImplemented
    return call.run(*call.args, **call.kwargs)


def indexing(call: Call) -> Any:
    """x[...] by numbers, slices or constant index tensors; an index that depends on data has no rule."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    if any(map(call.is_activation, index)):
        return NotImplemented
    return call.run(*call.args, **call.kwargs)


def assignment(call: Call) -> Any:
    """x[...] = y by numbers, slices or constant index tensors."""
    index = call.args[1] if isinstance(call.args[1], tuple) else (call.args[1],)
    if any(map(call.is_activation, index)):
        return NotImplemented
    target, position, value = call.args
    _forget_constant(call, target)
    return call.run(target, position, value if call.is_activation(value) else 0)


def copied(call: Call) -> Any:
    """x.copy_(y)."""
    target, value = call.argument(0, "input"), call.argument(1, "src")
    _forget_constant(call, target)
    return target.copy_(value if call.is_activation(value) else torch.zeros_like(value))


def _forget_constant(call: Call, target: Tensor) -> None:
    """A constant that activations are written into keeps no number that would look like one of them."""
    if not call.is_activation(target):
        with torch.no_grad():
            target.zero_()


def joined(call: Call) -> Any:
    """cat and stack: constants among the parts bring no connections."""

    def neutral(t: Tensor) -> Tensor:
        return t if call.is_activation(t) else torch.zeros_like(t)

    args, kwargs = tree_map_only(Tensor, neutral, (call.args, call.kwargs))
    return call.run(*args, **kwargs)


def added(call: Call) -> Any:
    """a ± b: both sides' connections add up; a constant is a bias, which is not a synapse."""
    terms = [call.argument(0, "input"), call.argument(1, "other")]
    parts = [t if call.is_activation(t) else torch.zeros_like(t) for t in terms if isinstance(t, Tensor)]
    return sum(parts[1:], start=parts[0].clone())


def added_in_place(call: Call) -> Any:
    """a += b, a −= b."""
    target, other = call.argument(0, "input"), call.argument(1, "other")
    _forget_constant(call, target)
    return target.add_(other) if call.is_activation(other) else target


def scaled(call: Call) -> Any:
    """x·c, x/c with a constant c: each element passes on its own connections."""
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
                "which are synapses written by hand; write them with nn.Linear or a convolution"
            )
        return NotImplemented
    return x if call.in_place else x.clone()


def cast(call: Call) -> Any:
    """dtype and device changes: counts must not lose digits, so only the device is followed."""
    x = call.args[0]
    result = call.run(*call.args, **call.kwargs)
    return x.to(result.device)


def padded(call: Call) -> Any:
    """F.pad: zeros (or any constant) bring no connections; reflect, replicate and circular copy them."""
    x, pad, mode = call.argument(0, "input"), call.argument(1, "pad"), call.argument(2, "mode", "constant")
    return call.run(x, pad, mode)


def mean(call: Call) -> Any:
    """The mean passes connections like the sum."""
    kwargs = {k: v for k, v in call.kwargs.items() if k != "dtype"}
    return torch.sum(*call.args, **kwargs)


def upsampled(call: Call) -> Any:
    """Nearest-neighbour interpolation copies; every other mode mixes by weights and has no rule."""
    if call.argument(3, "mode", "nearest") not in ("nearest", "nearest-exact"):
        return NotImplemented
    return call.run(*call.args, **call.kwargs)


def average_pool(call: Call) -> Any:
    """Windows of any stride, padding and ceil mode: a spike reaches each window that covers it, once."""
    x: Tensor = call.argument(0, "input")
    size, stride = call.argument(1, "kernel_size"), call.argument(2, "stride")
    padding, ceil = call.argument(3, "padding", 0), call.argument(4, "ceil_mode", False)
    dims = int(call.function.__name__[-2])
    stride = size if stride is None or stride in ((), []) else stride
    if dims == 1:  # the one pool that cannot be told to divide by 1
        window, step, border = (1, _single(size)), (1, _single(stride)), (0, _single(padding))
        pooled = F.avg_pool2d(x.unsqueeze(-2), window, step, border, ceil, True, 1).squeeze(-2)
    else:
        pooled = call.run(x, size, stride, padding, ceil, True, 1)
    return _inverted(call, x, pooled, dims)


def sum_pool(call: Call) -> Any:
    """lp_pool of norm 1, which adds up the spikes of each window; other norms are no sums."""
    x, size = call.argument(0, "input"), call.argument(2, "kernel_size")
    stride, ceil = call.argument(3, "stride"), call.argument(4, "ceil_mode", False)
    if call.argument(1, "norm_type") != 1:
        return NotImplemented
    dims = int(call.function.__name__[-2])
    average = (F.avg_pool1d, F.avg_pool2d, F.avg_pool3d)[dims - 1]
    return average_pool(replace(call, function=average, args=(x, size, stride, 0, ceil), kwargs={}))


def _inverted(call: Call, x: Tensor, pooled: Tensor, dims: int) -> Tensor:
    """Under psi="paper" the ratio of the two map sizes is inverted: so the paper's printed totals come out."""
    if call.psi != "paper":
        return pooled
    ratio, rest = divmod(math.prod(x.shape[-dims:]), math.prod(pooled.shape[-dims:]))
    if rest:
        raise PicojouleError(
            f"pools a map of {tuple(x.shape[-dims:])} to {tuple(pooled.shape[-dims:])}, no whole ratio, for which "
            "psi='paper' is not defined: take 'uniform' or 'exact'"
        )
    return pooled * ratio


def _single(value: int | Sequence[int]) -> int:
    return value if isinstance(value, int) else value[0]


def adaptive_average_pool(call: Call) -> Any:
    """Windows floor(i·n/m) … ceil((i+1)·n/m), which overlap where m does not divide n."""
    x: Tensor = call.argument(0, "input")
    pooled: Tensor = call.run(*call.args, **call.kwargs)
    dims = int(call.function.__name__[-2])
    for axis in range(-dims, 0):
        n, m = x.shape[axis], pooled.shape[axis]
        widths = [-(-(i + 1) * n // m) - i * n // m for i in range(m)]
        pooled = pooled * torch.tensor(widths, dtype=x.dtype, device=x.device).view(-1, *[1] * (-axis - 1))
    return _inverted(call, x, pooled, dims)


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
        "flipud fold hsplit index_select mT movedim moveaxis narrow permute pixel_shuffle pixel_unshuffle ravel "
        "repeat repeat_interleave reshape reshape_as roll rot90 select split split_with_sizes squeeze squeeze_ sum "
        "swapaxes swapdims t tensor_split tile transpose unbind unflatten unfold unsqueeze unsqueeze_ view view_as "
        "vsplit".split(),
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

CREATING = frozenset(
    "empty_like full_like new_empty new_full new_ones new_zeros ones_like rand_like randint_like randn_like "
    "zeros_like".split()
)
"""Operations that take only the shape of their argument: the result is a constant."""

SHAPED_BY = frozenset("expand_as reshape_as type_as view_as".split())
"""Operations that take only the shape (or dtype) of their second argument."""

READING = frozenset(
    "__bool__ __complex__ __contains__ __float__ __index__ __int__ allclose equal is_nonzero item numpy tolist".split()
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


REMEDIES: dict[str, str] = {
    **dict.fromkeys(
        "max_pool1d max_pool2d max_pool3d adaptive_max_pool1d adaptive_max_pool2d adaptive_max_pool3d "
        "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices".split(),
        "use the pool as a module (nn.MaxPool2d and its kin), which picojoule counts behind the pool",
    ),
    **dict.fromkeys(
        "layer_norm group_norm instance_norm rms_norm".split(),
        "its scale depends on the data; use batch norm, move it behind the synapses, or declare it with "
        "picojoule.declare_rule({name!r}, picojoule.rules.identity) if each element keeps its connections",
    ),
}
DEFAULT_REMEDY = (
    "move it in front of a spiking layer, or, if each element keeps its connections, say so in one line: "
    "picojoule.declare_rule({name!r}, picojoule.rules.identity)"
)


def remedy(name: str) -> str:
    """What to do about an operation without a rule."""
    return REMEDIES.get(name, DEFAULT_REMEDY).format(name=name)


def declare_rule(name: str, rule: PassingRule) -> None:
    """Let an operation pass connections on: `identity`, `natural`, or a function of `Call` of your own.

    `name` is the operation's name in PyTorch (`"relu"` covers `torch.relu`, `F.relu` and `Tensor.relu`).
    """
    if name in SYNAPTIC or name in UNCOUNTED:
        raise PicojouleError(
            f"{name!r} multiplies activations by weights, so it cannot be declared to pass connections on"
        )
    if not callable(rule) or not any(hasattr(home, name) for home in (torch, F, Tensor, torch.special)):
        raise PicojouleError(
            f"{name!r} with {rule!r} is no rule: give the name of an operation of PyTorch and rules.identity, "
            "rules.natural or a function of rules.Call"
        )
    PASSING[name] = _checked_identity if rule is identity else rule


def _checked_identity(call: Call) -> Any:
    """`identity` for an operation of which only the user says that it keeps each element in its place."""
    args, kwargs = tree_map_only(Tensor, shadow, (call.args, call.kwargs))
    before, after = call.argument(0, "input"), call.run(*args, **kwargs)
    if not isinstance(after, Tensor) or after.shape != before.shape:
        raise PicojouleError("does not keep the shape of what it takes, so rules.identity is not its rule")
    return identity(call)


def shadow(tensor: Tensor) -> Tensor:
    """The tensor's shape without its numbers: enough to learn the shape of a result."""
    return torch.empty_like(tensor, device="meta", dtype=torch.float32)
