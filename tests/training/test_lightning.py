"""The Lightning callback: it charges as a loop of one's own would, measures, logs, and goes on from a checkpoint."""

from __future__ import annotations

import csv
import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import picojoule as pj
from picojoule.errors import PicojouleError

EXAMPLE = Path(__file__).resolve().parents[2] / "docs" / "examples" / "lightning_digits.py"


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    with warnings.catch_warnings():  # Lightning's and torchmetrics' own affair
        warnings.simplefilter("ignore")
        spec = importlib.util.spec_from_file_location("lightning_digits", EXAMPLE)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        yield module


def trainer(example: ModuleType, callback: Any, **options: Any) -> Any:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    return example.pl.Trainer(callbacks=[callback], **{**quiet, "enable_model_summary": False, **options})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("accumulated", [1, 2])
def test_the_gradient_is_that_of_loss_and_charge(example: ModuleType, accumulated: int) -> None:
    module = example.Digits()
    module.configure_optimizers = lambda: torch.optim.SGD(module.parameters(), lr=1.0)
    before = {name: weight.clone() for name, weight in module.named_parameters()}
    training, _ = example.loaders()
    sample, batch = training.dataset[0][0][None], next(iter(training))
    batches = example.DataLoader([batch] * accumulated, batch_size=None)
    options = {"max_steps": 1, "limit_val_batches": 0, "accumulate_grad_batches": accumulated}
    trainer(example, pj.EnergyCallback(sample, strength=3.0), **options).fit(module, batches)

    own = example.Digits()
    own.load_state_dict({**own.state_dict(), **before})
    penalty = pj.Penalty(pj.trace(own, sample))
    with pj.watch(own.train()) as activity:
        logits = own(batch[0])
    (F.cross_entropy(logits, batch[1]) + 3.0 * penalty(activity)).backward()
    for name, weight in module.named_parameters():
        gradient = dict(own.named_parameters())[name].grad
        torch.testing.assert_close(before[name] - weight, gradient, rtol=1e-4, atol=1e-6)
    assert not [hook for m in module.modules() for hook in (m._forward_hooks or m._forward_pre_hooks)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_example_logs_what_the_network_spends(example: ModuleType, tmp_path: Path) -> None:
    trained, energy = example.train("csv", str(tmp_path), epochs=2)
    (file,) = tmp_path.rglob("metrics.csv")
    rows = list(csv.DictReader(file.open()))
    assert {"val_joules", "val_synops", "val_rate", "val_dead_rate", "val_total_joules", "train_strength"} <= set(
        rows[0]
    )
    assert energy.budget.target is not None
    last = [float(row["val_joules"]) for row in rows if row["val_joules"]][-1]
    assert energy.report.joules == pytest.approx(last, rel=1e-4)
    own = pj.EnergyMeter(pj.trace(trained.lightning_module, energy._sample[:1]))
    _, validation = example.loaders()
    for images, _ in validation:
        with torch.no_grad(), pj.watch(trained.lightning_module.eval()) as activity:
            trained.lightning_module(images)
        own.update(activity)
    assert own.compute().joules == pytest.approx(energy.report.joules)
    (checkpoint,) = tmp_path.rglob("*.ckpt")
    stored = torch.load(checkpoint, weights_only=False)["callbacks"]["EnergyCallback"]["budget"]
    assert stored["update"] == energy.budget.state_dict()["update"] > 60
    again = pj.EnergyCallback(energy._sample, budget="33%", classes=10)
    trainer(example, again, max_epochs=2).fit(example.Digits(), *example.loaders(), ckpt_path=checkpoint)
    assert again.budget.state_dict() == energy.budget.state_dict()
    assert example.train("tensorboard", str(tmp_path / "tb"), epochs=2)
    assert list((tmp_path / "tb").rglob("events.out*"))


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(PicojouleError, match="strength and budget exclude each other"):
        pj.EnergyCallback(torch.zeros(1, 4), strength=1.0, budget="30%")
    wrong: Any = [nn.Linear(1, 1)]
    with pytest.raises(PicojouleError, match="sample is a list, not a tensor"):
        pj.EnergyCallback(wrong)
