"""Every native trick can be switched off by one environment variable, and what is computed stays the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from picojoule.errors import PicojouleError
from picojoule.kernels import allocator, fused
from picojoule.kernels import threads as openmp
from picojoule.kernels.allocator import retain_freed_memory
from picojoule.kernels.draws import LEVELS, draw
from picojoule.kernels.switches import Switch
from picojoule.kernels.thread_count import threads
from picojoule.neurons import recomputation
from picojoule.neurons.spike import spike
from picojoule.neurons.surrogate import SURROGATES, Surrogate
from picojoule.zoo.dropout import Dropout
from small_step import gradients

ROOT = Path(__file__).resolve().parents[2]
SURROGATE_VALUES: list[Surrogate] = [kind() for kind in SURROGATES.values()]
SIZE = 3 * openmp.BLOCK + 17


def off(patch: pytest.MonkeyPatch, switch: Switch) -> None:
    patch.setenv(switch.value, "0")


@pytest.mark.parametrize("switch", Switch)
def test_it_is_on_unless_it_is_set_to_0(switch: Switch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(switch.value, raising=False)
    assert switch.is_on
    for value, expected in (("1", True), ("", True), ("0", False)):
        monkeypatch.setenv(switch.value, value)
        assert switch.is_on is expected
    monkeypatch.setenv(switch.value, "off")
    with pytest.raises(PicojouleError, match=rf"^{switch.value}='off' is not valid: set it to 0 "):
        _ = switch.is_on


def test_the_table_of_the_documents_names_every_switch_and_no_other() -> None:
    page = (ROOT / "results" / "speed.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(PICOJOULE_\w+)=0` \|", page, flags=re.MULTILINE)) == {s.value for s in Switch}


# --- The same result -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("surrogate", SURROGATE_VALUES, ids=SURROGATES)
@pytest.mark.parametrize("switch", Switch)
def test_a_training_step_is_the_same_without_it(
    switch: Switch, surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch
) -> None:
    with retain_freed_memory():
        on = gradients(surrogate)
    off(monkeypatch, switch)
    with retain_freed_memory():
        without = gradients(surrogate)
    if switch in (Switch.ALLOCATOR, Switch.THREADS):
        assert all(map(torch.equal, on, without))
    else:
        assert torch.equal(on[0], without[0])  # the forward pass, dropout included, is the same to the bit
        torch.testing.assert_close(on, without, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("surrogate", SURROGATE_VALUES, ids=SURROGATES)
def test_without_any_of_them(surrogate: Surrogate, monkeypatch: pytest.MonkeyPatch) -> None:
    on = gradients(surrogate)
    for switch in Switch:
        off(monkeypatch, switch)
    without = gradients(surrogate)
    assert torch.equal(on[0], without[0])
    torch.testing.assert_close(on, without, rtol=1e-4, atol=1e-6)


def through_a_spike(surrogate: Surrogate, dtype: torch.dtype) -> Callable[[], Tensor]:
    source = torch.Generator().manual_seed(1)
    grad, u = (torch.randn(SIZE, generator=source).add(k).to(dtype) for k in (0.0, 0.5))

    def backward() -> Tensor:
        leaf = u.clone().requires_grad_()
        (slope,) = torch.autograd.grad(spike(leaf, 1.0, surrogate), leaf, grad)
        return slope

    return backward


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("surrogate", SURROGATE_VALUES, ids=SURROGATES)
def test_surrogates_differ_in_their_last_digits(
    surrogate: Surrogate, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    backward = through_a_spike(surrogate, dtype)
    on = backward()
    off(monkeypatch, Switch.FUSED)
    without = backward()
    digits = torch.finfo(dtype).eps
    torch.testing.assert_close(on, without, rtol=64 * digits, atol=8 * digits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("seed", [0, 5, (1 << 63) - 2])
def test_dropout_is_the_same_to_the_bit(seed: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "_BLOCK", 1 << 16)
    x = torch.randn(SIZE, generator=torch.Generator().manual_seed(2)).to(dtype)
    maps = x[: 2 * 64 * 40 * 25].view(2, 40, 25, 64).permute(0, 3, 1, 2)  # channels last
    for tensor in (x, maps, x[:0]):
        for dropped in (1, LEVELS // 3, LEVELS - 1):
            with monkeypatch.context() as patch:
                on = fused.drop(tensor, seed, dropped, LEVELS / (LEVELS - dropped))
                off(patch, Switch.FUSED)
                without = fused.drop(tensor, seed, dropped, LEVELS / (LEVELS - dropped))
            assert on.stride() == without.stride() == tensor.stride()
            assert torch.equal(on.signbit(), without.signbit())
            assert torch.equal(on, without)


def test_a_draw_by_the_equations() -> None:
    """With Python's whole numbers, which know no overflow."""
    seed, words = 0x0123456789ABCDEF, 1 << 32
    for position in (0, 1, 12345, words - 1):
        h = (position * 0x9E3779B1 + (seed & 0xFFFFFFFF)) % words
        h = ((h ^ (h >> 16)) * 0x85EBCA6B + (seed >> 32)) % words
        h = ((h ^ (h >> 16)) * 0x21F0AAAD) % words
        h = ((h ^ (h >> 15)) * 0x735A2D97) % words
        assert draw(position, position + 1, seed).tolist() == [h ^ (h >> 15)]


