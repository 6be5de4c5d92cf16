"""Every experiment from end to end, at the smallest scale."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import synthetic
from picojoule.errors import PicojouleError
from picojoule.io.tables import Interval
from picojoule.paper import EXPERIMENTS, SCALES, find, run
from picojoule.paper.context import Context
from picojoule.paper.estimate import _estimate
from picojoule.paper.step_time import StepTime
from picojoule.runs.folder import Run
from picojoule.search.sweep import Outcome
from picojoule.search.sweep.local_backend import cores

ENDINGS = {".csv", ".tex", ".txt", ".svg", ".pdf", ".png", ".json"}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("paper")


@pytest.fixture(autouse=True)
def _no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever this machine has in its cache, the stand-in is taken."""
    monkeypatch.setenv("PICOJOULE_DATA", str(tmp_path / "empty"))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment(name: str, shared: Path) -> None:
    named = find(name)
    made = run(named, "smoke", shared / "runs", shared / "out")
    folder = shared / "out" / name
    assert not made.failures
    assert {path.name for path in made.files} == {path.name for path in folder.iterdir()}
    assert {path.suffix for path in made.files} <= ENDINGS
    assert all(path.stat().st_size > 0 for path in made.files)
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["name"], summary["scale"], summary["runs"]) == (name, "smoke", made.runs)
    if made.runs:
        assert list(summary["stand_ins"].values()) == ["digits"]
        for path in folder.glob("*.svg"):
            assert "digits instead of" in path.read_text()
        for path in folder.glob("*.txt"):
            assert "digits instead of" in " ".join(path.read_text().split())
        assert any("data fetch" in note for note in summary["notes"])
    before = {path: path.stat().st_mtime_ns for path in (shared / "runs").rglob("*") if path.is_file()}
    again = run(named, "smoke", shared / "runs", shared / "out")
    assert again.to_dict() == made.to_dict()
    assert {path: path.stat().st_mtime_ns for path in (shared / "runs").rglob("*") if path.is_file()} == before


def test_a_small_scale_does_not_replace_a_large_one(tmp_path: Path) -> None:
    run(find("hyperparameters"), "full", tmp_path / "runs", tmp_path / "out")
    with pytest.raises(PicojouleError, match="holds the results of the scale full, which those of smoke would replace"):
        run(find("hyperparameters"), "smoke", tmp_path / "runs", tmp_path / "out")
    run(find("hyperparameters"), "full", tmp_path / "runs", tmp_path / "out")


def test_fewer_seeds_do_not_replace_more(tmp_path: Path) -> None:
    folders = tmp_path / "runs", tmp_path / "out"
    assert run(find("hyperparameters"), "small", *folders, seeds=3).to_dict()["seeds"] == 3
    with pytest.raises(PicojouleError, match="the scale small with 3 seeds, which those of 1 seed would replace"):
        run(find("hyperparameters"), "small", *folders)
    assert run(find("hyperparameters"), "full", *folders).to_dict()["seeds"] == 3


@pytest.mark.slow
def test_several_seeds_are_several_runs_of_each_setting(tmp_path: Path) -> None:
    made = run(find("tradeoff-cnn7-adam"), "smoke", tmp_path / "runs", tmp_path / "out", seeds=2)
    assert made.runs == 4
    points = made.results.tables["points"]
    assert [row[:3] for row in points.rows] == [("none", "0", 2), ("Ω_syn (p = 1)", "64", 2)]
    assert "smoke scale, 2 seeds" in points.title
    assert {Run(path).recipe.seed for path in (tmp_path / "runs").glob("cnn7-*")} == {0, 1}


