"""What a node of a captured graph is called, where it stands, and what it is given."""

from __future__ import annotations

from typing import Any

from torch import fx, nn

from picojoule.kernels.torch_private import operator_name

SHAPE = "picojoule_shape"
"""The key under which a node's metadata has the shape of its result."""


def shape_of(node: fx.Node) -> tuple[int, ...] | None:
    """Look up the shape of a node's result.

    Args:
        node: A node of a graph that `capture.shaped_layer_graph` made.

    Returns:
        The shape with its batch axis, or None if the result is not a tensor.
    """
    shape: tuple[int, ...] | None = node.meta.get(SHAPE)
    return shape


def enclosing_modules(node: fx.Node) -> list[str]:
    """List the modules in whose forward passes a node stands.

    Args:
        node: A node of a captured graph, of layers or of operations.

    Returns:
        The names of the modules, the outermost first; the network itself is the empty name.
    """
    return [str(path).partition("@")[0] for path, _ in node.meta.get("nn_module_stack", {}).values()]


def first_of(path: list[str], layers: dict[str, Any]) -> str | None:
    """Find the outermost module of a path that is among some layers.

    Args:
        path: Names of modules, the outermost first.
        layers: The layers that are looked for, by name.

    Returns:
        The layer's name, or None if the path meets none of them.

    Example:
        >>> first_of(["", "block", "block.spike"], {"block.spike": None})
        'block.spike'
    """
    return next((name for name in path if name in layers), None)


def operation_name(node: fx.Node) -> str:
    """Name the function, method or basic operation that a node calls.

    Args:
        node: A node whose `op` is "call_function" or "call_method".

    Returns:
        The operation's name without its module or overload, such as "add" or "relu".
    """
    target = node.target
    if isinstance(target, str):
        return target
    return operator_name(target)


def node_name(node: fx.Node, model: nn.Module | None = None) -> str:
    """Name a node as the network's author knows it, for the sentence that refuses it.

    Args:
        node: A node of a captured graph.
        model: The network, for the classes of its layers; not needed for a graph of operations.

    Returns:
        A phrase such as "the layer '2' (Tanh)" or "the operation 'cat' in the layer 'block1'".
    """
    if node.op == "call_module" and model is not None:
        return f"the layer {node.target!r} ({type(model.get_submodule(str(node.target))).__name__})"
    if node.op in ("call_function", "call_method"):
        around = [path for path in enclosing_modules(node) if path]
        where = f"the layer {around[-1]!r}" if around else "the network's own forward pass"
        return f"the operation {operation_name(node)!r} in {where}"
    if node.op == "get_attr":
        return f"the tensor {node.target!r}"
    return f"the input {node.target!r}" if node.op == "placeholder" else "the network's output"


def argument(node: fx.Node, position: int, *names: str, default: Any = None) -> Any:
    """Find an argument of a call by its position or under any of its names.

    Args:
        node: The node of the call.
        position: The argument's position among those given without a name.
        names: The names under which it may be given instead.
        default: What it is where it is not given.

    Returns:
        The argument as the graph holds it: a node, or a constant.
    """
    if len(node.args) > position:
        return node.args[position]
    return next((node.kwargs[name] for name in names if name in node.kwargs), default)
