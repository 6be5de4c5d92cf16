"""Runs on data of the user's own, from the recipe to every command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import picojoule as pj
from command_line import Command
from picojoule.errors import PicojouleError

MODULE = """
from pathlib import Path
import numpy as np
import torch
from torch import nn
import picojoule as pj
from command_line import Command

Path("imported").touch()

def parts():
    Path("called").touch()
    rng = np.random.default_rng(0)
    y = np.arange(120) % 2
    return [(rng.normal(size=(120, 1, 6, 6)).astype("float32") + y[:, None, None, None], y)]

def net(classes, in_channels, input_shape, width=4):
    size = width * (input_shape[1] - 2) * (input_shape[2] - 2)
    return nn.Sequential(
        nn.Conv2d(in_channels, width, 3), nn.BatchNorm2d(width), pj.Spike(), nn.Flatten(), nn.Linear(size, classes)
    )

class OverTime(nn.Module):
    def __init__(self, classes, in_channels, steps):
        super().__init__()
        self.first, self.neuron = nn.Linear(in_channels * 36, 8), pj.LIF(steps=steps)
        self.last, self.steps = nn.Linear(8, classes), steps

    def forward(self, x):  # [T, B, C, H, W]
        y = self.last(self.neuron(self.first(x.flatten(2).flatten(0, 1))))
        return y.unflatten(0, (self.steps, -1))  # [T, B, classes], averaged over time
"""

RECIPE = """
model.name = "mine:net"
optimizer.lr = 0.01
training.epochs = 2
training.batch_size = 20
training.precision = "32"
training.threads = 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    Path("mine.py").write_text(MODULE)
    yield tmp_path
    sys.modules.pop("mine", None)


