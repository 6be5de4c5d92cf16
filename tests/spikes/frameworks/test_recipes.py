"""Networks of other frameworks as the model of a recipe: trained, measured and held to a budget like any other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import picojoule as pj
from frameworks import need

MODULE = """
import snntorch as snn
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, classes, in_channels, steps, width=16, beta=0.9):
        super().__init__()
        self.first, self.lif1 = nn.Linear(in_channels * 64, width), snn.Leaky(beta=beta)
        self.last, self.steps = nn.Linear(width, classes), steps

    def forward(self, x):  # [B, C, H, W], or [T, B, C, H, W] with data over time
        mem, logits = self.lif1.reset_mem(), []
        for step in range(self.steps):
            now = x[step] if x.dim() == 5 else x
            spikes, mem = self.lif1(self.first(now[..., ::4, ::4].flatten(1)), mem)
            logits.append(self.last(spikes))
        return torch.stack(logits)  # [T, B, classes], averaged over time
"""
RECIPE = """
model.name = "snn_net:Net"
model.args = {width = 24}
data.name = "digits"
data.limit = 300
neuron.kind = "lif"
neuron.steps = 8
optimizer.lr = 0.01
training.epochs = 6
training.batch_size = 30
training.precision = "32"
training.threads = 1
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    need("snntorch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "snn_net", raising=False)
    Path("snn_net.py").write_text(MODULE)
    return tmp_path


def test_a_network_of_snntorch_over_time_is_trained_by_a_recipe(here: Path) -> None:
    recipe = pj.Recipe.loads(RECIPE)
    run = pj.fit(recipe, "runs")
    assert run.result.test.accuracy > 0.6
    assert (run.result.test.steps, [layer.name for layer in run.result.test.layers]) == (8, ["lif1"])
    assert pj.evaluate(str(run.path), trust=True).accuracy == run.result.test.accuracy
    model = pj.load_model(str(run.path), trust="snn_net:Net")
    assert model.first.out_features == 24
    budget = pj.fit(recipe.override("penalty.budget=0.5"), "runs").result
    assert budget.budget is not None
    assert budget.budget.met


@pytest.mark.parametrize(("strength", "least"), [(64, 0.25), (1000, 0.15)])
@pytest.mark.usefixtures("here")
def test_a_guard_keeps_a_network_of_snntorch_alive(strength: int, least: float) -> None:
    guarded = ("penalty.guard=true", f"penalty.strength={strength}", "optimizer.lr=0.003", "training.epochs=10")
    test = pj.fit(pj.Recipe.loads(RECIPE, *guarded, "data.limit=1200"), "runs").result.test
    print(f"strength {strength}: {test.accuracy:.1%} right, rates {[layer.rate for layer in test.layers]}")
    assert test.accuracy > least
    assert all(layer.rate for layer in test.layers)


def test_spikingjelly_reads_our_nir_and_gives_the_same_classes(tmp_path: Path) -> None:
    exchange, nir = need("spikingjelly.activation_based.nir_exchange"), need("nir")
    net = nn.Sequential(
        *(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), pj.Spike(0.2), nn.AvgPool2d(2)),
        *(nn.Conv2d(4, 8, 3), nn.BatchNorm2d(8), pj.Spike(0.2), nn.Flatten(), nn.Linear(32, 10)),
    ).eval()
    images = 3 * torch.randn(1000, 1, 8, 8)
    path = pj.export.write(net, images[:1], "nir", tmp_path / "net.nir", facts={"classes": 10})
    read = exchange.import_from_nir(nir.read(path), dt=1.0).eval()
    with torch.no_grad():
        theirs, ours = read(images), net(images)
    theirs = theirs[0] if isinstance(theirs, tuple) else theirs
    assert (theirs.reshape(1000, 10).argmax(1) == ours.argmax(1)).all()
    assert ours.argmax(1).unique().numel() > 2
