"""A network given, a NIR graph made. The package `nir` is imported only then."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from picojoule.activity import spiking_modules
from picojoule.errors import PicojouleError
from picojoule.export.program import captured, prepared
from picojoule.neuron import Spike

if TYPE_CHECKING:
    import nir


def to_nir(model: nn.Module, example: Tensor) -> nir.NIRGraph:
    """The network as a NIR graph; `example` is a batch of which only the shape of a sample matters.

    >>> import torch
    >>> import picojoule as pj
    >>> net = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), pj.Spike(), nn.Linear(3, 2, bias=False))
    >>> graph = to_nir(net, torch.zeros(1, 4))
    >>> {name: type(node).__name__ for name, node in graph.nodes.items()}
    {'input': 'Input', '0': 'Affine', '2': 'IF', '3': 'Linear', 'output': 'Output'}
    >>> graph.nodes["2"].v_threshold
    array([0.99999994, 0.99999994, 0.99999994], dtype=float32)
    """
    model, images = prepared(model, example)
    _check_neurons(model)
    from picojoule.export.nir.translation import Translation  # brings nir, which is optional

    return Translation(model, captured(model, images)).translated()


def _check_neurons(model: nn.Module) -> None:
    layers = spiking_modules(model)
    if not layers:
        raise PicojouleError(
            f"{type(model).__name__} has no spiking layer that picojoule knows: train it with picojoule.Spike, or "
            "export to ONNX"
        )
    for name, layer in layers.items():
        if type(layer) is not Spike:
            raise PicojouleError(
                f"the neurons {name!r} ({type(layer).__name__}) have no node in NIR that does the same: use "
                "picojoule.Spike, or export to ONNX"
            )
