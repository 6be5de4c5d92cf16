"""A watch over PyTorch's kernels, so that a product that was called past the tables is refused instead of lost."""

from __future__ import annotations

from typing import Any

from picojoule.kernels.torch_private import TorchDispatchMode, torch_function_disabled
from picojoule.synapses.pass_state import PassState
from picojoule.synapses.refusals import refuse_product
from picojoule.synapses.rules.bilinear import MULTIPLYING
from picojoule.synapses.rules.synaptic import is_product

_NAMESPACES_OF_PYTORCH = frozenset(["aten", "prim", "prims", "profiler"])


class KernelWatch(TorchDispatchMode):
    """Sees every kernel that runs during a structural pass."""

    def __init__(self, state: PassState) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch has no types here
        self._state = state

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self._check(func.overloadpacket.__name__, func.namespace)
        with torch_function_disabled():  # a kernel is no operation of the model
            return func(*args, **(kwargs or {}))

    def _check(self, name: str, namespace: str) -> None:
        """Refuse a product that no table has seen, and a kernel that is not PyTorch's own, which may hold weights."""
        state = self._state
        if state.products_allowed:
            return
        if namespace not in _NAMESPACES_OF_PYTORCH and not state.inside:
            state.refuse(
                f"{namespace}::{name} {state.where()} is not an operation of PyTorch that picojoule knows (a quantised "
                "layer, a custom operator), so the synapses in it cannot be counted: trace the model before it is "
                "quantised, or write the operation with PyTorch's own operators"
            )
        if name in MULTIPLYING or is_product(name):
            refuse_product(state, name)
