"""What picojoule reads of PyTorch's private attributes is there, and is read in one module only."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

import picojoule
from picojoule.kernels import torch_private

SOURCES = Path(picojoule.__file__).parent


def _graph() -> Any:
    """The node of a batch norm in training, whose backward pass has not been."""
    return nn.BatchNorm1d(3)(torch.randn(5, 3, requires_grad=True) * 1).grad_fn


def _pruned() -> Any:
    layer = nn.Linear(2, 2)
    prune.identity(layer, "weight")
    (hook,) = layer._forward_pre_hooks.values()
    return hook


OWNERS: dict[str, tuple[Callable[[], Any], str]] = {
    "torch._C": (lambda: torch, "_C"),
    "torch._C.__file__": (lambda: torch._C, "__file__"),
    "torch._C.DisableTorchFunction": (lambda: torch._C, "DisableTorchFunction"),
    "torch._C._is_fwd_grad_enabled": (lambda: torch._C, "_is_fwd_grad_enabled"),
    "torch._C._get_tracing_state": (lambda: torch._C, "_get_tracing_state"),
    "torch._C._current_graph_task_id": (lambda: torch._C, "_current_graph_task_id"),
    "torch._C._len_torch_function_stack": (lambda: torch._C, "_len_torch_function_stack"),
    "torch._C._len_torch_dispatch_stack": (lambda: torch._C, "_len_torch_dispatch_stack"),
    "Conv2d._conv_forward": (lambda: nn.Conv2d, "_conv_forward"),
    "torch._C._autograd": (lambda: torch._C, "_autograd"),
    "torch._C._autograd._top_saved_tensors_default_hooks": (
        lambda: torch._C._autograd,
        "_top_saved_tensors_default_hooks",
    ),
    "torch._C._functorch": (lambda: torch._C, "_functorch"),
    "torch._C._functorch.is_functorch_wrapped_tensor": (lambda: torch._C._functorch, "is_functorch_wrapped_tensor"),
    "torch._C._functorch.is_legacy_batchedtensor": (lambda: torch._C._functorch, "is_legacy_batchedtensor"),
    "torch._C._functorch.get_interpreter_stack": (lambda: torch._C._functorch, "get_interpreter_stack"),
    "torch._C._functorch.TransformType": (lambda: torch._C._functorch, "TransformType"),
    "torch.autograd.forward_ad._current_level": (lambda: torch.autograd.forward_ad, "_current_level"),
    "torch._ops": (lambda: torch, "_ops"),
    "torch._ops.OpOverload": (lambda: torch._ops, "OpOverload"),
    "OpOverloadPacket._qualified_op_name": (lambda: torch.ops.aten.relu, "_qualified_op_name"),
    "Adam._init_group": (lambda: torch.optim.Adam, "_init_group"),
    "Tensor._version": (lambda: torch.zeros(1), "_version"),
    "Tensor._is_view": (lambda: torch.zeros(1), "_is_view"),
    "Tensor._indices": (lambda: torch.zeros(1).to_sparse(), "_indices"),
    "Tensor._values": (lambda: torch.zeros(1).to_sparse(), "_values"),
    "UntypedStorage._cdata": (lambda: torch.zeros(1).untyped_storage(), "_cdata"),
    "NativeBatchNormBackward0._saved_training": (_graph, "_saved_training"),
    "NativeBatchNormBackward0._saved_input": (_graph, "_saved_input"),
    "NativeBatchNormBackward0._saved_weight": (_graph, "_saved_weight"),
    "NativeBatchNormBackward0._saved_result1": (_graph, "_saved_result1"),
    "NativeBatchNormBackward0._saved_result2": (_graph, "_saved_result2"),
    "NativeBatchNormBackward0._saved_eps": (_graph, "_saved_eps"),
    "AccumulateGrad.variable": (lambda: _graph().next_functions[2][0], "variable"),
    "Module._parameters": (nn.Module, "_parameters"),
    "Module._buffers": (nn.Module, "_buffers"),
    "Module._modules": (nn.Module, "_modules"),
    "Module._forward_hooks": (nn.Module, "_forward_hooks"),
    "Module._forward_pre_hooks": (nn.Module, "_forward_pre_hooks"),
    "Module._compiled_call_impl": (nn.Module, "_compiled_call_impl"),
    "torch.nn.modules.module._global_forward_hooks": (lambda: nn.modules.module, "_global_forward_hooks"),
    "torch.nn.modules.module._global_forward_pre_hooks": (lambda: nn.modules.module, "_global_forward_pre_hooks"),
    "torch.nn.modules.batchnorm._BatchNorm": (lambda: nn.modules.batchnorm, "_BatchNorm"),
    "torch.nn.modules.conv._ConvNd": (lambda: nn.modules.conv, "_ConvNd"),
    "torch.nn.modules.conv._ConvTransposeNd": (lambda: nn.modules.conv, "_ConvTransposeNd"),
    "torch.nn.modules.dropout._DropoutNd": (lambda: nn.modules.dropout, "_DropoutNd"),
    "_ConvNd._reversed_padding_repeated_twice": (lambda: nn.Conv2d(1, 1, 1), "_reversed_padding_repeated_twice"),
    "BasePruningMethod._tensor_name": (_pruned, "_tensor_name"),
    "torch.utils._pytree": (lambda: torch.utils, "_pytree"),
    "torch.utils._pytree.tree_leaves": (lambda: torch.utils._pytree, "tree_leaves"),
    "torch.utils._pytree.tree_map_only": (lambda: torch.utils._pytree, "tree_map_only"),
    "torch.utils._python_dispatch": (lambda: torch.utils, "_python_dispatch"),
    "torch.utils._python_dispatch.TorchDispatchMode": (lambda: torch.utils._python_dispatch, "TorchDispatchMode"),
    "torch.cpu._is_avx512_bf16_supported": (lambda: torch.cpu, "_is_avx512_bf16_supported"),
    "torch.cpu._is_amx_tile_supported": (lambda: torch.cpu, "_is_amx_tile_supported"),
}
"""Every private attribute that `torch_private` reads: what has it, and under which name."""

BY_BEHAVIOUR = {"_orig_mod", "_dynamo", "_set_grad_enabled"}
"""Those that no object shows before it is used; tests of their own look for them below."""


@pytest.mark.parametrize("path", OWNERS)
def test_pytorch_still_has_it(path: str) -> None:
    owner, name = OWNERS[path]
    assert hasattr(owner(), name), (
        f"PyTorch {torch.__version__} lacks {path}: find what it has instead and change "
        "src/picojoule/kernels/torch_private.py, which alone reads it"
    )


def test_a_batch_norm_is_known_by_the_name_of_its_node() -> None:
    assert _graph().name() == "NativeBatchNormBackward0"


def test_a_compiled_module_is_known() -> None:
    net = nn.Linear(2, 2)
    assert torch_private.compiled_original(net) is None
    assert not torch_private.has_compiled_forward(net)
    wrapped: Any = torch.compile(net, backend="eager")
    assert torch_private.compiled_original(wrapped) is net
    assert torch_private.has_compiled_forward(wrapped)
    assert torch_private.compiler_is_loaded()
    net.compile(backend="eager")
    assert torch_private.has_compiled_forward(net)


def test_no_grad_is_seen_by_a_function_mode() -> None:
    seen: list[str] = []

    class Noting(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with Noting(), torch.no_grad():
        pass
    assert torch_private.SET_GRAD_ENABLED in seen


def test_nothing_passes_a_function_mode_where_that_is_disabled() -> None:
    class Refusing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    with Refusing(), torch_private.torch_function_disabled():
        torch.zeros(2).add(1)


def test_hooks_for_all_modules_are_found() -> None:
    def hook(*arguments: Any) -> None: ...

    assert hook not in torch_private.global_forward_hooks()
    for register in (
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ):
        handle = register(hook)
        try:
            assert hook in torch_private.global_forward_hooks()
        finally:
            handle.remove()


def test_tensors_on_one_storage_share_its_identity() -> None:
    x = torch.zeros(4)
    assert torch_private.storage_identity(x) == torch_private.storage_identity(x[2:])
    assert torch_private.storage_identity(x) != torch_private.storage_identity(torch.zeros(4))
    assert torch_private.is_view(x[2:])
    assert not torch_private.is_view(x)


def test_padding_has_the_last_axis_first() -> None:
    assert torch_private.padding_of(nn.Conv2d(1, 1, 3, padding=(1, 2))) == (2, 2, 1, 1)


def test_transforms_are_seen() -> None:
    seen: list[bool] = []

    def look(x: torch.Tensor) -> torch.Tensor:
        seen.append(torch_private.is_transformed(x))
        return x

    look(torch.zeros(2))
    torch.func.vmap(look)(torch.zeros(2))
    assert seen == [False, True]


# --- Nowhere else ----------------------------------------------------------------------------------------------------


def private_names(path: Path) -> Iterator[tuple[int, str]]:
    """Attributes and imports with an underscore that are neither a class's own nor a module's of picojoule.

    An attribute of one's own that has the name of one of PyTorch's counts as PyTorch's, or it would hide that one.
    """
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute) and _name(node.value) == "self"}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Attribute)
            and _is_private(node.attr)
            and node.attr not in (own - STRINGS) | NOT_OF_PYTORCH
        ):
            yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            names = (*(node.module or "").split("."), *(alias.name for alias in node.names))
            yield from ((node.lineno, name) for name in names if _is_private(name))
        elif isinstance(node, ast.Constant) and node.value in STRINGS:
            yield node.lineno, node.value


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


NOT_OF_PYTORCH = {"_exit", "_wait", "_asdict", "_replace", "_getvalue"}
"""Of `os`, of a class's other instances, of named tuples, of what Numba makes."""
STRINGS = {name for _, name in OWNERS.values() if _is_private(name)} | BY_BEHAVIOUR


def test_no_other_module_reads_them() -> None:
    home = Path(inspect.getfile(torch_private))
    found = [
        f"{path.relative_to(SOURCES)}:{line}: {name}"
        for path in sorted(SOURCES.rglob("*.py"))
        if path != home
        for line, name in private_names(path)
    ]
    assert found == [], "move these into kernels/torch_private.py and name them in this file"


def test_each_of_them_is_named_here() -> None:
    named = {name for _, name in OWNERS.values()} | BY_BEHAVIOUR | {"_module"}
    read = {name for _, name in private_names(Path(inspect.getfile(torch_private)))}
    assert read <= named