@pytest.mark.slow
def test_tables_of_what_is_there_say_what_is_missing_and_train_nothing(tmp_path: Path) -> None:
    named = find("tradeoff-cnn7-adam")
    recipes = named.experiment.recipes(SCALES["mini"].with_seeds(2))
    for recipe in recipes[:5]:  # two baselines and three runs of the first seed
        synthetic.write(tmp_path / "runs", recipe)
    made = run(named, "mini", tmp_path / "runs", tmp_path / "out", seeds=2, train=False)
    assert (made.runs, made.finished) == (74, 5)
    assert len(list((tmp_path / "runs").iterdir())) == 5
    for sheet in made.results.tables.values():
        assert sheet.title.endswith("(mini scale, 2 seeds, 5 of 74 runs)")
    baseline = made.results.tables["baseline"]
    assert [row[0] for row in baseline.rows] == [0, 1, "all"]
    accuracies = [Run.of(recipe, tmp_path / "runs").result.test.accuracy for recipe in recipes[:2]]
    assert [row[1] for row in baseline.rows[:2]] == accuracies
    mean = baseline.rows[2][1]
    assert isinstance(mean, Interval)
    assert (mean.low, mean.high) == (min(accuracies), max(accuracies))
    assert mean.mean == pytest.approx(sum(accuracies) / 2)
    verdicts = [row[:3] for row in made.results.tables["differences"].rows]
    assert verdicts == [(f"Ω_syn − {other}, p = 1", "cannot be told", 1) for other in ("Ω_total", "Ω_balance")]
    assert "Made of 5 of 74 runs" in (tmp_path / "out" / named.name / "equal-energy.txt").read_text()
    assert json.loads((tmp_path / "out" / named.name / "summary.json").read_text())["finished"] == 5


def test_an_estimate_by_hand(tmp_path: Path) -> None:
    """Of 37 runs with 2400 steps of 1 s, 6000 images shown for 1 ms each during training and 10 000 after it."""
    named, scale = find("tradeoff-cnn7-adam"), SCALES["mini"]
    step_times = {"cnn7": StepTime(step=1.0, image=0.0, evaluation=1e-3)}
    recipes = named.experiment.recipes(scale)
    Run(tmp_path / recipes[0].name).path.mkdir()
    (tmp_path / recipes[0].name / "result.json").write_text("{}")
    gpu = {"cnn7": StepTime(step=0.01, image=0.0, evaluation=0.0)}
    got = _estimate(named, scale, step_times, gpu, tmp_path)
    assert (got.runs, got.done) == (37, 1)
    assert got.seconds == pytest.approx(37 * (2400 + 16 + 2) / cores())
    assert got.gpu_seconds == pytest.approx(37 * (24 + 2))


def test_a_chain_of_runs_cannot_be_shared_out(tmp_path: Path) -> None:
    step_time = StepTime(step=0.0, image=1.0, evaluation=0.0)
    got = _estimate(find("conversion"), SCALES["smoke"], {"cnn7": step_time}, {"cnn7": step_time}, tmp_path)
    assert got.seconds >= 2 * (10 + 2)


def test_what_was_measured_before_and_is_damaged_is_named(tmp_path: Path) -> None:
    context = Context(SCALES["smoke"], tmp_path, print)
    assert context.measured("numbers", lambda: [1, 2]) == [1, 2]
    assert context.measured("numbers", lambda: [3]) == [1, 2]
    (tmp_path / "measured" / "numbers.json").write_text("[1,")
    with pytest.raises(PicojouleError, match=r"numbers.json cannot be read .*: remove it, and it is measured again"):
        context.measured("numbers", lambda: [3])


@pytest.mark.parametrize("content", ["", "[]", "3", '{"scale": []}'])
def test_a_summary_that_is_none_is_replaced(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "hyperparameters"
    folder.mkdir()
    (folder / "summary.json").write_text(content)
    run(find("hyperparameters"), "smoke", tmp_path / "runs", tmp_path)
    assert json.loads((folder / "summary.json").read_text())["scale"] == "smoke"


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(PicojouleError, match="cannot be made"):
        run(find("hyperparameters"), "smoke", tmp_path / "runs", tmp_path / "file")


@pytest.mark.parametrize("name", ["tradeoff-cnn7-adam", "conversion", "auc"])
def test_where_every_run_failed_there_are_tables_and_no_empty_figure(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("picojoule.search.sweep.run", lambda recipes, *_, **__: Outcome((), ()))
    made = run(find(name), "smoke", tmp_path / "runs", tmp_path / "out")
    assert "auc" in made.results.tables
    assert all(path.stat().st_size > 0 for path in made.files)
