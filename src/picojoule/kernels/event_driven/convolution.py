"""A convolution by its active inputs, for autograd: output and weight gradient by events, input gradient dense.

For the backward pass it keeps the weight, a bit for each input, and the values of the active ones where these are not
all the same; never the inputs themselves. Where second derivatives are asked for, or many gradients at once (vmap), the
inputs are made again from the bits and PyTorch's own backward pass does the work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.graph import saved_tensors_hooks

from picojoule.kernels.event_driven.active_inputs import ActiveInputs, active_inputs, dense_inputs
from picojoule.kernels.event_driven.forward import forward
from picojoule.kernels.event_driven.geometry import Geometry
from picojoule.kernels.event_driven.versions import Versions
from picojoule.kernels.event_driven.weight_gradient import weight_gradient
from picojoule.kernels.torch_private import is_transformed

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def event_convolution(x: Tensor, weight: Tensor, bias: Tensor | None, shape: Geometry) -> tuple[Tensor, int]:
    """Compute `conv2d(x, weight, bias)` by the active inputs.

    Args:
        x: [images, channels, height, width], float32 or bfloat16; the weights are rounded to the same.
        weight: [outputs, inputs of a group, kernel height, kernel width], float32 or bfloat16.
        bias: One number for each output channel, if there are any.
        shape: The shape of all these, with stride, padding and dilation.

    Returns:
        The output in channels-last memory, and how many inputs were active.

    >>> x, weight = torch.tensor([[1.0, 0.0, 1.0]]).view(1, 3, 1, 1), torch.arange(6.0).view(2, 3, 1, 1)
    >>> y, active = event_convolution(x, weight, None, Geometry(1, 1, 3, 2, (1, 1), (1, 1)))
    >>> y.flatten(), active
    (tensor([2., 8.]), 2)
    """
    inputs = active_inputs(_by_pixel(x), shape)
    saved = _SavedForBackward(x, inputs, shape)
    with saved_tensors_hooks(saved.pack, _unpack):
        y: Tensor = _EventConvolution.apply(x, weight, bias, inputs, saved.request, shape)  # type: ignore[no-untyped-call]
    return y, inputs.total


class _InputsWanted:
    """Whether a backward pass needs the inputs as they were."""

    dense = False


class _SavedInputs:
    """Active inputs in the place of the inputs that autograd would keep."""

    def __init__(self, x: Tensor, inputs: ActiveInputs, shape: Geometry, request: _InputsWanted) -> None:
        self.inputs, self.shape, self.kind, self.request = inputs, shape, x.dtype, request
        self.versions = Versions(x)

    def tensor(self) -> Tensor:
        """Return the inputs; if nobody needs them, an empty tensor."""
        return dense_inputs(self.inputs, self.shape, self.kind) if self.request.dense else _empty(self.kind)


class _SavedTensor:
    """A tensor that is kept as it is."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self.versions = tensor, Versions(tensor)

    def tensor(self) -> Tensor:
        """Return the tensor that was given."""
        return self._tensor


class _SavedForBackward:
    """What is kept of one call.

    Autograd remembers where the inputs come from, whatever is kept of them, so that what is made again of the bits can
    be differentiated.
    """

    def __init__(self, x: Tensor, inputs: ActiveInputs, shape: Geometry) -> None:
        self.request = _InputsWanted()
        self._address = x.data_ptr()
        self._needs_weight = x.requires_grad
        self._kept: _SavedInputs | None = _SavedInputs(x, inputs, shape, self.request)

    def pack(self, tensor: Tensor) -> Tensor | _SavedInputs | _SavedTensor:
        if self._kept is None or tensor.data_ptr() != self._address:
            # Only the gradient of the inputs reads the numbers of the weight.
            return _SavedTensor(tensor) if self._needs_weight else tensor
        kept, self._kept = self._kept, None  # once: the inputs come first, whatever shares their memory
        return kept


def _unpack(kept: Tensor | _SavedInputs | _SavedTensor) -> Tensor:
    """Return what was kept, unless it was changed since."""
    if isinstance(kept, Tensor):
        return kept
    kept.versions.check()
    return kept.tensor()


