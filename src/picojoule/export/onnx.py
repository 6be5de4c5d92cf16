"""Out to ONNX, through PyTorch's own exporter: any batch size, one file, spikes under the names of their layers."""

from __future__ import annotations

import ast
from typing import Any

import torch
from torch import Tensor, nn

from picojoule.activity import spiking_modules
from picojoule.errors import PicojouleError
from picojoule.export.program import evaluated, layer_of, not_captured, prepared, quiet

_SCOPES = "pkg.torch.onnx.name_scopes"


def to_onnx(model: nn.Module, example: Tensor) -> bytes:
    """The network as an ONNX file: `images` [batch, …] in, `logits` out.

    A spiking layer's output keeps the layer's name, so that it can be asked for. Nothing of the machine that wrote it
    (paths, stack traces) is in the file.
    """
    model, images = prepared(model, example)
    with evaluated(model), quiet():
        try:
            program = torch.onnx.export(
                model,
                (images,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                input_names=["images"],
                output_names=["logits"],
                verbose=False,
            )
        except Exception as error:  # the user's forward pass may raise anything
            raise not_captured(model, error) from error
    if program is None or len(program.model.graph.outputs) != 1:
        raise PicojouleError("a network for ONNX returns one tensor: return only the logits")
    (taken,) = program.model.graph.inputs
    # PyTorch's exporter says nothing when it takes the example's size for the only one.
    if taken.shape is None or isinstance(taken.shape[0], int):
        raise PicojouleError(
            f"the forward pass of {type(model).__name__} fixes the size of the batch, so no file can be written that "
            "takes any: let it use x.shape[0] and keep Python's len, int and range from the batch axis"
        )
    _tidy(program.model, list(spiking_modules(model)))
    content: bytes = program.model_proto.SerializeToString(deterministic=True)
    return content


def _tidy(model: Any, layers: list[str]) -> None:
    last: dict[str, Any] = {}
    for node in model.graph:
        layer = layer_of(ast.literal_eval(node.metadata_props.get(_SCOPES, "[]")), dict.fromkeys(layers))
        if layer is not None:
            last[layer] = node.outputs[0]
        node.metadata_props.clear()
        node.doc_string = None
    for name, spikes in last.items():
        if not spikes.is_graph_output():
            spikes.name = name