def pictures(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(60):
        label = number % 2
        place = folder / ("cat", "dog")[label]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray((rng.integers(0, 90, (6, 6)) + 120 * label).astype(np.uint8)).save(place / f"{number}.png")


def arrays(path: str, shift: float = 0.0, shape: tuple[int, ...] = (1, 6, 6)) -> None:
    rng, y = np.random.default_rng(0), np.arange(120) % 2
    x = (rng.normal(size=(120, *shape)) + y.reshape(-1, *[1] * len(shape)) + shift).astype(np.float32)
    np.savez(path, x_train=x, y_train=y)


def recipe(data: str, *overrides: str) -> pj.Recipe:
    return pj.Recipe.loads(RECIPE, f"data.name={data}", *overrides)


@pytest.mark.parametrize(
    "name", ["mine:parts", *(pytest.param(name, marks=pytest.mark.slow) for name in ("folder:photos", "file.npz"))]
)
def test_every_command_takes_own_data(here: Path, command: Command, name: str) -> None:
    pictures(here / "photos")
    arrays("file.npz")
    Path("recipe.toml").write_text(recipe(name).to_toml())
    status, out, err = command("train", "recipe.toml", "--into", "runs")
    assert status == 0, err
    run = pj.Run(out.strip())
    assert "--trust" in err
    stored = run.recipe.data
    assert (stored.shape, stored.classes, len(stored.content or "")) == ((1, 6, 6), 2, 16)
    assert f"-{name.replace('mine:parts', 'parts').removeprefix('folder:').removesuffix('.npz')}-" in run.path.name
    assert command("train", "recipe.toml", "--into", "runs")[:2] == (0, out)  # finished: returned at once

    status, out, err = command("evaluate", run.path, "--trust", "--json")
    assert status == 0, err
    evaluated = json.loads(out)
    assert evaluated["accuracy"] == run.result.test.accuracy
    assert evaluated["synops"] == run.result.test.synops
    status, out, err = command("infer", run.path, "--split", "test", "--limit", 3, "--trust", "--json")
    assert status == 0, err
    images = json.loads(out)["images"]
    assert len(images) == 3
    assert images[0]["class_name"] in (("cat", "dog") if name == "folder:photos" else (None,))
    status, out, err = command("export", run.path, "--to", "onnx", "--trust")
    assert status == 0, err
    assert Path(out.strip()).is_file()


@pytest.mark.slow
def test_sweeps_frontiers_budgets_picks_and_reports_take_own_data(here: Path, command: Command) -> None:
    pictures(here / "photos")
    Path("recipe.toml").write_text(recipe("folder:photos").to_toml())
    text = Path("recipe.toml").read_text() + "\n[[axes]]\npenalty.strength = [0, 1]\n"
    Path("sweep.toml").write_text(text)
    status, out, err = command("sweep", "sweep.toml", "--into", "runs", "--workers", 1, "--json")
    assert status == 0, err
    assert len(json.loads(out)["runs"]) == 2
    status, out, err = command("frontier", "recipe.toml", "--into", "runs", "--points", 2, "--json")
    assert status == 0, err
    status, out, err = command("train", "recipe.toml", "--budget", "50%", "training.epochs=4", "--into", "runs")
    assert status == 0, err
    status, out, err = command("pick", "runs", "--max-loss", 50, "--json")
    assert status == 0, err
    chosen = pj.Run(json.loads(out)["chosen"]["best"])
    assert chosen.recipe.data.name == "folder:photos"
    sys.modules.pop("mine", None)
    Path("imported").unlink()
    status, out, err = command("report", "runs", "--out", "page")
    assert status == 0, err
    assert not Path("imported").exists()  # a report only reads


def test_the_content_is_part_of_the_run(here: Path) -> None:
    arrays("file.npz")
    first = pj.fit(recipe("file.npz"), "runs")
    arrays("file.npz", shift=0.5)
    second = pj.fit(recipe("file.npz"), "runs")
    assert first.path != second.path
    with pytest.raises(PicojouleError, match=r"the data 'file\.npz' have changed .* bring back the data"):
        pj.evaluate(first.path, trust=True)
    assert pj.evaluate(second).accuracy == second.result.test.accuracy


def test_floats_are_neither_augmented_nor_mixed_with_pictures(here: Path, command: Command) -> None:
    arrays("file.npz")
    pictures(here / "photos")
    with pytest.raises(PicojouleError, match=r"data\.augment = true is for .* of uint8, .*'file\.npz' are floats"):
        pj.fit(recipe("file.npz", "data.augment=true"), "runs")
    assert not Path("runs").exists()
    run = pj.fit(recipe("file.npz"), "runs")
    status, out, err = command("infer", run.path, "photos/cat/0.png", "--trust")
    assert (status, out) == (2, "")
    assert "trained on floats of a scale that is not known: give --split" in err
    assert len(pj.infer(run, split="test", limit=2).answers) == 2
    augmented = pj.fit(recipe("folder:photos", "data.augment=true", "training.epochs=1"), "runs")
    assert len(pj.infer(augmented, ["photos/cat/0.png"]).answers) == 1


def test_data_are_given_in_python(here: Path) -> None:
    torch.manual_seed(0)
    y = torch.arange(120) % 2
    given = [(torch.randn(120, 1, 6, 6) + y[:, None, None, None], y)]
    run = pj.fit(recipe("own"), "runs", data=given)
    assert pj.evaluate(run, data=given).accuracy == run.result.test.accuracy
    assert pj.fit(recipe("own"), "runs", data=given).path == run.path
    assert len(pj.infer(run, split="test", limit=2, data=given).answers) == 2
    with pytest.raises(PicojouleError, match="give them with data=…"):
        pj.evaluate(run)
    with pytest.raises(PicojouleError, match="is a data set that picojoule knows"):
        pj.fit(recipe("digits"), "runs", data=given)


def test_frames_over_time_train_a_network_over_time(here: Path) -> None:
    arrays("file.npz", shape=(4, 1, 6, 6))
    over_time = recipe(
        "file.npz", "model.name=mine:OverTime", "neuron.kind=lif", "neuron.steps=4", "penalty.strength=1"
    )
    run = pj.fit(over_time, "runs")
    assert run.result.test.steps == 4
    assert run.recipe.data.shape == (4, 1, 6, 6)
    assert pj.evaluate(run).energy is not None
    budget = pj.fit(over_time.override("penalty.strength=0", "penalty.budget=0.5", "training.epochs=4"), "runs")
    assert budget.result.budget is not None
    answers = pj.infer(run, split="test", limit=2, engine="dense").answers
    assert [answer.class_ in (0, 1) for answer in answers] == [True, True]
    with pytest.raises(PicojouleError, match=r"whose samples have 4 frames: take neuron\.steps = 4"):
        pj.fit(over_time.override("neuron.steps=3"), "runs")


def test_a_factory_of_data_waits_for_consent(here: Path, command: Command) -> None:
    run = pj.fit(recipe("mine:parts"), "runs")
    pj.evaluate(run)  # its recipe was the caller's own
    sys.modules.pop("mine")
    for mark in ("imported", "called"):
        Path(mark).unlink()
    Path("theirs").mkdir()
    text = run.recipe.with_values(model={"name": "cnn7"}, data={"shape": [1, 32, 32]}).to_toml()
    Path("theirs/recipe.toml").write_text(text)
    net = pj.zoo.create("cnn7", classes=2)
    pj.Run("theirs").write_weights(net.state_dict())
    for wanted in (("evaluate",), ("infer", "--split", "test")):
        status, out, err = command(wanted[0], "theirs", *wanted[1:])
        assert (status, out) == (2, "")
        assert "names the data 'mine:parts'" in err
        assert "add --trust" in err
    status, _, err = command("evaluate", "theirs", "--model", "cnn7")
    assert status == 2
    assert not Path("imported").exists()


def test_arguments_reach_the_factory_and_are_part_of_the_run(here: Path) -> None:
    arrays("file.npz")
    wide = recipe("file.npz", "model.args.width=6")
    assert wide.model.args == {"width": 6}
    assert wide.digest != recipe("file.npz").digest
    run = pj.fit(wide, "runs")
    assert run.recipe.model.args == {"width": 6}
    assert pj.load_model(str(run.path), trust=True)[0].out_channels == 6
    with pytest.raises(PicojouleError, match=r"check model\.args \(wdth\)"):
        pj.fit(recipe("file.npz", "model.args.wdth=6"), "runs")
    with pytest.raises(PicojouleError, match=r"model\.args is not allowed with model\.name = 'cnn7'"):
        pj.Recipe.loads('model.name = "cnn7"\ndata.name = "digits"\nmodel.args.width = 6')


class Unusual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(2, 2)

    def forward(self, x: Tensor) -> Any:
        return self.net(x), x


def test_what_a_network_returns_is_logits_or_refused() -> None:
    from picojoule.neurons.time_steps import logits_of

    assert torch.equal(logits_of(torch.ones(3, 5, 2), 5), torch.ones(5, 2))
    with pytest.raises(PicojouleError, match="returned tuple: let it return the logits alone"):
        logits_of(Unusual()(torch.zeros(5, 2)), 5)
    with pytest.raises(PicojouleError, match=r"returned \(4, 2\) for 5 samples"):
        logits_of(torch.zeros(4, 2), 5)
    with pytest.raises(PicojouleError, match="has 2 outputs and the data have 3 classes"):
        logits_of(torch.zeros(5, 2), 5, 3)


def test_a_network_with_too_few_outputs_is_refused(here: Path, command: Command) -> None:
    (here / "few.py").write_text(
        "import picojoule as pj\nfrom torch import nn\n\ndef net(classes, input_shape):\n    c, h, w = input_shape\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(c * h * w, 4), pj.Spike(), nn.Linear(4, classes - 1))\n"
    )
    Path("recipe.toml").write_text(recipe("mine:parts").to_toml())
    status, _, err = command("train", "recipe.toml", "model.name=few:net")
    assert (status, err.count("\n")) == (2, 1)
    assert "has 1 outputs and the data have 2 classes" in err


def test_a_zoo_network_says_what_size_it_takes(here: Path) -> None:
    pictures(here / "photos")
    base = pj.Recipe.loads(RECIPE, "model.name=cnn7", "data.name=folder:photos")
    with pytest.raises(PicojouleError, match=r"are 1×6×6 .* takes images of 32×32: take data\.size = 32"):
        pj.fit(base, "runs")
    assert not Path("runs").exists()
