"""A network as a graph: what its forward pass calls, in order, and the shape of every result.

The graph comes from `torch.fx`, so a forward pass may be written in any way that does not depend on the numbers.
Modules of `torch.nn` and spiking layers are single nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx, nn

from picojoule.deploy.altered_layers import hooks_of, refuse_global_hooks, refuse_low_precision
from picojoule.errors import PicojouleError
from picojoule.spikes.spiking import is_spiking
from picojoule.synapses.snapshot import unchanged

SHAPE = "picojoule_shape"


class _Tracer(fx.Tracer):
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return is_spiking(m) or super().is_leaf_module(m, module_qualified_name)


class _Shapes(fx.Interpreter):
    """Runs the graph once and notes the shape of each result; None for what is no tensor."""

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        n.meta[SHAPE] = tuple(result.shape) if isinstance(result, Tensor) else None
        if isinstance(result, Tensor):
            refuse_low_precision(result, "the event engine")
        return result


@contextmanager
def captured(model: nn.Module, shape: tuple[int, ...]) -> Iterator[fx.Graph]:
    """The graph of a model in evaluation mode, with its shapes for one sample of `shape`.

    Inside the block the model is as a forward pass leaves it, so that weights which it computes (weight norm, pruning)
    can be read from its layers as they were used; behind it the model is as it was. The graph is checked against the
    model on noise: `torch.fx` takes an assignment in place for a new value.
    """
    refuse_global_hooks("the event engine")
    if hooks_of(model) is not None or "forward" in vars(model):
        raise PicojouleError(
            f"{type(model).__name__} has hooks, or a forward pass set on the instance, which the event engine would "
            "leave out: make them part of its class's forward pass, or use the dense engine"
        )
    with unchanged(model), torch.no_grad():
        model.eval()
        noise = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
        noise = noise.to(next(model.parameters(), noise))
        expected = _answer(model, noise.clone())
        try:
            graph = _Tracer().trace(model)
            shapes = _Shapes(fx.GraphModule(model, graph))
            shapes.extra_traceback = False  # a refusal is one sentence
            answer = shapes.run(noise.clone())
        except PicojouleError:
            raise
        except Exception as error:  # a forward pass may raise anything when it is given no numbers
            reason = " ".join(str(error).split())[:200]
            raise PicojouleError(
                f"the forward pass of {type(model).__name__} cannot be written down as a graph ({reason}): let what it "
                "calls not depend on its tensors' numbers, sizes or types, or use the dense engine"
            ) from error
        if not isinstance(expected, Tensor) or not isinstance(answer, Tensor) or not torch.equal(expected, answer):
            raise PicojouleError(
                f"{type(model).__name__} returns something else than its graph: let it return one tensor, and "
                "overwrite nothing in place in its forward pass (write x = x + y), or use the dense engine"
            )
        yield graph


def _answer(model: nn.Module, image: Tensor) -> Any:
    try:
        return model(image)
    except PicojouleError:
        raise
    except Exception as error:  # the user's forward pass may raise anything
        reason = " ".join(str(error).split())[:200]
        raise PicojouleError(
            f"the forward pass of {type(model).__name__} fails for a batch of one in evaluation mode ({reason}), and "
            "the event engine answers images one by one: let it take a single image, or use the dense engine"
        ) from error


def shape_of(node: fx.Node) -> tuple[int, ...] | None:
    """The shape of a node's result with its batch axis, or None if it is no tensor."""
    shape: tuple[int, ...] | None = node.meta.get(SHAPE)
    return shape
