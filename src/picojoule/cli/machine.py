"""The command that says what this machine and this installation can do."""

from __future__ import annotations

import importlib.util
import platform

import torch
from rich.markup import escape
from rich.table import Table

import picojoule
from picojoule import data as datasets
from picojoule.cli.options import AsJson
from picojoule.cli.streams import shortened, show, show_json, tell
from picojoule.io.extras import EXTRA_OF
from picojoule.io.machine import cores
from picojoule.kernels.torch_private import cpu_has_bfloat16


def examine(as_json: AsJson = False) -> None:
    """Say what this machine and installation can do: versions, devices, bfloat16, extras, data sets, what is missing.

    Example: `picojoule doctor`
    """
    versions, devices, extras, data = _versions(), _devices(), _extras(), _data()
    if as_json:
        show_json({"versions": versions, "devices": devices, "extras": extras, "data": data})
        return
    table = Table("what", "here")
    for name, found in (versions | devices).items():
        table.add_row(name, found)
    for extra, missing in extras.items():
        remedy = f"lacks {', '.join(missing)}: pip install 'picojoule[{extra}]'"
        table.add_row(f"extra {extra}", escape(remedy) if missing else "yes")
    for name, place in data.items():
        table.add_row(f"data {name}", escape(shortened(place)) if place else f"no: picojoule data fetch {name}")
    show(table)
    lacking = sum(map(bool, extras.values())) + sum(place is None for place in data.values())
    tell("nothing is missing" if not lacking else "behind each thing that is missing stands the command that gets it")


def _versions() -> dict[str, str]:
    names = {"PyTorch": torch.__version__, "Python": platform.python_version()}
    return {"picojoule": picojoule.__version__, **names, "system": f"{platform.system()} {platform.machine()}"}


def _devices() -> dict[str, str]:
    cuda = torch.cuda.get_device_name() if torch.cuda.is_available() else "no"
    return {
        "cores": f"{cores()}, of which PyTorch uses {torch.get_num_threads()}",
        "bfloat16 on the CPU": "native" if cpu_has_bfloat16() else "emulated, and so never taken by `precision = auto`",
        "CUDA": cuda,
        "MPS": "yes" if torch.backends.mps.is_available() else "no",
    }


def _extras() -> dict[str, list[str]]:
    """The packages that each extra lacks here."""
    lacking: dict[str, list[str]] = {extra: [] for extra in dict.fromkeys(EXTRA_OF.values())}
    for package, extra in EXTRA_OF.items():
        if importlib.util.find_spec(package) is None and not _is_of_an_old_python(package):
            lacking[extra].append(package)
    return lacking


def _is_of_an_old_python(package: str) -> bool:
    """Whether the package is needed only where Python lacks `tomllib`."""
    return package == "tomli" and importlib.util.find_spec("tomllib") is not None


def _data() -> dict[str, str | None]:
    return {entry.name: entry.here for entry in datasets.listing()}
