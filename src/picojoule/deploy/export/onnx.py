"""Export to ONNX, through PyTorch's own exporter: any batch size, one file, spikes under the names of their layers."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from picojoule.deploy.export.destinations import ONNX
from picojoule.deploy.export.verification import refuse_difference
from picojoule.deploy.graph.capture import evaluating
from picojoule.deploy.graph.nodes import first_of
from picojoule.deploy.graph.operations import network_and_zeros, not_exported, quiet_exporter
from picojoule.deploy.reproduction import Executed, emitting_once
from picojoule.errors import PicojouleError, reason_of
from picojoule.io.extras import explained

_SCOPES = "pkg.torch.onnx.name_scopes"


def to_onnx(model: nn.Module, example: Tensor, metadata: str | None = None) -> bytes:
    """Export a network as an ONNX file: `images` [batch, …] in, `logits` out.

    The spikes of a layer that is called once and returns nothing else keep the layer's name, so that they can be asked
    for. Nothing of the machine that wrote it (paths, stack traces) is in the file. It is executed, by onnxruntime where
    that is installed, and compared with the network on the example and on noise before it is given out.

    Args:
        model: The network; it stays as it is.
        example: A batch as the network takes it.
        metadata: Text that the file carries under the key "picojoule".

    Returns:
        The content of the file.

    Raises:
        PicojouleError: If the forward pass cannot be followed, fixes the size of the batch or returns more than one
            tensor, or if the file does not reproduce it.

    Example:
        >>> import picojoule as pj
        >>> net = nn.Sequential(nn.Linear(4, 3), pj.Spike(), nn.Linear(3, 2))
        >>> len(to_onnx(net, torch.zeros(1, 4))) > 0
        True
    """
    model, images = network_and_zeros(model, example, ONNX)
    with evaluating(model), quiet_exporter():
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
            raise _unknown_operation(error) or not_exported(model, error) from error
    if program is None or len(program.model.graph.outputs) != 1:
        raise PicojouleError("a network for ONNX returns one tensor: return only the logits")
    (taken,) = program.model.graph.inputs
    # PyTorch's exporter says nothing when it takes the example's size for the only one.
    if taken.shape is None or isinstance(taken.shape[0], int):
        raise PicojouleError(
            f"the forward pass of {type(model).__name__} fixes the size of the batch, so no file can be written that "
            "takes any: let it use x.shape[0] and keep Python's len, int and range from the batch axis"
        )
    named = _tidy(program.model, emitting_once(model, images))
    if metadata is not None:
        program.model.metadata_props["picojoule"] = metadata
    content: bytes = program.model_proto.SerializeToString(deterministic=True)
    refuse_difference(model, example, ONNX, lambda batch: _executed(content, named, batch))
    return content


def _unknown_operation(error: BaseException | None) -> PicojouleError | None:
    """Make the error for an operation that PyTorch's exporter has no translation of, if that is what it says."""
    found = re.search(r"No ONNX function found for <OpOverload\(op='([\w.]+)'", str(error))
    if error is None or found is not None:
        return found and ONNX.refusal(
            f"the operation {found[1]!r}, which has no counterpart in ONNX",
            "write it with other operations, or compute weights once and keep the result in a plain layer",
        )
    return _unknown_operation(error.__cause__)


def _executed(content: bytes, named: list[str], batch: Tensor) -> Executed:
    try:
        logits, *spikes = map(torch.from_numpy, map(np.asarray, _runtime(content, named)(batch.cpu().numpy())))
    except Exception as error:  # a runtime has errors of its own
        raise PicojouleError(
            f"the ONNX file cannot be executed and compared with the network ({reason_of(error)}), so "
            "nothing was written: use operations and types that onnxruntime knows"
        ) from error
    return Executed(logits, {name: [out] for name, out in zip(named, spikes, strict=True)})


def load_onnx(content: bytes) -> Callable[[NDArray[Any]], NDArray[Any]]:
    """Load a file that `to_onnx` made into ONNX Runtime, on one thread of the processor.

    Args:
        content: The content of the file.

    Returns:
        A function from images to logits.

    Raises:
        PicojouleError: If ONNX Runtime is not installed.
    """
    try:
        session = _session(content)
    except ModuleNotFoundError as fault:
        raise explained(fault, "the engine onnx") from None
    logits = ["logits"]
    return lambda images: session.run(logits, {"images": images})[0]


def _runtime(content: bytes, named: list[str]) -> Callable[[Any], list[Any]]:
    """Make the file a function of images that gives the logits, then the spikes of the named layers."""
    import onnx

    whole = onnx.load_model_from_string(content)
    whole.graph.output.extend(onnx.ValueInfoProto(name=name) for name in named)
    asked = ["logits", *named]
    try:
        session = _session(whole.SerializeToString())
    except ModuleNotFoundError:
        from onnx.reference import ReferenceEvaluator

        reference = ReferenceEvaluator(whole)
        return lambda images: list(reference.run(asked, {"images": images}))
    return lambda images: list(session.run(asked, {"images": images}))


def _session(content: bytes) -> Any:
    import onnxruntime

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads, settings.log_severity_level = 1, 4  # what it raises is told
    return onnxruntime.InferenceSession(content, settings, providers=["CPUExecutionProvider"])


def _tidy(model: Any, layers: list[str]) -> list[str]:
    """Remove the metadata of the exporter, name the spikes of these layers, and return the layers that were found."""
    last: dict[str, Any] = {}
    for node in model.graph:
        layer = first_of(ast.literal_eval(node.metadata_props.get(_SCOPES, "[]")), dict.fromkeys(layers))
        if layer is not None:
            last[layer] = node.outputs[0]
        node.metadata_props.clear()
        node.doc_string = None
    taken = {
        value.name: value for value in (*model.graph.inputs, *(out for node in model.graph for out in node.outputs))
    }
    inner = {
        name: spikes
        for name, spikes in last.items()
        if not spikes.is_graph_output() and taken.get(name, spikes) is spikes
    }
    for name, spikes in inner.items():
        spikes.name = name
    return list(inner)
