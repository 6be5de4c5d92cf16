"""Every run folder is found, and what cannot be read of it is said, never raised."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import picojoule as pj
import synthetic
from picojoule.report import gather
from picojoule.report.collection import SHOWN_EPOCHS, Entry

RECIPE = synthetic.recipes(kinds=["syn"], powers=[1], strengths=[8], seeds=[0], epochs=6)[0]


def only(folder: Path) -> Entry:
    (entry,) = gather(folder)
    return entry


def test_runs_are_found_at_any_depth(tmp_path: Path) -> None:
    for folder, seed in (("", 0), ("sweep", 1), ("sweep/deeper", 2)):
        synthetic.write(tmp_path / folder, RECIPE.override(f"seed={seed}"))
    (tmp_path / "report" / "figures").mkdir(parents=True)
    (tmp_path / "report" / "report.html").write_text("<html>")
    collection = gather(tmp_path)
    assert [entry.recipe.seed for entry in collection if entry.recipe] == [0, 1, 2]
    assert [Path(entry.name).parent.as_posix() for entry in collection] == [".", "sweep", "sweep/deeper"]
    assert collection.counts == {"finished": 3, "unfinished": 0, "failed": 0, "damaged": 0}


def test_a_run_folder_itself(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, RECIPE)
    entry = only(run.path)
    assert (entry.name, entry.state, entry.reason, entry.epochs) == (RECIPE.name, "finished", "", 6)
    assert entry.recipe == RECIPE
    assert entry.test is not None
    stored = json.loads((run.path / "result.json").read_text())["test"]
    assert entry.test.to_dict() == stored
    assert [epoch.joules for epoch in entry.training] == [line.joules for line in run.metrics]


def test_an_unfinished_and_a_failed_run(tmp_path: Path) -> None:
    run = synthetic.write(tmp_path, RECIPE, finished=False)
    assert (only(tmp_path).state, only(tmp_path).reason) == ("unfinished", "3 of 6 epochs are done")
    run.write_failure("the loss became nan")
    assert (only(tmp_path).state, only(tmp_path).reason) == (
        *("failed", "the loss became nan (3 of 6 epochs are done)"),
    )
    (run.path / "metrics.jsonl").unlink()
    (run.path / "failure.txt").unlink()
    assert only(tmp_path).reason == "0 of 6 epochs are done"


def changed(**changes: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        result["test"] |= changes
        (folder / "result.json").write_text(json.dumps(result))

    return damage


def written(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


LAYER = {"name": "spike1", "neurons": 3, "synops": 1.0, "joules": 1e-12, "rate": 0.1, "dead_rate": 0.0}


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (written("recipe.toml", b"seed = ["), "not valid TOML"),
        (written("recipe.toml", b"\xff"), "not UTF-8"),
        (written("recipe.toml", b'model.name = "cnn7"'), "data.name is missing"),
        (lambda folder: (folder / "recipe.toml").unlink(), "no recipe.toml"),
        (written("result.json", b'{"test": {"accur'), "result.json cannot be read"),
        (written("result.json", b"\x80"), "result.json cannot be read"),
        (written("result.json", b"[]"), "no test object"),
        (written("result.json", b"null"), "no test object"),
        (written("result.json", b"{}"), "no test object"),
        (written("result.json", b'{"test": 3}'), "not a valid result"),
        (changed(accuracy=1.5), "accuracy"),
        (changed(accuracy="much"), "accuracy"),
        (changed(joules=-1), "joules"),
        (changed(joules=float("nan")), "joules"),
        (changed(layers=None), "layers"),
        (changed(layers=[{}]), "layers.0.name"),
        (written("result.json", b"[" * 200_000), "result.json cannot be read"),
        (changed(joules=1e308), "joules"),
        (changed(joules=5e-324), "joules"),
        (changed(rate_mean=-1e308), "rate_mean"),
        (changed(layers=[LAYER | {"joules": 1e308}]), "layers.0.joules"),
        (changed(layers=[LAYER | {"joules": -1.0}]), "layers.0.joules"),
        (changed(layers=[LAYER | {"neurons": 10**400}]), "layers.0.neurons"),
    ],
)
def test_a_damaged_run_is_listed_with_its_reason(tmp_path: Path, damage: Callable[[Path], None], words: str) -> None:
    run = synthetic.write(tmp_path, RECIPE)
    synthetic.write(tmp_path, RECIPE.override("seed=1"))
    damage(run.path)
    collection = gather(tmp_path)
    assert collection.counts == {"finished": 1, "unfinished": 0, "failed": 0, "damaged": 1}
    (damaged,) = [entry for entry in collection if entry.state == "damaged"]
    assert damaged.test is None
    assert words in damaged.reason
    assert "\n" not in damaged.reason


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff\n", b"nonsense\n", b"[]\n", b"{}\n", b"[" * 200_000),
        *(b'{"epoch": 0, "joules": "many"}\n', b'{"epoch": 0, "joules": 1e308}\n', b'{"epoch": %s}\n' % (b"9" * 400)),
    ],
)
def test_damaged_metrics_leave_the_result(tmp_path: Path, content: bytes) -> None:
    run = synthetic.write(tmp_path, RECIPE)
    (run.path / "metrics.jsonl").write_bytes(content)
    entry = only(tmp_path)
    assert (entry.state, entry.training) == ("finished", ())
    assert entry.test is not None
    assert "metrics.jsonl" in entry.reason


@pytest.mark.parametrize("epochs", [1, 2, SHOWN_EPOCHS, SHOWN_EPOCHS + 1, 150])
def test_long_training_curves_are_thinned_out(tmp_path: Path, epochs: int) -> None:
    run = synthetic.write(tmp_path, RECIPE.override(f"training.epochs={epochs}"))
    entry = only(tmp_path)
    shown = [epoch.epoch for epoch in entry.training]
    assert entry.epochs == len(run.metrics) == epochs
    assert len(shown) == min(epochs, SHOWN_EPOCHS)
    assert shown == sorted(set(shown))
    assert (shown[0], shown[-1]) == (0, epochs - 1)
    assert all(epoch.train_loss == run.metrics[epoch.epoch].train_loss for epoch in entry.training)


def test_folders_without_runs(tmp_path: Path) -> None:
    with pytest.raises(pj.PicojouleError, match="holds no run folders"):
        gather(tmp_path)
    with pytest.raises(pj.PicojouleError, match="there is no folder"):
        gather(tmp_path / "absent")
