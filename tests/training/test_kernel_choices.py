"""Runs whose layers skip silent inputs: recorded, resumed to the same bits, and dense where the recipe says so."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

import picojoule as pj
import tiny
from picojoule.errors import PicojouleError
from picojoule.kernels.event_driven import calibration, costs
from picojoule.kernels.event_driven.layers import choices
from picojoule.runs.result import KernelsResult
from picojoule.training import kernel_choices
from picojoule.training.fit import Interrupted
from tiny import BATCHES, Watcher, signal_to_self, traces

RECIPE = tiny.recipe("data.augment=true", "training.kernels=auto")


@pytest.fixture
def known_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is timed: the convolution is faster by events from somewhere within training, the readout always."""
    monkeypatch.setattr(costs, "break_even", lambda shape, kind, valued: 1.0 if shape.pixels == 1 else 0.3)


def kernels(run: pj.Run) -> KernelsResult:
    assert run.result.kernels is not None
    return run.result.kernels


def by_events(run: pj.Run) -> dict[str, int]:
    return {layer.name: layer.by_events for layer in kernels(run).layers}


def stopped(into: Path, batch: int) -> None:
    with pytest.raises(Interrupted):
        pj.fit(RECIPE, into, reporters=[Watcher(after_batch={batch: signal_to_self(signal.SIGTERM)})])


@pytest.mark.usefixtures("known_shares")
def test_the_result_records_what_was_chosen(tmp_path: Path) -> None:
    run = pj.fit(RECIPE, tmp_path)
    assert kernels(run).mode == "auto"
    assert [(layer.name, layer.batches, layer.break_even) for layer in kernels(run).layers] == [
        ("conv1", 3 * BATCHES, None if by_events(run)["conv1"] == 0 else 0.3),
        ("conv2", 3 * BATCHES, 0.3),
        ("out", 3 * BATCHES, 1.0),
    ]
    assert by_events(run)["out"] == 3 * BATCHES


@pytest.mark.usefixtures("known_shares")
@pytest.mark.parametrize(
    "batch", [BATCHES + 2, *(pytest.param(batch, marks=pytest.mark.slow) for batch in (1, BATCHES))]
)
def test_a_resumed_run_ends_with_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    undisturbed = traces(pj.fit(RECIPE, tmp_path / "undisturbed"))
    stopped(tmp_path / "stopped", batch)
    # In another version events would never be faster: what the run had found decides.
    monkeypatch.setattr(costs, "break_even", lambda shape, kind, valued: 0.0)
    resumed = pj.fit(RECIPE, tmp_path / "stopped")
    assert traces(resumed) == undisturbed
    assert by_events(resumed)["out"] == 3 * BATCHES


@pytest.mark.usefixtures("known_shares")
def test_dense_is_what_a_run_was_before_there_was_a_choice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = pj.fit(RECIPE.override("training.kernels=dense"), tmp_path)
    assert kernels(dense).to_dict() == {"mode": "dense", "layers": []}
    monkeypatch.setattr(kernel_choices, "sparse", lambda model, measured: model)
    before = pj.fit(RECIPE, tmp_path)
    assert torch.equal(weights(before), weights(dense))


def weights(run: pj.Run) -> torch.Tensor:
    return torch.cat([tensor.flatten().double() for tensor in run.weights.values()])


@pytest.mark.usefixtures("known_shares")
def test_a_run_begun_before_there_was_a_choice_goes_on_dense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dense = pj.fit(RECIPE.override("training.kernels=dense"), tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(kernel_choices, "sparse", lambda model, measured: model)
        stopped(tmp_path / "stopped", BATCHES + 1)
    resumed = pj.fit(RECIPE, tmp_path / "stopped")
    assert kernels(resumed).mode == "dense"
    assert torch.equal(weights(resumed), weights(dense))


@pytest.mark.usefixtures("known_shares")
def test_the_figures_are_those_of_the_dense_run(tmp_path: Path) -> None:
    """Up to the order of sums, before training has made something of the difference."""
    short = RECIPE.override("training.epochs=1")
    runs = [pj.fit(short.override(f"training.kernels={how}"), tmp_path) for how in ("auto", "dense")]
    a, b = (run.metrics[0] for run in runs)
    assert a.train_loss == pytest.approx(b.train_loss, rel=1e-3)
    assert a.train_accuracy == pytest.approx(b.train_accuracy, abs=0.02)


def test_the_name_of_a_run_does_not_depend_on_the_new_key() -> None:
    recipe = tiny.recipe()
    assert recipe.training.kernels is None
    assert "kernels" not in recipe.to_toml()
    assert recipe.override("training.kernels=dense").name != recipe.name


@pytest.mark.usefixtures("known_shares")
def test_without_the_key_a_run_has_the_bits_of_auto(tmp_path: Path) -> None:
    silent, said = (pj.fit(tiny.recipe(*how), tmp_path) for how in ((), ("training.kernels=auto",)))
    assert kernels(silent) == kernels(said)
    assert by_events(silent)["out"] == 3 * BATCHES
    assert all(torch.equal(tensor, said.weights[name]) for name, tensor in silent.weights.items())


def test_nothing_is_measured_unless_the_recipe_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(calibration, "break_even", lambda shape, kind, valued: asked.append(valued) or 0.9)
    short = tiny.recipe("training.epochs=1")
    assert kernels(pj.fit(short, tmp_path)).mode == "auto"
    assert asked == []
    run = pj.fit(short.override("training.kernels=measured"), tmp_path)
    assert kernels(run).mode == "measured"
    assert asked
    assert {layer.break_even for layer in kernels(run).layers} <= {0.9, None}


def test_choices_of_another_network_are_refused() -> None:
    net = pj.sparse(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    kept = kernel_choices.choices_to_tensor(net)
    assert kept is not None
    kernel_choices.restore_choices(net, kept)
    with pytest.raises(PicojouleError, match=r"^the checkpoint has choices for 2 layers, but the network has 1 that "):
        kernel_choices.restore_choices(net, torch.cat([kept, kept]))
    assert kernel_choices.choices_to_tensor(pj.dense(net)) is None


def test_other_devices_are_dense() -> None:
    net: Any = torch.nn.Linear(2, 2)
    kernel_choices.use_kernels(net, RECIPE, torch.device("cuda"))
    assert choices(net) == {}
    kernel_choices.use_kernels(net, RECIPE, torch.device("cpu"))
    assert list(choices(net)) == [""]
