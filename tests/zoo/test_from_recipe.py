"""Networks with attention and with recurrence in all that a recipe is for: runs, budgets, curves, pictures, export."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import picojoule as pj
from command_line import Command
from picojoule.errors import PicojouleError
from picojoule.search.limits import Limits
from picojoule.search.pick import pick

STEPS = 3  # which does not divide the samples that engines are made with
RECIPE = """
[neuron]
kind = "lif"
steps = 3
reset = "zero"
[optimizer]
lr = 3e-3
[training]
epochs = 3
batch_size = 20
threads = 1
precision = "32"
"""
RECIPES = {
    "spikformer": """
model.name = "spikformer"
[data]
name = "digits"
limit = 160
limit_validation = 50
limit_test = 50
""",
    "rsnn": """
model.name = "rsnn"
[data]
name = "FILE"
encoding = "spikes"
normalize = false
""",
}
NOT_IN_NIR = {"spikformer": "'blocks.0.attention'", "rsnn": "'spike1' (Cell)"}


@pytest.fixture(scope="module", params=RECIPES)
def recipe(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> pj.Recipe:
    file = tmp_path_factory.mktemp("data") / "touches.npz"
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 4
    taxels = np.arange(6) % 4 == labels[:, None]  # every class presses taxels of its own
    rates = np.where(taxels, 1.0, 0.1)[:, None].repeat(STEPS, 1)
    np.savez(file, x_train=rng.poisson(rates).astype(np.float32)[..., None, None], y_train=labels)
    return pj.Recipe.loads(RECIPES[request.param].replace("FILE", str(file)) + RECIPE)


@pytest.fixture(scope="module")
def runs(recipe: pj.Recipe, tmp_path_factory: pytest.TempPathFactory) -> list[pj.Run]:
    folder = tmp_path_factory.mktemp("runs")
    high = ("penalty.strength=1000", "penalty.schedule=constant", "optimizer.lr=3e-2")
    changes = (("penalty.strength=0",), high, ("penalty.budget=50%",))  # too short to meet it, long enough to steer
    return [pj.fit(recipe.override(*change), folder) for change in changes]


@pytest.mark.slow
def test_it_is_trained_measured_and_picked(runs: list[pj.Run], command: Command) -> None:
    baseline, saving, _ = (run.result.test for run in runs)
    assert baseline.joules is not None
    assert saving.joules is not None
    assert saving.joules < baseline.joules
    assert pj.evaluate(runs[0]).to_dict() == baseline.to_dict()
    folder = runs[0].path.parent
    choice = pick(folder, Limits.read(None, "90%", None))
    assert choice.chosen is not None
    status, out, _ = command("report", folder, "--out", folder / "page", "--json")
    assert status == 0, out


@pytest.mark.slow
def test_it_answers_densely_and_the_event_engine_refuses_it(runs: list[pj.Run]) -> None:
    answers = pj.infer(runs[0], split="test", limit=4, engine="dense")
    assert len(answers.answers) == 4
    assert all(answer.synops > 0 for answer in answers.answers)
    with pytest.raises(PicojouleError, match=r"engine"):
        pj.infer(runs[0], split="test", limit=4, engine="events")


@pytest.mark.slow
def test_it_is_drawn_and_exported_or_refused(runs: list[pj.Run], tmp_path: Path, command: Command) -> None:
    run, name = runs[0].path, runs[0].recipe.model.name
    status, out, error = command("show", run, "--images", "4", "--out", tmp_path / "pictures", "--json")
    assert status == 0, error
    assert all(Path(path).stat().st_size for path in json.loads(out)["pictures"])
    status, out, error = command("export", run, "--to", "onnx", "--out", tmp_path / "net.onnx", "--json")
    if runs[0].recipe.frames is None:
        assert status == 0, error
        assert json.loads(out)["bytes"] > 10_000
    else:
        assert status == 2
        assert "takes recordings over time" in error
    status, out, error = command("export", run, "--to", "nir", "--out", tmp_path / "net.nir")
    assert status == 2
    assert NOT_IN_NIR[name] in error


@pytest.mark.slow
def test_its_curve_is_trained(recipe: pj.Recipe, tmp_path: Path) -> None:
    curve = pj.frontier(recipe.override("training.epochs=1"), tmp_path, pj.Plan(points=3))
    assert len(curve.runs) == 3
