"""Everything about a model, and the state of PyTorch, that a measurement must leave as it was."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

HOOKS = (
    "_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_state_dict_hooks",
    "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs", "_forward_hooks_always_called",
)  # fmt: skip


def taken(model: nn.Module) -> dict[str, Any]:
    """A picture of the model that `differences` can hold against a later one.

    A tensor that is an attribute of its own may be replaced by an equal one: old-style weight norm does so in
    each call.
    """
    picture: dict[str, Any] = {
        "random state": torch.get_rng_state().clone(),
        "gradients": torch.is_grad_enabled(),
        "inference mode": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "threads": torch.get_num_threads(),
    }
    for name, module in model.named_modules(remove_duplicate=False):
        at = name or "the model"
        picture[f"{at} is"] = id(module)
        picture[f"class of {at}"] = type(module)
        for key, value in vars(module).items():
            if key in ("_parameters", "_buffers"):
                for tensor_name, tensor in value.items():
                    picture[f"{at}.{tensor_name}"] = _tensor(tensor)
            elif key in HOOKS:
                picture[f"{key} of {at}"] = tuple(value)
            elif key != "_modules":
                picture[f"{at}.{key}"] = _tensor(value)[1:] if isinstance(value, Tensor) else _plain(value)
    return picture


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | float | str | bool | tuple | type(None)) else id(value)


def _tensor(value: Tensor | None) -> Any:
    if value is None:
        return None
    grad = None if not value.is_leaf or value.grad is None else value.grad.clone()
    return (id(value), value.requires_grad, value.dtype, value.stride(), value.detach().clone(), grad)


def differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    missing = [f"{key} is gone" for key in before.keys() - after.keys()]
    added = [f"{key} is new" for key in after.keys() - before.keys()]
    changed = [f"{key} changed" for key in before.keys() & after.keys() if not _same(before[key], after[key])]
    return sorted(missing + added + changed)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return torch.equal(a.nan_to_num(), b.nan_to_num())
    if isinstance(a, tuple) and isinstance(b, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
