"""A network as NIR and ONNX, run by other programs and held against the model."""

from __future__ import annotations

import contextlib
from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

import picojoule as pj
from fuzz.measuring import Refused, far_from_ties, ran, tried
from fuzz.networks import Built
from fuzz.outcome import Outcome
from nir_reader import execute


def exported(made: Built, outcome: Outcome, to: Collection[str]) -> None:
    if made.spec.how == "calls":
        return
    images = made.images.float().contiguous()
    with torch.no_grad():
        expected = ran(made)[0].double()
    far = far_from_ties(made) if made.spec.neuron == "spike" else torch.zeros(made.spec.batch, dtype=torch.bool)
    if made.spec.dtype in ("half", "bfloat16"):
        far = torch.zeros_like(far)  # every other potential is a tie
    if "NIR" in to:
        with contextlib.suppress(Refused):
            _as_nir(made, outcome, images, expected, far)
    if "ONNX" in to:
        with contextlib.suppress(Refused):
            _as_onnx(made, outcome, expected, far)


def _as_nir(made: Built, outcome: Outcome, images: Tensor, expected: Tensor, far: Tensor) -> None:
    graph = tried(outcome, "NIR", made.model, lambda: pj.export.to_nir(made.model, made.images[:1]))
    try:
        (end,) = (name for name, node in graph.nodes.items() if type(node).__name__ == "Output")
        answers = torch.from_numpy(execute(graph, images.numpy())[end])
    except NotImplementedError:
        outcome.notes.append("NIR has nodes that the reader does not know")
    else:
        _compare(outcome, "NIR", answers, expected, far)


def _as_onnx(made: Built, outcome: Outcome, expected: Tensor, far: Tensor) -> None:
    content = tried(outcome, "ONNX", made.model, lambda: pj.export.to_onnx(made.model, made.images[:1]))
    answers = tried(outcome, "ONNX runtime", made.model, lambda: _answered(content, made.images))
    if answers is None:
        outcome.notes.append("ONNX has what the runtime does not know")
    else:
        _compare(outcome, "ONNX", answers, expected, far)


def _answered(content: bytes, images: Tensor) -> Tensor | None:
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as Unknown

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Unknown:  # some layers in float64
        return None
    (taken,) = session.get_inputs()
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}
    return torch.from_numpy(session.run(None, {taken.name: images.float().numpy().astype(kinds[taken.type])})[0])


def _compare(outcome: Outcome, what: str, answers: Tensor, expected: Tensor, far: Tensor) -> None:
    if answers.shape != expected.shape:
        outcome.failures.append((f"{what} has another shape", f"{tuple(answers.shape)} for {tuple(expected.shape)}"))
        return
    error = (answers.double() - expected).abs()[far]
    if error.numel() and not bool((error <= 1e-3 * (1 + expected.abs().max())).all()):
        outcome.failures.append((f"{what} has other outputs", f"off by {float(error.max()):.3g}"))
        return
    outcome.notes.append(f"{what} agrees" if bool(far.any()) else f"{what} written")
