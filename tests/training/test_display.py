"""What a user sees of a run: lines or a bar on standard error, nothing but the folder on standard output."""

from __future__ import annotations

import io
import signal
import sys
from pathlib import Path

import pytest

import picojoule as pj
import tiny
from picojoule.cli import main
from picojoule.energy.units import format_joules
from picojoule.runs.metrics import EpochMetrics
from picojoule.training import fit
from picojoule.training.display import Display, TensorBoard


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_an_epoch_where_nobody_watches(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = pj.fit(tiny.recipe(), tmp_path, reporters=[Display("mine")])
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert len(lines) == 3
    first = run.metrics[0].joules
    for line, entry in zip(lines, run.metrics, strict=True):
        assert line.startswith(f"mine: epoch {entry.epoch + 1}: loss {entry.train_loss:.3f}, ")
        assert f"validation accuracy {entry.validation_accuracy:.1%}" in line
        assert f", {format_joules(entry.joules)} an image" in line
    assert "epoch 1" not in lines[0].removeprefix("mine: epoch 1")
    for line, entry in zip(lines[1:], run.metrics[1:], strict=True):
        assert f"({entry.joules / first:.0%} of the {format_joules(first)} after epoch 1)" in line


def test_a_budget_shows_what_it_wants(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tiny.recipe("penalty.strength=0", "penalty.budget=50%", "training.epochs=4")
    run = pj.fit(recipe, tmp_path, reporters=[Display()])
    few, first, *lines, verdict = capsys.readouterr().err.splitlines()
    assert "updates" in few
    assert "(" not in first
    for line, entry in zip(lines, run.metrics[1:], strict=True):
        assert f"(the budget wants {format_joules(entry.target_joules)} by now)" in line
    assert verdict.startswith("the budget of ")


def test_energy_is_relative_to_the_first_epoch_also_after_resuming(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stop = tiny.Watcher(after_batch={tiny.BATCHES + 2: tiny.signal_to_self(signal.SIGTERM)})
    with pytest.raises(fit.Interrupted):
        pj.fit(tiny.recipe(), tmp_path, reporters=[stop])
    run = pj.fit(tiny.recipe(), tmp_path, reporters=[Display()])
    resuming, *lines = capsys.readouterr().err.splitlines()
    assert resuming.startswith(f"resuming {run.path.name} in epoch 2 after ")
    first, last = run.metrics[0].joules, run.metrics[2].joules
    assert f"({last / first:.0%} of the {format_joules(first)} after epoch 1)" in lines[-1]


def test_nothing_is_relative_to_a_first_epoch_without_a_spike(capsys: pytest.CaptureFixture[str]) -> None:
    display = Display()
    for epoch, joules in enumerate((0.0, 1e-6, 2e-6)):
        display.epoch(EpochMetrics.parse(tiny.epoch(epoch) | {"joules": joules}))
    assert "after epoch 1" not in capsys.readouterr().err


def test_a_bar_where_somebody_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "150")
    display = Display()
    pj.fit(tiny.recipe("neuron.threshold=1e6"), tmp_path, reporters=[display])
    display.say("[brackets] stay")
    shown = terminal.getvalue()
    for words in ("100%", "accuracy", "loss", "epoch 3", "the layer spike1 has fallen silent", "[brackets] stay"):
        assert words in shown, words
    assert shown.endswith("\n")


def test_brackets_are_text_in_a_bar_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    display = Display()
    recipe = tiny.recipe()
    display.begin(pj.Run(tmp_path), recipe, 5, 0, 0)
    display.say("damaged ([Errno 5] [bold]bad[/bold])")
    display.end()
    assert "([Errno 5] [bold]bad[/bold])" in terminal.getvalue()


def test_a_network_without_spikes_has_no_energy_to_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pj.fit(tiny.recipe("neuron.kind=relu", "penalty.strength=0", "training.epochs=1"), tmp_path, reporters=[Display()])
    (line,) = capsys.readouterr().err.splitlines()
    assert "an image" not in line
    assert "validation accuracy" in line


def test_the_train_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "recipe.toml").write_text(tiny.RECIPE)
    arguments = ["train", f"{tmp_path}/recipe.toml", "training.epochs=2", "seed=3", "--into", f"{tmp_path}/runs"]
    monkeypatch.setattr(sys, "argv", ["picojoule", *arguments])
    folder = tmp_path / "runs" / tiny.recipe("training.epochs=2", "seed=3").name
    for epochs in (2, 0):  # the second time it is finished
        with pytest.raises(SystemExit) as stop:
            main()
        assert stop.value.code == 0
        captured = capsys.readouterr()
        assert captured.out == f"{folder}\n"
        test = pj.Run.at(folder).result.test
        *lines, last = captured.err.splitlines()
        assert last == (
            f"test: accuracy {test.accuracy:.1%}, {format_joules(test.joules)} per image "
            f"({format_joules(test.total_joules)} with all that is not spikes); "
            f"layer by layer: picojoule evaluate {folder} --trust"
        )
        assert len([line for line in lines if line.startswith("epoch ")]) == epochs


def test_the_train_command_that_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Impatient(Display):
        def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
            if (epoch, batch) == (0, 2):
                tiny.signal_to_self(signal.SIGINT)()

    monkeypatch.setattr("picojoule.cli.runs.Display", Impatient)
    (tmp_path / "recipe.toml").write_text(tiny.RECIPE)
    monkeypatch.setattr(sys, "argv", ["picojoule", "train", f"{tmp_path}/recipe.toml", "--into", f"{tmp_path}/runs"])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "picojoule: stopped in epoch 1 after batch 3; the same command goes on from there\n"


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    stop = tiny.Watcher(after_batch={tiny.BATCHES + 2: tiny.signal_to_self(signal.SIGTERM)})
    with pytest.raises(fit.Interrupted):
        pj.fit(tiny.recipe("model.name=tiny:pooled"), tmp_path, reporters=[TensorBoard(), stop])
    run = pj.fit(tiny.recipe("model.name=tiny:pooled"), tmp_path, reporters=[TensorBoard()])
    events = EventAccumulator(str(run.path / "tensorboard"))
    events.Reload()
    for key in ("train_loss", "validation_accuracy", "joules", "lr"):
        assert [(e.step, e.value) for e in events.Scalars(key)] == [
            (entry.epoch, pytest.approx(getattr(entry, key))) for entry in run.metrics
        ]
    assert {"rate/spike1", "joules/pool1"} <= set(events.Tags()["scalars"])
    assert "rate/pool1" not in events.Tags()["scalars"]


def test_tensorboard_that_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("torch.utils.tensorboard")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(
        pj.PicojouleError,
        match=r"needs the package tensorboard: install it with `pip install 'picojoule\[tensorboard\]'`",
    ):
        TensorBoard()
