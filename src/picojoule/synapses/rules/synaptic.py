"""Synaptic rules, for products with weights: how many synapses each element of the input feeds."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor

from picojoule.errors import PicojouleError
from picojoule.synapses.rules.call import Call

FanOut = Callable[[Call, Tensor, Tensor], Tensor]
"""(call, input, weights present as ones and zeros) → synapses fed by each element of the input, broadcastable to it."""


def _per_element(count: Callable[[Tensor], Tensor], shape: Sequence[int]) -> Tensor:
    """Differentiate Σ count(x): the result is how many synapses each element of x feeds."""
    probe = torch.zeros(tuple(shape), dtype=torch.float64, requires_grad=True)
    (fan_out,) = torch.autograd.grad(count(probe).sum(), probe)
    return fan_out


def _require_batch(x: Tensor, present: Tensor) -> None:
    if x.dim() != present.dim():
        raise PicojouleError(
            f"takes an input of shape {tuple(x.shape)}, which has no batch axis: give an example with a batch axis"
        )


def convolution(call: Call, x: Tensor, present: Tensor) -> Tensor:
    """Count the synapses of conv1d–3d: k² per output channel, fewer at a border.

    Output channels only add up, so they are summed away before the (now tiny) convolution is probed.

    Args:
        call: The call.
        x: Its input [B, C_in, *map].
        present: Its weights as ones and zeros.

    Returns:
        Synapses fed by each element of the input, broadcastable to it.
    """
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
    """Count the synapses of conv_transpose1d–3d: k² outputs per channel, fewer where the output is cropped."""
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
    """Count the synapses of y = x Wᵀ: each input reaches every row of W."""
    return present.sum(0) if present.dim() == 2 else present


def matrix_product(call: Call, x: Tensor, present: Tensor) -> Tensor:
    """Count the synapses of x W or W x with a constant W of one or two axes (a linear layer written by hand)."""
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
    "addbmm addmm addmv addr baddbmm bilinear cdist chain_matmul corrcoef cosine_similarity cov dist embedding_bag gru "
    "gru_cell kron linalg_multi_dot linalg_vecdot lstm lstm_cell multi_dot multi_head_attention_forward "
    "pairwise_distance pdist rnn_relu rnn_relu_cell rnn_tanh rnn_tanh_cell _native_multi_head_attention "
    "_transformer_encoder_layer_fwd".split()
)
"""Products that cost operations but have no rule: refused wherever they touch an activation, even when nothing follows
them."""

_KERNELS = frozenset("_cdist_forward _embedding_bag _embedding_bag_forward_only _trilinear ger".split())
_PRODUCT = re.compile(
    r"(?:^|_)(?:\w*mm|\w*mv|\w*matmul|linear|\w*dot|conv(?:olution|\dd)?|attention|lstm|gru|rnn)(?:_|$)"
)


@cache
def is_product(kernel: str) -> bool:
    """Whether a kernel of PyTorch multiplies, as its name says (`_weight_int8pack_mm`).

    So a product is noticed that was called past the tables (TorchScript, `torch.ops`).
    """
    return kernel in _KERNELS or _PRODUCT.search(kernel) is not None
