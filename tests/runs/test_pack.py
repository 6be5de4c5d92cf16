"""A pack of runs does what the folder did for reports, `pick`, experiments and sweeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import synthetic
from picojoule import report
from picojoule.errors import PicojouleError
from picojoule.paper import SCALES
from picojoule.paper.context import Context
from picojoule.runs.folder import Run, find_runs
from picojoule.runs.pack import pack
from picojoule.search import sweep
from picojoule.search.limits import Limits
from picojoule.search.pick import pick
from picojoule.training.fit import fit

RECIPES = synthetic.recipes(kinds=["syn", "total"], powers=[1], strengths=(0, 8, 64), seeds=(0, 1), epochs=2)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    synthetic.fill(tmp_path / "runs", RECIPES[1:])
    failed = synthetic.write(tmp_path / "runs", RECIPES[0], finished=False)
    failed.write_failure("the machine caught fire")
    (tmp_path / "runs" / "measured").mkdir()
    (tmp_path / "runs" / "measured" / "steps.json").write_text("[3]")
    (failed.path / "checkpoint-000001-00000000.safetensors").write_bytes(b"large")
    return tmp_path / "runs"


def test_every_run_is_read_as_it_was(folder: Path, tmp_path: Path) -> None:
    packed = pack(folder, tmp_path / "all.runs.zip")
    assert (packed.runs, packed.finished, packed.size) == (10, 9, packed.path.stat().st_size)
    there, here = find_runs(packed.path), find_runs(folder)
    assert [run.path.name for run in there] == [run.path.name for run in here]
    for one, other in zip(there, here, strict=True):
        assert (one.recipe, one.metrics, one.failure) == (other.recipe, other.metrics, other.failure)
        assert one.finished is other.finished
        assert not one.finished or one.result == other.result
    assert Run.at(there[0].path).recipe == here[0].recipe
    assert pack(folder, tmp_path / "again.runs.zip").path.read_bytes() == packed.path.read_bytes()


def test_reports_and_choices_are_the_same(folder: Path, tmp_path: Path) -> None:
    packed = pack(folder, tmp_path / "all.runs.zip").path
    one, other = (report.run_groups(report.gather(place)) for place in (folder, packed))
    assert [group.curves for group in one] == [group.curves for group in other]
    assert report.gather(packed).name == "all"
    limits = Limits(max_loss=0.05)
    choices = [pick(place, limits) for place in (folder, packed)]
    assert choices[0].chosen is not None
    assert choices[1].chosen is not None
    assert choices[0].chosen.best.path.name == choices[1].chosen.best.path.name
    assert "is in a pack, which keeps no weights" in str(choices[1].lacks_weights)
    with pytest.raises(PicojouleError, match="is in a pack, which keeps no weights: train it again with"):
        _ = choices[1].chosen.best.weights


def test_an_experiment_reads_runs_and_measurements_of_a_pack(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "paper").mkdir()
    packed = pack(folder, tmp_path / "paper" / "all.runs.zip").path
    for place in (packed, packed.parent):
        context = Context(SCALES["smoke"], place, print)
        assert len(context.finished(RECIPES)) == 9
        assert context.measured("steps", lambda: pytest.fail("it was measured before")) == [3]


def test_a_sweep_takes_what_is_packed_as_done(folder: Path, tmp_path: Path) -> None:
    packed = pack(folder, tmp_path / "paper.runs.zip").path
    done = next(recipe for recipe in RECIPES if recipe.penalised)
    assert fit(done, tmp_path).path == packed / done.name
    outcome = sweep.run(RECIPES[1:], tmp_path, workers=1)
    assert (len(outcome.runs), outcome.failures) == (9, ())
    assert not (tmp_path / done.name).exists()
    assert (
        Run.of(RECIPES[0], tmp_path).path == tmp_path / RECIPES[0].name
    )  # what failed is trained again, in the folder


def test_a_pack_is_brought_up_to_date_in_its_place(folder: Path, tmp_path: Path) -> None:
    home = folder / "all.runs.zip"
    pack(folder, home)
    for run in find_runs(folder):
        if run.path.parent == folder and run.finished:
            for path in run.path.iterdir():
                path.unlink()
            run.path.rmdir()
    late = synthetic.recipes(kinds=["balance"], powers=[1], strengths=(8,), seeds=(0,), epochs=2)[0]
    synthetic.write(folder, late)
    (folder / RECIPES[0].name / "result.json").write_text(
        json.dumps(Run(folder / late.name).result.to_dict()), encoding="utf-8"
    )
    (folder / "measured" / "steps.json").write_text("[4]")
    packed = pack(folder, home)
    assert (packed.runs, packed.finished) == (11, 11)
    assert Context(SCALES["smoke"], home, print).measured("steps", list) == [4]


def test_what_cannot_be_packed(tmp_path: Path) -> None:
    with pytest.raises(PicojouleError, match="holds no run folders"):
        pack(tmp_path, tmp_path / "all.runs.zip")
    with pytest.raises(PicojouleError, match="is not the name of a pack"):
        pack(tmp_path, tmp_path / "all.zip")
    (tmp_path / "bad.runs.zip").write_bytes(b"")
    with pytest.raises(PicojouleError, match=r"bad.runs.zip cannot be read \(the pack is damaged: .*\): make it anew"):
        find_runs(tmp_path)