# --- Off is off ------------------------------------------------------------------------------------------------------


def test_no_pass_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object) -> None:
        raise AssertionError

    off(monkeypatch, Switch.FUSED)
    monkeypatch.setattr(fused, "_over", refused)
    assert not fused.is_available()
    through_a_spike(SURROGATE_VALUES[0], torch.float32)()
    Dropout(0.5)(torch.ones(SIZE))


def test_no_other_thread_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(openmp, "_parallel", lambda: lambda function, task, count, flags: asked.append(count))
    with threads(2):
        fused.drop(torch.ones(SIZE), 5, 1 << 30, 1.25)
        assert asked == [2]
        off(monkeypatch, Switch.THREADS)
        fused.drop(torch.ones(SIZE), 5, 1 << 30, 1.25)
        assert asked == [2]


def test_the_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> None:
        raise AssertionError

    monkeypatch.setattr(allocator, "_glibc", refused)
    off(monkeypatch, Switch.ALLOCATOR)
    with retain_freed_memory():
        pass


def test_the_potential_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    u = nn.BatchNorm1d(3)(torch.randn(5, 3, requires_grad=True) * 1)
    assert recomputation.recomputable(u) is not None
    off(monkeypatch, Switch.RECOMPUTATION)
    assert recomputation.recomputable(u) is None


# --- Without Numba ---------------------------------------------------------------------------------------------------

WITHOUT_NUMBA = """
import sys
for package in ("numba", "llvmlite"):
    sys.modules[package] = None  # looked for in vain, by whatever means
import torch
from small_step import gradients
from picojoule.neurons.surrogate import SURROGATES
from picojoule.kernels import fused
assert not fused.is_available()
torch.save({name: gradients(kind()) for name, kind in SURROGATES.items()}, sys.argv[1])
"""


@pytest.mark.slow
def test_neurons_and_dropout_are_the_same_without_numba(tmp_path: Path) -> None:
    path = os.pathsep.join(sys.path)
    finished = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA, str(tmp_path / "steps.pt")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    without = torch.load(tmp_path / "steps.pt")
    for name, kind in SURROGATES.items():
        with_numba = gradients(kind())
        assert torch.equal(with_numba[0], without[name][0])
        torch.testing.assert_close(with_numba, without[name], rtol=1e-4, atol=1e-6)


def test_numba_is_imported_by_one_module() -> None:
    sources = ROOT / "src" / "picojoule"
    importing = re.compile(r"^\s*(?:from|import) (?:numba|llvmlite)\b", flags=re.MULTILINE)
    found = [path.relative_to(sources) for path in sources.rglob("*.py") if importing.search(path.read_text("utf-8"))]
    assert found == [Path("kernels/jit.py")]
