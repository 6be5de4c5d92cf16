from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

import picojoule as pj
import tiny
from command_line import Command
from picojoule.io.tables import as_text
from picojoule.runs.folder import Run
from picojoule.search.limits import Limits
from picojoule.search.pick import pick

FIGURES = {  # strength: (validation accuracy, validation joules) of three seeds
    0: ((0.90, 10e-6), (0.91, 11e-6), (0.92, 12e-6)),
    8: ((0.90, 5e-6), (0.90, 5.5e-6), (0.906, 6e-6)),
    64: ((0.88, 1.5e-6), (0.89, 2e-6), (0.87, 1.9e-6)),
    512: ((0.60, 0.4e-6), (0.66, 0.5e-6), (0.63, 0.6e-6)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results as runs leave them, with a test split that is one point worse and a tenth cheaper."""
    for strength, seeds in FIGURES.items():
        for seed, (accuracy, joules) in enumerate(seeds):
            recipe = tiny.recipe(f"penalty.strength={strength}", f"seed={seed}")
            run = Run(tmp_path / recipe.name)
            run.path.mkdir()
            run.write_text("recipe.toml", recipe.to_toml())
            result = {"validation": tiny.figures(accuracy, joules), "test": tiny.figures(accuracy - 0.01, 0.9 * joules)}
            run.write_text("result.json", json.dumps(result))
            run.write_weights({})
    return tmp_path


def strength(choice: Any) -> float:
    return float(choice.chosen.runs[0].recipe.penalty.strength)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (Limits.read(1.0, None, None), 8),
        (Limits.read(3.0, None, None), 64),
        (Limits.read(40, None, None), 512),
        (Limits.read(0, None, None), 0),
        (Limits.read(None, "2uJ", None), 64),
        (Limits.read(None, "100 uJ", None), 0),
        (Limits.read(None, "30%", None), 64),
        (Limits.read(None, None, 88), 64),
        (Limits.read(None, "6 µJ", 80), 64),
    ],
)
def test_the_cheapest_or_else_the_most_accurate(folder: Path, limits: Limits, expected: float) -> None:
    choice = pick(folder, limits)
    assert strength(choice) == expected
    assert choice.networks == 4
    assert choice.baseline is not None
    assert choice.baseline.runs[0].recipe.penalty.strength == 0


def test_mean_and_spread_over_seeds_and_the_bill_of_the_test_split(folder: Path) -> None:
    content = pick(folder, Limits.read(None, None, 88)).to_dict()
    accuracies = [accuracy for accuracy, _ in FIGURES[64]]
    chosen = content["chosen"]
    assert chosen["validation"]["accuracy"]["mean"] == pytest.approx(statistics.fmean(accuracies))
    assert chosen["test"]["accuracy"]["mean"] == pytest.approx(statistics.fmean(accuracies) - 0.01)
    assert chosen["test"]["accuracy"]["spread"] == pytest.approx(0.01)
    assert chosen["test"]["total_joules"] is None  # runs of earlier versions do not tell
    assert len(chosen["runs"]) == 3
    assert Run(Path(chosen["best"])).recipe.seed == 1
    assert content["export"] == f"picojoule export {chosen['best']} --to nir --trust"


def test_what_everything_costs_stands_beside_what_spikes_cost(folder: Path) -> None:
    for path in folder.glob("*/result.json"):
        result = json.loads(path.read_text())
        result["test"]["total_joules"] = 2 * result["test"]["joules"]
        path.write_text(json.dumps(result))
    choice = pick(folder, Limits.read(None, None, 88))
    joules = [0.9 * joules for _, joules in FIGURES[64]]
    total = choice.to_dict()["chosen"]["test"]["total_joules"]
    assert total["mean"] == pytest.approx(2 * statistics.fmean(joules))
    assert total["spread"] == pytest.approx(2 * statistics.stdev(joules))
    assert "3.24 µJ" in as_text(choice.table())


def test_nothing_satisfies(folder: Path) -> None:
    choice = pick(folder, Limits.read(None, "1uJ", 88))
    assert choice.chosen is None
    first = choice.nearest[0]
    assert first.network.runs[0].recipe.penalty.strength == 64
    assert first.accuracy == 0
    assert first.joules == pytest.approx(0.8e-6)
    assert "800 nJ too many" in str(first)


def test_without_a_baseline(folder: Path) -> None:
    for path in folder.glob("*-syn1-0-*"):
        (path / "result.json").unlink()
    with pytest.raises(pj.PicojouleError, match="no network without a penalty"):
        pick(folder, Limits.read(1, None, None))
    assert strength(pick(folder, Limits.read(None, "2uJ", None))) == 64


@pytest.mark.parametrize(
    "other",
    [
        ("data.name=fashion-mnist", "data.limit=1000"),
        ("data.limit_validation=50",),
        ("data.limit_test=50",),
        ("energy.hardware=loihi",),
        ("energy.psi=uniform",),
    ],
)
def test_what_cannot_be_compared(folder: Path, other: tuple[str, ...]) -> None:
    run = Run(folder / "other")
    run.path.mkdir()
    run.write_text("recipe.toml", tiny.recipe(*other).to_toml())
    run.write_text(
        "result.json", json.dumps({"validation": tiny.figures(0.99, 1e-9), "test": tiny.figures(0.99, 1e-9)})
    )
    with pytest.raises(pj.PicojouleError, match=r"cannot be compared \(digits.*; .*\): name a folder"):
        pick(folder, Limits.read(1, None, None))


@pytest.mark.parametrize("content", ["{}", "[]", '{"test": {"joules": 1}}', '{"test": {"joules": 1, "accuracy": 1}}'])
def test_a_result_that_is_none(folder: Path, content: str) -> None:
    next(folder.glob("*/result.json")).write_text(content)
    with pytest.raises(pj.PicojouleError, match=r"is not a valid result.*: remove it"):
        pick(folder, Limits.read(1, None, None))


@pytest.mark.parametrize("key", ["accuracy", "joules", "synops", "rate_mean", "dead_rate"])
@pytest.mark.parametrize("figure", ["few", math.nan, [1.0]], ids=str)
def test_a_figure_that_is_none(folder: Path, key: str, figure: object) -> None:
    path = next(folder.glob("*/result.json"))
    result = json.loads(path.read_text())
    path.write_text(json.dumps(result | {"validation": result["validation"] | {key: figure}}))
    with pytest.raises(pj.PicojouleError, match=r"is not a valid result.*: remove it"):
        pick(folder, Limits.read(1, None, None))


@pytest.mark.parametrize(
    "wrong", [(None, None, None), (-1, None, None), (None, "2", None), (None, "x%", None), (None, None, 0.88)]
)
def test_limits_that_are_none(wrong: tuple[Any, Any, Any]) -> None:
    with pytest.raises(pj.PicojouleError):
        Limits.read(*wrong)


def test_the_command(folder: Path, command: Command) -> None:
    status, printed, _ = command("pick", folder, "--max-loss", "3")
    assert status == 0
    assert "87.00%" in printed
    assert printed.splitlines()[-1].startswith("picojoule export ")
    status, out, err = command("pick", folder, "--max-energy", "1nJ", "--json")
    assert status == 1
    assert json.loads(out)["satisfied"] is False
    assert "too many" in err
    assert command("pick", folder / "none", "--max-loss", "3")[0] == 2


@pytest.mark.parametrize(("kind", "form"), [("spike", "nir"), ("lif", "onnx"), ("qrelu", "onnx")])
def test_the_export_is_one_that_the_neurons_have(tmp_path: Path, kind: str, form: str) -> None:
    run = Run(tmp_path / "only")
    run.path.mkdir()
    run.write_text("recipe.toml", tiny.recipe(f"neuron.kind={kind}").to_toml())
    run.write_text("result.json", json.dumps({split: tiny.figures(0.9, 1e-6) for split in ("validation", "test")}))
    run.write_weights({})
    assert pick(tmp_path, Limits.read(None, "1J", None)).export == f"picojoule export {run.path} --to {form} --trust"


def test_a_network_without_weights_is_told_of(folder: Path, command: Command) -> None:
    best = pick(folder, Limits.read(3, None, None)).to_dict()["chosen"]["best"]
    Path(best, "weights.safetensors").unlink()
    for more in ((), ("--json",)):
        status, out, err = command("pick", folder, "--max-loss", "3", *more)
        assert status == 0
        assert f"{best} has no weights.safetensors, so it cannot be exported" in err
        assert f"picojoule train {best}/recipe.toml --into" in err
        assert "picojoule export" not in out
    assert json.loads(out)["export"] is None
