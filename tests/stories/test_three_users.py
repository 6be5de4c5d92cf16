"""Three users from their first file to what they came for: a researcher, an engineer, a student. All by commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import nir
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import picojoule as pj
from frameworks import need

pytestmark = pytest.mark.slow
Picojoule = Callable[..., str]

SNNTORCH = """
import snntorch as snn
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, in_channels, input_shape, steps, width=32):
        super().__init__()
        _, height, wide = input_shape
        self.first, self.lif1 = nn.Linear(in_channels * height * wide, width), snn.Leaky(beta=0.9)
        self.last, self.steps = nn.Linear(width, classes), steps

    def forward(self, x):  # [B, C, H, W]
        mem, logits = self.lif1.reset_mem(), []
        for _ in range(self.steps):
            spikes, mem = self.lif1(self.first(x.flatten(1)), mem)
            logits.append(self.last(spikes))
        return torch.stack(logits)  # [T, B, classes], averaged over time
"""
CNN = """
import picojoule as pj
from torch import nn

class Net(nn.Sequential):
    def __init__(self, classes, in_channels):
        super().__init__(
            nn.Conv2d(in_channels, 8, 3, padding=1), nn.BatchNorm2d(8), pj.Spike(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), pj.Spike(),
            nn.AvgPool2d(6), nn.Flatten(), nn.Linear(16, classes),
        )
"""
TRAINING = """
optimizer.lr = 0.01
training.epochs = 14
training.batch_size = 15
training.precision = "32"
training.threads = 1
"""


@pytest.fixture
def picojoule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Picojoule:
    """The command in a folder with pictures of three shapes, beside the newest packages, which a framework may lack."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for number in range(300):
        shape, place = number % 3, Path("photos", ("bar", "square", "stripe")[number % 3])
        place.mkdir(parents=True, exist_ok=True)
        picture = rng.integers(0, 80, (12, 12))
        across, down = rng.integers(1, 6, 2)
        picture[down : down + (2, 5, 9)[shape], across : across + (9, 5, 2)[shape]] += 150
        Image.fromarray(picture.astype(np.uint8)).save(place / f"{number}.png")
    packages = [str(Path(module.__file__ or "").parents[1]) for module in (torch, pj)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(packages)}

    def run(*arguments: object) -> str:
        command = [sys.executable, "-m", "picojoule", *map(str, arguments)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def recipe(model: str, *more: str) -> str:
    return "\n".join((f'model.name = "{model}"', 'data.name = "folder:photos"', *more, TRAINING))


def test_a_researcher_with_a_network_of_snntorch_ends_with_a_latex_table(picojoule: Picojoule) -> None:
    need("snntorch")
    Path("nets.py").write_text(SNNTORCH)
    Path("recipe.toml").write_text(recipe("nets:Net", 'neuron.kind = "lif"', "neuron.steps = 8"))
    run = pj.Run(picojoule("train", "recipe.toml", "--budget", "50%").splitlines()[-1])
    result = run.result
    print(f"{result.test.accuracy:.1%} right, {result.validation.joules} J, {result.budget}")
    assert result.budget is not None
    assert result.budget.met
    assert result.test.accuracy > 0.6
    table = picojoule("evaluate", run.path, "--trust", "--hardware", "horowitz-45nm-fp32,loihi", "--latex")
    assert table.startswith(r"\begin{tabular}")
    assert "lif1" in table
    assert "dense ReLU twin" in table
    assert r"\begin{tabular}" in picojoule("evaluate", run.path, "--trust", "--by", "weights", "--latex")


@pytest.mark.filterwarnings("ignore:nirtorch.load:DeprecationWarning")
@pytest.mark.parametrize("reader", ["spikingjelly", "sinabs"])
def test_an_engineer_with_a_limit_hands_a_network_to_another_program(reader: str, picojoule: Picojoule) -> None:
    need(reader)
    Path("nets.py").write_text(CNN)
    Path("recipe.toml").write_text(recipe("nets:Net"))
    run = pj.Run(picojoule("train", "recipe.toml", "--budget", "0.02 uJ", "--strict").splitlines()[-1])
    validation = run.result.validation
    print(f"{run.result.test.accuracy:.1%} right, {validation.joules} J")
    assert validation.joules is not None
    assert validation.joules <= 0.02e-6
    assert run.result.test.accuracy > 0.6
    picojoule("export", run.path, "--to", "nir", "--reader", reader, "--out", "net.nir", "--trust")
    facts = json.loads(Path("net.nir.json").read_text())
    assert facts["class_names"] == ["bar", "square", "stripe"]
    pictures = torch.stack([torch.from_numpy(np.array(Image.open(f))) for f in sorted(Path("photos").glob("*/*.png"))])
    given = (pictures[:, None] * facts["scale"] - facts["mean"][0]) / facts["deviation"][0]
    with torch.no_grad():
        theirs, ours = answers(reader, given), pj.load_model(run, trust=True)(given)
    assert torch.equal(theirs.argmax(1), ours.argmax(1))
    assert ours.argmax(1).unique().numel() == 3


def answers(reader: str, images: Tensor) -> Tensor:
    if reader == "spikingjelly":
        read = need("spikingjelly.activation_based.nir_exchange").import_from_nir("net.nir", dt=1.0)
    else:
        read = need("sinabs.nir").from_nir(nir.read("net.nir"), batch_size=len(images))
        for module in read.modules():
            if hasattr(module, "spike_fn"):
                module.spike_fn = need("sinabs.activation").SingleSpike
    logits: Tensor = read(images)[0]
    return logits


def test_a_student_with_pictures_goes_from_frontier_to_report(picojoule: Picojoule) -> None:
    picojoule("init", "project")
    Path("network.py").write_text(Path("project/network.py").read_text())
    few = ("data.name=folder:photos", "model.args.width=6", "training.epochs=8", "training.batch_size=15")
    picojoule(
        "frontier", "project/recipe.toml", *few, "--into", "frontier", "--points", 4, "--first", 4, "--stretch", 3
    )
    chosen = json.loads(picojoule("pick", "frontier", "--max-loss", 30, "--json"))["chosen"]
    print(chosen)
    best = pj.Run(chosen["best"])
    assert best.recipe.data.name == "folder:photos"
    page = Path(picojoule("report", "frontier", "--out", "page").splitlines()[-1])
    assert page.is_file()
    assert "folder:photos" in page.read_text()
    picture = next(Path("photos/bar").iterdir())
    answer = json.loads(picojoule("infer", best.path, picture, "--trust", "--json"))["images"][0]
    assert answer["class_name"] in ("bar", "square", "stripe")
