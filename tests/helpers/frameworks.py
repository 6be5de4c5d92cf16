"""Networks of other frameworks, run over time in every form they have, and synaptic operations counted one by one.

Where a framework is not installed its tests are skipped and say so. An environment that is made for some of them names
them in `PICOJOULE_FRAMEWORKS`; there a missing one is a failure.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
STEPS, BATCH = 4, 3
PYTHON = {"spikingjelly": (3, 11)}
"""The oldest version of Python, for a framework that needs a newer one than picojoule."""


def is_installed(package: str) -> bool:
    """Whether the package is here, as it must be in an environment that is made for it."""
    found = importlib.util.find_spec(package) is not None
    named = package in os.environ.get("PICOJOULE_FRAMEWORKS", "").split()
    if named and not found and sys.version_info >= PYTHON.get(package, (3,)):
        raise RuntimeError(f"{package} is not installed, but this environment is made for it")
    return found


def need(package: str) -> Any:
    """The package, or a skipped test or test file."""
    root = package.partition(".")[0]
    if not is_installed(root):
        pytest.skip(f"{root} is not installed: `make test` has an environment for it", allow_module_level=True)
    with warnings.catch_warnings():  # what it warns of while it is imported is its own affair
        warnings.simplefilter("ignore")
        return importlib.import_module(package)


@dataclass
class Form:
    """One way in which a network runs over `STEPS` time steps."""

    net: nn.Module
    example: Tensor
    run: Callable[[nn.Module], Tensor]
    """All steps of the same batch of `BATCH` samples; what the last layer gives, [T, B, …]."""
    traced: dict[str, Any] = field(default_factory=dict)
    watched: dict[str, Any] = field(default_factory=dict)
    encoder: str = "0"
    """The name of the synapses that the input feeds."""

    def trace(self, **options: Any) -> pj.Synapses:
        return pj.trace(self.net, self.example, **self.traced, **options)

    def watch(self) -> tuple[pj.Activity, Tensor]:
        with pj.watch(self.net, **self.watched) as activity:
            out = self.run(self.net)
        return activity, out

    def bill(self) -> pj.EnergyReport:
        meter = pj.EnergyMeter(self.trace())
        meter.update(self.watch()[0])
        return meter.compute()


def pixels() -> Tensor:
    """[T, B, 1, 8, 8], the same for every form."""
    return torch.rand(STEPS, BATCH, 1, 8, 8, generator=torch.Generator().manual_seed(3)) * 4


def reach(synapses: nn.Module, shape: torch.Size) -> Tensor:
    """How many outputs each element of one sample reaches, tried one at a time, with nothing but PyTorch."""
    one_each = torch.eye(shape.numel()).view(-1, *shape)
    with torch.no_grad():
        if isinstance(synapses, nn.Linear):
            out = one_each @ torch.ones_like(synapses.weight).T
        else:
            assert isinstance(synapses, nn.Conv2d)
            ones = torch.ones_like(synapses.weight)
            out = F.conv2d(one_each, ones, None, synapses.stride, synapses.padding, synapses.dilation, synapses.groups)
    return (out != 0).flatten(1).sum(1).view(shape)


def counted_one_by_one(form: Form) -> float:
    """Synaptic operations a sample: every spike that enters a layer of synapses, times what it reaches."""
    total = 0.0
    handles = []

    def count(module: nn.Module, args: tuple[Tensor], output: Tensor) -> None:
        nonlocal total
        axes = 1 if isinstance(module, nn.Linear) else 3
        maps = args[0].detach().flatten(0, -axes - 1)
        total += (maps.double() * reach(module, maps.shape[1:])).sum().item()

    for name, module in form.net.named_modules():
        if isinstance(module, nn.Conv2d | nn.Linear) and name != form.encoder:
            handles.append(module.register_forward_hook(count))
    with torch.no_grad():
        form.run(form.net)
    for handle in handles:
        handle.remove()
    return total / BATCH


def held(value: Any) -> Any:
    """All that modules hold, as plain values: parameters, buffers, states in attributes, lists and dictionaries."""
    if isinstance(value, nn.Module):
        return {name: {k: held(v) for k, v in vars(m).items()} for name, m in value.named_modules()}
    if isinstance(value, Tensor):
        return (value.shape, value.requires_grad, value.detach().flatten().tolist())
    if isinstance(value, dict):
        return {k: held(v) for k, v in value.items() if not isinstance(v, nn.Module)}
    if isinstance(value, list | tuple):
        return [held(v) for v in value]
    if isinstance(value, set):
        return sorted(map(repr, value))  # whose order the hashes of the process decide
    return value if isinstance(value, int | float | str | None) else repr(value)


def check_form(form: Form, reset: Callable[[nn.Module], object]) -> dict[str, Any]:
    """What must hold for every form; the bill, which must be the same for all forms of one network."""
    reset(form.net)
    report = form.bill()
    assert report.steps == STEPS
    assert report.samples == BATCH
    reset(form.net)
    assert report.synops == pytest.approx(counted_one_by_one(form), rel=1e-12)
    assert report.synops > 0
    check_state(form, reset)
    check_gradient(form, reset)
    totals = {key: value for key, value in report.to_dict().items() if key != "layers"}
    return {**totals, "dense": report.dense_macs, "counts": [(x.neurons, x.synops, x.dead) for x in report.layers]}


def check_state(form: Form, reset: Callable[[nn.Module], object]) -> None:
    """A trace in the middle of a sequence changes nothing, neither what is held nor what comes next."""
    reset(form.net)
    form.run(form.net)
    before = held(form.net)
    synapses = form.trace()
    assert held(form.net) == before
    twice = form.run(form.net)
    reset(form.net)
    form.run(form.net)
    assert torch.equal(form.run(form.net), twice)
    reset(form.net)
    assert str(form.trace()) == str(synapses)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in form.net.modules())


def check_gradient(form: Form, reset: Callable[[nn.Module], object]) -> None:
    """The gradient of Ω_syn is that of Σ ψ s, written by hand."""
    synapses = form.trace()
    reset(form.net)
    activity, _ = form.watch()
    pj.Penalty(synapses, normalized=False)(activity).backward()
    gradients = {name: p.grad for name, p in form.net.named_parameters() if p.grad is not None}
    assert any(g.abs().sum() > 0 for g in gradients.values())
    form.net.zero_grad(set_to_none=True)
    reset(form.net)
    activity, _ = form.watch()
    sum((activity[name] * layer.fan_out).sum() / BATCH for name, layer in synapses.items()).backward()
    for name, parameter in form.net.named_parameters():
        if parameter.grad is not None and name in gradients:
            torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
    form.net.zero_grad(set_to_none=True)


def classes_of(package: str) -> dict[str, type]:
    """Every class that the loaded modules of a package define."""
    found: dict[str, type] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and module is not None:
            found.update({k: v for k, v in list(vars(module).items()) if isinstance(v, type)})
    return found


def run_example(name: str) -> str:
    """What an example of the documentation prints, run as a user would."""
    command = [sys.executable, "-W", "error::RuntimeWarning", str(EXAMPLES / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_example(output: str, steps: int) -> None:
    """Both trainings learn the digits, the penalised one spends less, and the bill says how many steps it is for."""
    results = re.findall(r"([\d.]+) % right, ([\d.]+) nJ", output)
    (right, energy), (right_penalised, energy_penalised) = (tuple(map(float, result)) for result in results)
    assert min(right, right_penalised) > 70
    assert energy_penalised < 0.8 * energy
    assert f"T = {steps}," in output
    assert "total" in output
