"""Trained networks for other tools: NIR for neuromorphic chips and simulators, ONNX for everything else.

The exported network is the one that evaluation measures: float32, evaluation mode, batch norm folded where it can be.
It takes images as the network takes them, that is normalised if the recipe says so.
"""

from __future__ import annotations

import importlib
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, get_args

from torch import Tensor, nn

from picojoule.deploy.export.nir import to_nir
from picojoule.deploy.export.onnx import to_onnx
from picojoule.errors import PicojouleError, as_path, unknown
from picojoule.io.files import check_destination, write_atomically

if TYPE_CHECKING:
    from picojoule.deploy.export.nir.translation import Translated

__all__ = ["Format", "beside", "names", "to_nir", "to_onnx", "write"]

Format = Literal["nir", "onnx"]

_NEEDED: Mapping[Format, tuple[str, ...]] = MappingProxyType({"nir": ("nir",), "onnx": ("onnx", "onnxscript")})


def names() -> tuple[Format, ...]:
    """List the formats that `write` knows.

    Returns:
        Their names.

    Example:
        >>> names()
        ('nir', 'onnx')
    """
    return get_args(Format)


def write(
    model: nn.Module,
    example: Tensor,
    to: Format,
    path: str | os.PathLike[str],
    say: Callable[[str], None] = lambda text: None,
    facts: Mapping[str, Any] | None = None,
    reader: str = "nir",
) -> Path:
    """Write a network to a file in one of the formats; all of the file or none of it.

    The file's content is executed and compared with the network, on the example and on noise, before it is put there.

    Args:
        model: The network; it stays as it is.
        example: A batch as the network takes it.
        to: The format, "nir" or "onnx".
        path: The file to write.
        say: Gets remarks for the user, one sentence each.
        facts: What inference needs beside the network, as plain values: they become the file's metadata, under the key
            "picojoule" as JSON, and a file of the same name with ".json" after it.
        reader: For NIR, the program that is to read the file, as `to_nir` takes it.

    Returns:
        The file's path.

    Raises:
        PicojouleError: If the format is unknown, its package is not installed, the file cannot be put there, or the
            network cannot be exported.

    Example:
        >>> import tempfile
        >>> import torch
        >>> import picojoule as pj
        >>> net = nn.Sequential(nn.Linear(4, 3), pj.Spike())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     write(net, torch.zeros(1, 4), "nir", f"{folder}/net.nir").name
        'net.nir'
    """
    if to not in names():
        raise unknown("format", to, names())
    for module in _NEEDED[to]:
        try:
            importlib.import_module(module)
        except ImportError:
            raise PicojouleError(
                f"exporting to {to} needs the package {module}: install it with `pip install 'picojoule[{to}]'`"
            ) from None
    path = as_path("the file to write", path)
    if os.path.isdir(path):  # pathlib's own raises where a name is too long
        raise PicojouleError(f"{path} is a folder: name a file in it with --out")
    if not os.path.isdir(path.parent):
        raise PicojouleError(f"the folder {path.parent} does not exist: make it, or choose another file with --out")
    check_destination(path)
    if to == "onnx" and reader != "nir":
        raise PicojouleError(f"reader={reader!r} is one of NIR files: export to nir, or leave it out")
    if facts is not None:
        check_destination(beside(path))
    metadata = None if facts is None else json.dumps(facts, allow_nan=False)
    content = to_onnx(model, example, metadata) if to == "onnx" else _nir_file(model, example, say, metadata, reader)
    write_atomically(path, content)  # first: where there is no room, no metadata of a missing file are left
    if facts is not None:
        write_atomically(beside(path), f"{json.dumps(facts, indent=2, ensure_ascii=False)}\n".encode())
    return path


def beside(path: Path) -> Path:
    """Return the path of the JSON file beside an exported network.

    Args:
        path: The network's file.

    Example:
        >>> beside(Path("network.onnx")).name
        'network.onnx.json'
    """
    return path.with_name(f"{path.name}.json")


def _nir_file(
    model: nn.Module, example: Tensor, say: Callable[[str], None], metadata: str | None, reader: str
) -> bytes:
    import nir

    from picojoule.deploy.export.nir.builder import checked_by_nir
    from picojoule.deploy.export.nir.exporting import check, translated

    result = translated(model, example, reader)
    graph = result.graph
    if metadata is not None:
        graph.nodes["input"].metadata["picojoule"] = metadata  # nir keeps what nodes have, not what the graph has
    for remark in _remarks(result, all(map(checked_by_nir, graph.nodes.values()))):
        say(remark)
    file = io.BytesIO()
    nir.write(file, graph, compression_opts=1)  # weights hardly compress, constant maps do at any level
    _leave_out(file, result.reader.unread)
    check(model, example, result, nir.read(file, type_check=False))  # what was written, not what was meant
    return file.getvalue()


def _remarks(result: Translated, checked: bool) -> Iterator[str]:
    """Say what whoever reads the file has to know."""
    if not checked:
        yield (
            "the network has a convolution with groups or an oblong kernel, whose shape nir's own check gets wrong: "
            "read the file with nir.read(path, type_check=False)"
        )
    if result.steps > 1:
        taken = {"mean": "take the mean of", "sum": "add up", None: "keep"}[result.readout]
        yield f"the graph is one time step: show it each sample {result.steps} times, and {taken} what it puts out"
    if result.reader.name != "nir":
        yield f"for {result.reader.name}: {result.reader.load}"
    if result.reader.name == "sinabs" and result.max_spikes == 1:
        yield "sinabs lets its neurons fire more than once in a step: set spike_fn = sinabs.activation.SingleSpike"


def _leave_out(file: io.BytesIO, fields: tuple[str, ...]) -> None:
    """Take fields out of the nodes of a file which its reader stumbles over; all are those that nir fills in."""
    if not fields:
        return
    import h5py  # which nir brings

    with h5py.File(file, "r+") as content:
        for node in content["node/nodes"].values():
            for field in fields:
                node.pop(field, None)
