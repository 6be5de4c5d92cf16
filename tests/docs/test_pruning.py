"""The pruning example on digits: ψ follows the masks, bill and penalty fall, and fine-tuning with Ω_syn works."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

import picojoule as pj
import tiny

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "pruning.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("pruning", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    recipe = tiny.recipe("data.limit=1000", "training.epochs=8", "penalty.strength=0")
    return pj.fit(recipe, tmp_path_factory.mktemp("runs"))


def weights(net: nn.Module) -> list[torch.Tensor]:
    return [m.weight.detach() for m in net.modules() if isinstance(m, nn.Conv2d | nn.Linear)]


@pytest.mark.parametrize("amount", [0.5, 0.8])
@pytest.mark.slow
def test_a_trained_network_pruned_and_fine_tuned(example: ModuleType, run: pj.Run, amount: float) -> None:
    net, data = pj.load_model(run), pj.data.load("digits", limit=1000)
    dense, bill, synapses = example.measured(net, data)
    stored = run.result.test
    assert (dense, bill.joules) == (stored.accuracy, pytest.approx(stored.joules, rel=1e-9, abs=0))
    lean = example.pruned(net, amount)
    at_once, lean_bill, left = example.measured(lean, data)
    share = sum(int((w != 0).sum()) for w in weights(lean)[1:]) / sum(w.numel() for w in weights(lean)[1:])
    assert share == pytest.approx(1 - amount, abs=0.01)
    assert left.synapses < synapses.synapses * (1 - amount / 2)
    assert lean_bill.joules < bill.joules
    assert lean_bill.encoder_macs == bill.encoder_macs  # the first layer is not pruned
    found = []
    for strength in (0.0, 2.0):
        torch.manual_seed(0)  # of dropout
        found.append(example.fine_tuned(example.pruned(net, amount), data, 6, strength, lr=0.01))
    plain, thrifty = found
    (accuracy, spent, after), (thrifty_accuracy, thrifty_spent, _) = (
        example.measured(x, data) for x in (plain, thrifty)
    )
    assert after.synapses == left.synapses  # what was pruned stays pruned
    assert thrifty_spent.joules < 0.95 * spent.joules
    print(f"dense {dense:.3f}, pruned {at_once:.3f}, fine-tuned {accuracy:.3f}, penalised {thrifty_accuracy:.3f}")
    assert min(accuracy, thrifty_accuracy) > 0.4
    if amount == 0.8:  # a half is hardly missed; of more, fine-tuning brings back some of what pruning took
        assert min(accuracy, thrifty_accuracy) > at_once + 0.1


@pytest.mark.parametrize("amount", [0.5, 0.8])
def test_psi_of_cnn7_is_that_of_its_masks(example: ModuleType, amount: float) -> None:
    net = example.pruned(pj.zoo.create("cnn7"), amount)
    synapses = pj.trace(net, torch.zeros(1, 1, 32, 32))
    # Without padding every weight of a layer is used once for each place of its output map.
    places = {"spike1": 13**2, "spike2": 8**2, **dict.fromkeys(("spike3", "spike4", "spike5", "spike6"), 6**2)}
    for i, (name, layer) in enumerate(synapses.items(), start=2):
        mask = getattr(net, f"conv{i}").weight_mask
        assert layer.synapses == int(mask.sum()) * places[name]
        assert layer.targets[0].weights == int(mask.sum())


@pytest.mark.slow
def test_the_example_prints_its_table(
    example: ModuleType, run: pj.Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["pruning.py", str(run.path), "--prune", "0.5", "--epochs", "1"])
    example.main()
    head, rule, *rows = capsys.readouterr().out.splitlines()
    assert [line.count("|") for line in (head, rule, *rows)] == [8] * 5
    assert [row.split("|")[2].strip() for row in rows] == ["no", "without penalty", "Ω_syn, λ' = 32"]
