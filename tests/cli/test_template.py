"""`picojoule init` and the shipped recipes: what a newcomer has runs at once, wherever he stands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import picojoule as pj
from picojoule.cli import main
from picojoule.errors import PicojouleError
from picojoule.recipe.shipped import shipped_names

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[2]


def command(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["picojoule", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("network", "pictures"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_new_project_trains_at_once_and_resumes(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "init", "mine") == 0
    written = capsys.readouterr().out.split()
    assert [Path(path).name for path in written] == ["recipe.toml", "network.py", "pictures.py"]
    monkeypatch.chdir("mine")
    few = ("training.epochs=3", "training.threads=1")
    assert command(monkeypatch, "train", "recipe.toml", *few) == 0
    run = pj.Run(capsys.readouterr().out.strip())
    assert run.recipe.model.args == {"width": 16}
    assert run.result.test.accuracy > 0.8
    assert command(monkeypatch, "train", "recipe.toml", *few) == 0
    assert capsys.readouterr().out.strip() == str(run.path)
    assert command(monkeypatch, "evaluate", run.path, "--trust") == 0
    assert "2 Spike" in capsys.readouterr().out
    monkeypatch.chdir("..")
    assert command(monkeypatch, "init", "mine") == 2
    assert "mine/recipe.toml is there already" in capsys.readouterr().err


def test_shipped_recipes_are_found_by_name_outside_a_checkout(elsewhere: Path) -> None:
    assert len(shipped_names()) >= 15
    recipe = pj.Recipe.load("smoke/digits")
    assert recipe == pj.Recipe.load(ROOT / "recipes" / "smoke" / "digits.toml")
    assert pj.Recipe.load("recipes/smoke/digits.toml", "seed=1") == recipe.override("seed=1")
    assert len(pj.sweep.load("smoke/digits-sweep")) > 1
    with pytest.raises(PicojouleError, match=r"there is no recipe smoke/digit: did you mean smoke/digits"):
        pj.Recipe.load("smoke/digit")


def test_a_file_of_the_users_comes_before_a_shipped_recipe(elsewhere: Path) -> None:
    Path("smoke").mkdir()
    Path("smoke/digits").write_text('model.name = "vgg11"\ndata.name = "cifar-10"\n')
    assert pj.Recipe.load("smoke/digits").model.name == "vgg11"


def test_the_wheel_has_the_recipes_where_they_are_looked_for() -> None:
    included = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]["targets"]
    assert included["wheel"]["force-include"] == {"recipes": "picojoule/recipe/shipped_recipes"}


def test_tables_name_the_class_of_a_numbered_layer_and_json_does_not() -> None:
    net = nn.Sequential(nn.Linear(4, 3), pj.Spike(), nn.Linear(3, 2))
    synapses = pj.trace(net, torch.zeros(1, 4))
    assert "1 Spike" in str(synapses)
    assert [layer["name"] for layer in synapses.to_dict()["layers"]] == ["1"]
    meter = pj.EnergyMeter(synapses)
    with pj.watch(net) as activity:
        net(torch.ones(2, 4))
    meter.update(activity)
    assert "1 Spike" in str(meter.compute())
    assert [layer["name"] for layer in meter.compute().to_dict()["layers"]] == ["1"]


def test_a_run_is_named_by_itself_or_its_path(tmp_path: Path) -> None:
    run = pj.Run(tmp_path)
    assert pj.Run(str(tmp_path)) == run  # type: ignore[arg-type]
    assert pj.Run(pj.Run.of(pj.Recipe.load("smoke/digits"), tmp_path)).given_model == "cnn7"  # type: ignore[arg-type]
    with pytest.raises(PicojouleError, match="is not a run folder"):
        pj.load_model(str(tmp_path))
    with pytest.raises(PicojouleError, match="a run is named by its path, not by int"):
        pj.load_model(7)  # type: ignore[arg-type]


def test_the_command_to_go_on_with_can_be_pasted(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "init", "my project") == 0
    assert "cd 'my project' && picojoule train recipe.toml" in capsys.readouterr().err