def _empty(kind: torch.dtype) -> Tensor:
    return torch.empty(0, dtype=kind)


class _EventConvolution(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        inputs: ActiveInputs,
        request: _InputsWanted,
        shape: Geometry,
    ) -> Tensor:
        ctx.shape, ctx.scale, ctx.total, ctx.request = shape, inputs.scale, inputs.total, request
        ctx.save_for_backward(x, weight, inputs.bits, inputs.counts, inputs.values)
        ctx.bias_kind = None if bias is None else bias.dtype
        return forward(inputs, weight.detach().float(), bias, shape, x.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        ctx.request.dense = torch.is_grad_enabled() or is_transformed(grad)
        x, weight, bits, counts, values = ctx.saved_tensors
        if ctx.request.dense:
            of_x, of_weight, of_bias = _dense_gradients(ctx, grad, x, weight)
        else:
            inputs = ActiveInputs(bits, counts, ctx.scale, values, ctx.total)
            of_x, of_weight, of_bias = _gradients(ctx, grad, inputs, weight)
        return of_x, of_weight, of_bias, None, None, None


def _gradients(ctx: Any, grad: Tensor, inputs: ActiveInputs, weight: Tensor) -> Gradients:
    """Compute the weight gradient by events, the others dense."""
    shape: Geometry = ctx.shape
    grad = grad.contiguous(memory_format=torch.channels_last)
    of_x = of_weight = of_bias = None
    if ctx.needs_input_grad[1]:
        of_weight = weight_gradient(inputs, _by_pixel(grad), weight, shape).to(weight.dtype)
    if ctx.needs_input_grad[2]:
        of_bias = grad.sum((0, 2, 3), dtype=torch.float32).to(ctx.bias_kind)
    if ctx.needs_input_grad[0]:
        of_x = input_gradient(grad, weight, shape)
    return of_x, of_weight, of_bias


def _dense_gradients(ctx: Any, grad: Tensor, x: Tensor, weight: Tensor) -> Gradients:
    """Compute all gradients by operators that can be differentiated themselves."""
    shape: Geometry = ctx.shape
    rounded = weight.to(x.dtype)
    # The bias is summed apart: asked for with the others, it would have to be of their dtype.
    wanted = (*ctx.needs_input_grad[:2], False)
    of_x, of_weight, _ = _convolution_backward(grad, x, rounded, shape, wanted)
    of_bias = grad.sum((0, 2, 3)).to(ctx.bias_kind) if ctx.needs_input_grad[2] else None
    return of_x, None if of_weight is None else of_weight.to(weight.dtype), of_bias


def _by_pixel(x: Tensor) -> Tensor:
    """Return [images, height, width, channels], one after the other in memory."""
    return x.detach().permute(0, 2, 3, 1).contiguous()


def input_gradient(grad: Tensor, weight: Tensor, shape: Geometry) -> Tensor:
    """Compute the gradient of the inputs by PyTorch's own kernel.

    Args:
        grad: The gradient of the output, in channels-last memory.
        weight: The weight.
        shape: The shape of the layer.

    Returns:
        The gradient, in the precision of `grad`.
    """
    if shape.is_linear:  # a product of matrices, as in `nn.Linear`, where a convolution would copy the weight
        return (grad.flatten(1) @ weight.detach().to(grad.dtype).flatten(1))[:, :, None, None]
    size = (shape.images, shape.groups * shape.inputs, *shape.map)
    # The kernel asks for the inputs, but reads only how they lie in memory.
    like = torch.empty(size, dtype=grad.dtype, memory_format=torch.channels_last)
    rounded = weight.detach().to(grad.dtype, memory_format=torch.channels_last)
    of_x, _, _ = _convolution_backward(grad, like, rounded, shape, (True, False, False))
    assert of_x is not None
    return of_x


def _convolution_backward(
    grad: Tensor, x: Tensor, weight: Tensor, shape: Geometry, wanted: tuple[bool, ...]
) -> Gradients:
    arguments = (shape.stride, shape.padding, shape.dilation, False, (0, 0), shape.groups, wanted)
    gradients: Gradients = torch.ops.aten.convolution_backward(grad, x, weight, None, *arguments)
    return gradients
