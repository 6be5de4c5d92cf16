"""PyTorch's private attributes: the only module that reads them, one small function or name for each.

PyTorch may rename or drop what begins with an underscore in any release. Everything of that kind that picojoule needs
stands here under a public name that says what it means, and `tests/kernels/test_torch_private.py` names each of them,
so that a release that lacks one fails there and nowhere else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules import module as _module
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.nn.modules.conv import _ConvNd as ConvNd
from torch.nn.modules.conv import _ConvTransposeNd as ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd as DropoutNd
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves as _any_tree_leaves
from torch.utils._pytree import tree_map, tree_map_only

__all__ = [
    "MODULE_REGISTRIES",
    "PARAMETERS",
    "SET_GRAD_ENABLED",
    "SUBMODULES",
    "AdamOfLists",
    "BatchNorm",
    "ConvNd",
    "ConvTransposeNd",
    "DropoutNd",
    "SavedBatchNorm",
    "TorchDispatchMode",
    "compiled_original",
    "compiler_is_loaded",
    "cpu_has_bfloat16",
    "cpu_has_bfloat16_tiles",
    "extension_library",
    "forward_hooks",
    "forward_mode_depth",
    "forward_mode_gradients_are_on",
    "forward_pre_hooks",
    "global_forward_hooks",
    "has_compiled_forward",
    "has_forward_mode",
    "has_own_convolution",
    "in_backward",
    "is_traced",
    "is_transformed",
    "is_view",
    "modes_are_active",
    "operator_namespace",
    "padding_of",
    "pruned_tensor_name",
    "saved_batch_norm",
    "saved_tensors_are_packed",
    "sparse_parts",
    "storage_identity",
    "torch_function_disabled",
    "tree_leaves",
    "tree_map",
    "tree_map_only",
    "version",
]

# --- Tensors ---------------------------------------------------------------------------------------------------------


_LEAVES = frozenset([Tensor, nn.Parameter, int, float, bool, str, type(None), torch.dtype, torch.device])


def tree_leaves(values: Any) -> list[Any]:
    """List the leaves of a nest of values, as PyTorch does, but without its detours for plain tuples, lists and dicts.

    >>> tree_leaves(((1, [2.0, None]), {"a": (3,)}))
    [1, 2.0, None, 3]
    """
    found: list[Any] = []
    _gather(values, found)
    return found


def _gather(values: Any, found: list[Any]) -> None:
    kind = type(values)
    if kind in _LEAVES:
        found.append(values)
    elif kind is tuple or kind is list:
        for value in values:
            _gather(value, found)
    elif kind is dict:
        for value in values.values():
            _gather(value, found)
    else:
        found += _any_tree_leaves(values)


def version(tensor: Tensor) -> int:
    """Return how often a tensor's memory was written to in place; tensors of inference mode have no such count.

    >>> x = torch.zeros(2)
    >>> before = version(x)
    >>> version(x.add_(1)) - before
    1
    """
    return tensor._version


def is_view(tensor: Tensor) -> bool:
    """Return whether autograd takes a tensor for a view of another."""
    return tensor._is_view()


def storage_identity(tensor: Tensor) -> int:
    """Return a number that all tensors on one storage share, and no others of the same time."""
    identity: int = tensor.untyped_storage()._cdata
    return identity


def sparse_parts(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """Return the indices and the values of a sparse COO tensor, coalesced or not, in its own memory."""
    return tensor._indices(), tensor._values()


def is_transformed(tensor: Tensor) -> bool:
    """Return whether a transform of `torch.func` (grad, vmap, jvp, …) is at work on a tensor."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped or torch._C._functorch.is_legacy_batchedtensor(tensor)  # of autograd's own vmap


def has_forward_mode(tensor: Tensor) -> bool:
    """Return whether a forward-mode derivative may be asked of an operation on a tensor.

    >>> has_forward_mode(torch.zeros(2))
    False
    >>> with torch.autograd.forward_ad.dual_level():
    ...     has_forward_mode(torch.zeros(2))
    True
    """
    return is_transformed(tensor) or torch.autograd.forward_ad._current_level >= 0


def forward_mode_depth() -> int:
    """Count the forward-mode transforms of `torch.func` that are at work, one inside another.

    >>> forward_mode_depth()
    0
    """
    stack = torch._C._functorch.get_interpreter_stack() or []
    return sum(level.key() == torch._C._functorch.TransformType.Jvp for level in stack)


# --- Autograd --------------------------------------------------------------------------------------------------------


class SavedBatchNorm(NamedTuple):
    """What a batch norm in training keeps for its backward pass, and its β."""

    x: Tensor
    weight: Tensor
    bias: Tensor
    mean: Tensor
    inverse_deviation: Tensor
    eps: float


def saved_batch_norm(u: Tensor) -> SavedBatchNorm | None:
    """Return what the batch norm that made a tensor has saved; None if none made it, or it was not in training.

    None too where γ or β is absent or frozen, where a backward pass has freed what was saved, and where saved tensors
    are packed just now, for instance by activation checkpointing: a look would unpack them.
    """
    node = u.grad_fn
    if node is None or node.name() != "NativeBatchNormBackward0":
        return None
    if saved_tensors_are_packed():
        return None
    saved: Any = node  # whose attributes depend on the operation
    bias = getattr(node.next_functions[2][0], "variable", None)
    if bias is None or not saved._saved_training:
        return None
    try:
        x, weight = saved._saved_input, saved._saved_weight
    except RuntimeError:  # freed
        return None
    if weight is None:
        return None
    return SavedBatchNorm(x, weight, bias, saved._saved_result1, saved._saved_result2, saved._saved_eps)


def saved_tensors_are_packed() -> bool:
    """Return whether what autograd saves is packed just now, for instance by activation checkpointing."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None)
    return top is None or top(True) is not None


def forward_mode_gradients_are_on() -> bool:
    """Return whether forward-mode gradients are on; inside an autograd function's `forward` they are not."""
    return torch._C._is_fwd_grad_enabled()


def in_backward() -> bool:
    """Return whether a backward pass is under way in this thread, as while a checkpoint computes again."""
    return torch._C._current_graph_task_id() != -1


def modes_are_active() -> bool:
    """Return whether operations are intercepted by a `TorchFunctionMode` or a `TorchDispatchMode`."""
    return torch._C._len_torch_function_stack() > 0 or torch._C._len_torch_dispatch_stack() > 0


SET_GRAD_ENABLED = "_set_grad_enabled"
"""The name under which `torch.no_grad` and its kin arrive at a `TorchFunctionMode`."""

torch_function_disabled = torch._C.DisableTorchFunction
"""A context in which operations pass by every `TorchFunctionMode` and `__torch_function__`."""


# --- Modules ---------------------------------------------------------------------------------------------------------

SUBMODULES = "_modules"
"""The attribute in which a module holds its submodules."""

PARAMETERS = "_parameters"
"""The attribute in which a module holds its parameters."""

MODULE_REGISTRIES = frozenset({PARAMETERS, "_buffers", SUBMODULES})
"""The attributes in which a module holds what was registered with it."""


def forward_hooks(module: nn.Module) -> dict[int, Any]:
    """Return the dictionary, itself and not a copy, that holds a module's forward hooks."""
    return module._forward_hooks


def forward_pre_hooks(module: nn.Module) -> dict[int, Any]:
    """Return the dictionary, itself and not a copy, that holds a module's forward pre-hooks."""
    return module._forward_pre_hooks


def global_forward_hooks() -> Iterable[Any]:
    """Return the forward hooks and pre-hooks that are registered for all modules of the process."""
    return (*_module._global_forward_hooks.values(), *_module._global_forward_pre_hooks.values())


def pruned_tensor_name(hook: Any) -> str:
    """Return the name of the tensor that a hook of `torch.nn.utils.prune` masks."""
    name: str = hook._tensor_name
    return name


def padding_of(conv: ConvNd) -> tuple[int, ...]:
    """Return a convolution's padding as `torch.nn.functional.pad` takes it: the last axis first, two numbers each."""
    return tuple(conv._reversed_padding_repeated_twice)


def has_own_convolution(kind: type[ConvNd], base: type[ConvNd]) -> bool:
    """Return whether a class replaces the method of PyTorch's class in which the forward pass convolves."""
    replaced: bool = kind._conv_forward is not base._conv_forward
    return replaced


# --- Compilers and hardware ------------------------------------------------------------------------------------------


def compiled_original(module: nn.Module) -> nn.Module | None:
    """Return the module that was given to `torch.compile` if this is what came out of it, else None."""
    inner = getattr(module, "_orig_mod", None)
    return inner if isinstance(inner, nn.Module) else None


def has_compiled_forward(module: nn.Module) -> bool:
    """Return whether a module is compiled, by `torch.compile(module)` or `module.compile()`."""
    return hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None


def compiler_is_loaded() -> bool:
    """Return whether anything in this process has imported PyTorch's compiler."""
    return "torch._dynamo" in sys.modules


def is_traced() -> bool:
    """Return whether `torch.jit.trace`, or the exporter to ONNX that is built on it, follows what is called."""
    return torch._C._get_tracing_state() is not None


def operator_namespace(func: object) -> str | None:
    """Return the namespace of an operator, `me` for `torch.ops.me.op`; None for what is no registered operator.

    >>> operator_namespace(torch.ops.aten.relu), operator_namespace(torch.relu)
    ('aten', None)
    """
    if isinstance(func, torch._ops.OpOverload):
        return func.namespace
    if isinstance(func, torch._ops.OpOverloadPacket):
        return func._qualified_op_name.partition("::")[0]
    return None


def extension_library() -> str:
    """Return the path of PyTorch's compiled library."""
    path: str = torch._C.__file__
    return path


def cpu_has_bfloat16() -> bool:
    """Return whether the processor multiplies in bfloat16 (AVX-512 BF16 or AMX)."""
    return bool(torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported())


def cpu_has_bfloat16_tiles() -> bool:
    """Return whether the processor multiplies whole tiles of bfloat16 (AMX), many times as fast as vectors."""
    return bool(torch.cpu._is_amx_tile_supported())


# --- Optimisers ------------------------------------------------------------------------------------------------------


class AdamOfLists(torch.optim.Adam):
    """PyTorch's Adam, where a subclass chooses the tensors that a step updates."""

    def fill(self, group: dict[str, Any], whole: tuple[list[Tensor], ...], lists: tuple[list[Tensor], ...]) -> None:
        """Fill the lists that a step updates: here with all that there is.

        Args:
            group: The group of parameters.
            whole: Parameters, gradients, state and, as the last list, counters of steps.
            lists: The empty lists that the step takes, in the same order.
        """
        for column, found in zip(lists, whole, strict=True):
            column.extend(found)

    def _init_group(self, group: dict[str, Any], *lists: list[Tensor]) -> bool:
        whole: tuple[list[Tensor], ...] = tuple([] for _ in lists)
        has_complex: bool = super()._init_group(group, *whole)  # type: ignore[no-untyped-call]
        self.fill(group, whole, lists)
        return has_complex
