"""What a run leaves behind, whatever its recipe, in one process and in two."""

from __future__ import annotations

import json
import logging
import random
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import picojoule as pj
import tiny
from picojoule.runs import evaluate
from picojoule.training import fit

SAMPLE_FIELDS = (
    "split samples accuracy loss joules synops encoder_macs encoder_joules analog_macs analog_joules ann_joules "
    "update_joules total_joules total_shares ann_ratio synops_per_synapse "
    "rate_mean rate_sum dead_rate steps psi hardware layers"
).split()
LAYER_FIELDS = "name neurons synops joules rate dead_rate".split()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[pj.Run, tiny.Watcher]:
    watcher = tiny.Watcher()
    return pj.fit(tiny.recipe(), tmp_path_factory.mktemp("runs"), reporters=[watcher]), watcher


# --- What a run leaves -----------------------------------------------------------------------------------------------


def test_the_folder_of_a_finished_run(finished: tuple[pj.Run, tiny.Watcher]) -> None:
    run, watcher = finished
    assert tiny.traces(run)["files"] == {"recipe.toml", "metrics.jsonl", "result.json", "weights.safetensors"}
    assert run.path.name == tiny.recipe().name
    assert run.recipe == tiny.recipe()
    assert watcher.began == [(0, 0)]
    assert watcher.batches == 3 * tiny.BATCHES
    assert watcher.epochs == run.metrics
    assert watcher.ended == 1


def test_a_line_of_metrics_an_epoch(finished: tuple[pj.Run, tiny.Watcher]) -> None:
    run, _ = finished
    assert [entry.epoch for entry in run.metrics] == [0, 1, 2]
    for entry in [metrics.to_dict() for metrics in run.metrics]:
        assert (
            list(entry)
            == (
                "epoch train_loss train_accuracy train_penalty validation_loss validation_accuracy joules rate_mean "
                "dead_rate layers lr strength target_joules seconds peak_bytes"
            ).split()
        )
        assert [layer["name"] for layer in entry["layers"]] == ["spike1", "spike2"]
        for layer in entry["layers"]:
            assert list(layer) == LAYER_FIELDS
            assert 0 <= layer["rate"] <= 1
        assert entry["joules"] == pytest.approx(sum(layer["joules"] for layer in entry["layers"]))
        assert 0 < entry["train_penalty"] < 1
        assert entry["seconds"] > 0
        assert entry["peak_bytes"] is None or entry["peak_bytes"] > 1e7
    last, stored = run.metrics[-1], run.result.validation
    assert (last.validation_loss, last.joules) == (stored.loss, stored.joules)


def test_the_result_is_that_of_the_last_epoch_with_its_metadata(finished: tuple[pj.Run, tiny.Watcher]) -> None:
    run, _ = finished
    result = run.result.to_dict()
    assert (
        list(result)
        == (
            "test validation recipe digest commit versions device machine precision processes convention kernels"
        ).split()
    )
    assert result["recipe"] == json.loads(json.dumps(tiny.recipe().to_dict()))
    assert pj.Recipe(**result["recipe"]) == run.recipe
    assert result["digest"] == run.recipe.digest
    assert result["versions"]["torch"] == torch.__version__
    assert result["versions"]["picojoule"] == pj.__version__
    assert result["commit"] is None or len(result["commit"]) == 40
    assert (result["device"], result["precision"], result["processes"]) == ("cpu", "32", 1)
    assert (result["convention"]["psi"], result["convention"]["chains"]) == ("exact", "run")
    for split, samples in (("test", 360), ("validation", 180)):
        assert list(result[split]) == SAMPLE_FIELDS
        assert (result[split]["split"], result[split]["samples"]) == (split, samples)
        assert all(list(layer) == LAYER_FIELDS for layer in result[split]["layers"])


def test_the_same_call_again_returns_at_once(
    finished: tuple[pj.Run, tiny.Watcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    run, _ = finished

    def fail(*arguments: Any, **more: Any) -> None:
        raise AssertionError("a finished run needs no data")

    before = {path: path.stat().st_mtime_ns for path in run.path.iterdir()}
    monkeypatch.setattr(pj.data, "load", fail)
    watcher = tiny.Watcher()
    assert pj.fit(tiny.recipe(), run.path.parent, reporters=[watcher]) == run
    assert watcher.began == []
    assert {path: path.stat().st_mtime_ns for path in run.path.iterdir()} == before


def test_the_caller_finds_everything_as_it_was(tmp_path: Path) -> None:
    def handlers() -> list[Any]:
        return [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]

    def numpy_state() -> str:
        return str(np.random.get_state())  # noqa: NPY002 — the caller may use the old generator

    torch.set_num_threads(2)
    try:
        before = torch.get_rng_state(), random.getstate(), numpy_state(), handlers()
        run = pj.fit(tiny.recipe("data.augment=true"), tmp_path)
        evaluate.evaluate(run)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert (random.getstate(), numpy_state(), handlers()) == before[1:]
        assert torch.get_num_threads() == 2
        with pytest.raises(pj.PicojouleError):
            pj.fit(tiny.recipe("optimizer.lr=1e30"), tmp_path)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert handlers() == before[3]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_training_from_a_thread(finished: tuple[pj.Run, tiny.Watcher], tmp_path: Path) -> None:
    runs: list[pj.Run] = []
    thread = threading.Thread(target=lambda: runs.append(pj.fit(tiny.recipe(), tmp_path)))
    thread.start()
    thread.join()
    assert tiny.traces(runs[0]) == tiny.traces(finished[0])


# --- The recipe's other choices --------------------------------------------------------------------------------------


def test_the_seed_changes_the_run_and_the_threads_of_the_caller_do_not(
    finished: tuple[pj.Run, tiny.Watcher], tmp_path: Path
) -> None:
    torch.rand(17)
    assert tiny.traces(pj.fit(tiny.recipe(), tmp_path)) == tiny.traces(finished[0])
    other = pj.fit(tiny.recipe("seed=1"), tmp_path)
    assert not torch.equal(other.weights["out.weight"], finished[0].weights["out.weight"])


@pytest.mark.slow
def test_augmentation_is_seeded(finished: tuple[pj.Run, tiny.Watcher], tmp_path: Path) -> None:
    recipe = tiny.recipe("data.augment=true")
    first, second = (pj.fit(recipe, tmp_path / name) for name in ("first", "second"))
    assert tiny.traces(first) == tiny.traces(second)
    assert not torch.equal(first.weights["out.weight"], finished[0].weights["out.weight"])


def test_a_relu_network_has_the_same_fields_with_none_where_there_are_no_spikes(
    finished: tuple[pj.Run, tiny.Watcher], tmp_path: Path
) -> None:
    run = pj.fit(tiny.recipe("neuron.kind=relu", "penalty.strength=0"), tmp_path)
    result = run.result.test.to_dict()
    assert list(result) == SAMPLE_FIELDS
    of_spikes = "joules synops encoder_macs encoder_joules update_joules total_joules synops_per_synapse".split()
    of_spikes += "analog_macs analog_joules total_shares ann_ratio rate_mean rate_sum dead_rate psi".split()
    assert {key for key, value in result.items() if value is None} == set(of_spikes)
    assert result["ann_joules"] == finished[0].result.test.ann_joules > 0
    assert (result["layers"], result["steps"], result["hardware"]) == ([], 1, "horowitz-45nm-fp32")
    assert result["accuracy"] > 0.3
    assert run.metrics[-1].train_penalty is None
    assert pj.evaluate(run).to_dict() == result


@pytest.mark.parametrize(("native", "trained_in"), [(False, "32"), (True, "bf16-mixed")])
def test_bfloat16_is_taken_by_itself_only_where_the_processor_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, native: bool, trained_in: str
) -> None:
    monkeypatch.setattr(fit, "cpu_has_bfloat16", lambda: native)
    run = pj.fit(tiny.recipe("training.precision=auto", "training.epochs=1"), tmp_path)
    assert run.result.precision == trained_in


def test_bfloat16(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("training.precision=bf16-mixed", "training.epochs=1"), tmp_path)
    assert run.result.precision == "bf16-mixed"
    assert all(tensor.dtype == torch.float32 for tensor in run.weights.values() if tensor.is_floating_point())
    assert pj.evaluate(run).to_dict() == run.result.test.to_dict()


def test_fabric_does_not_announce_what_it_does(tmp_path: Path) -> None:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("lightning_fabric")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        pj.fit(tiny.recipe("training.precision=bf16-mixed", "training.epochs=1"), tmp_path)
        assert logger.level == logging.INFO
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    assert heard == []


def test_a_limit_is_what_is_trained_on(tmp_path: Path) -> None:
    watcher = tiny.Watcher()
    pj.fit(tiny.recipe("data.limit=80", "training.epochs=1"), tmp_path, reporters=[watcher])
    assert watcher.batches == 2


def test_a_max_pool_is_billed_and_has_no_rate(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("model.name=tiny:pooled"), tmp_path)
    relay = run.result.test.layers[1]
    assert (relay.name, relay.neurons, relay.rate, relay.dead_rate) == ("pool1", 0, None, None)
    assert relay.joules > 0


def test_a_silent_layer_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once, as long as it stays silent."""
    recipe = tiny.recipe("neuron.threshold=1e6", "training.epochs=2")
    watcher = tiny.Watcher()
    run = pj.fit(recipe, tmp_path / "told", reporters=[watcher])
    assert [text.partition(":")[0] for text in watcher.said] == [
        "the layer spike1 has fallen silent",
        "the layer spike2 has fallen silent",
    ]
    assert run.result.test.joules == 0
    assert run.result.test.dead_rate == 1
    with caplog.at_level(logging.WARNING, "picojoule"):
        pj.fit(recipe, tmp_path / "logged")
    assert [record.getMessage() for record in caplog.records] == watcher.said


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"accelerator": "abacus"}, "abacus"),
        ({"devices": 0}, "0"),
        ({"accelerator": "cpu", "devices": -1}, "-1"),
        ({"accelerator": "cuda"}, "cuda"),
        ({"accelerator": "tpu"}, "tpu"),
        ({"accelerator": "cpu", "devices": 99999}, "99999"),
    ],
    ids=str,
)
def test_a_device_that_is_not_there(tmp_path: Path, setting: dict[str, Any], words: str) -> None:
    if setting.get("accelerator") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(pj.PicojouleError, match=f"{words}.* cannot be used here.*choose another"):
        pj.fit(tiny.recipe(), tmp_path, **setting)


@pytest.mark.parametrize("name", ["no_such_module:build", "tiny:no_such_function", "os:getcwd"])
def test_a_model_that_is_not_there_leaves_nothing_behind(tmp_path: Path, name: str) -> None:
    with pytest.raises(pj.PicojouleError, match=r"cannot import|has no function|a function of Python itself"):
        pj.fit(tiny.recipe(f"model.name={name}"), tmp_path / "runs", accelerator="cpu")
    assert list(tmp_path.iterdir()) == []


# --- Two processes ---------------------------------------------------------------------------------------------------


def approximately(value: Any) -> Any:
    return pytest.approx(value, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    recipe = tiny.recipe("model.name=tiny:plain", "optimizer.name=sgd")
    one = pj.fit(recipe, tmp_path / "one", accelerator="cpu")
    two = pj.fit(recipe, tmp_path / "two", accelerator="cpu", devices=2)
    assert two.result.processes == 2
    for mine, yours in zip(one.metrics, two.metrics, strict=True):
        for key in ("train_loss", "train_accuracy", "train_penalty", "validation_loss", "validation_accuracy", "lr"):
            assert getattr(yours, key) == approximately(getattr(mine, key)), key
        assert yours.joules == pytest.approx(mine.joules, rel=1e-3)  # a potential may sit on the threshold
    for split in ("test", "validation"):
        assert two.result.on(split).samples == one.result.on(split).samples
        assert two.result.on(split).loss == approximately(one.result.on(split).loss)
    for name, tensor in one.weights.items():
        torch.testing.assert_close(two.weights[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_processes_with_batch_norm_are_stopped_and_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recipe = tiny.recipe("training.epochs=2")
    run = pj.fit(recipe, tmp_path / "whole", accelerator="cpu", devices=2)
    assert capfd.readouterr().err.count("batch-norm statistics are those of each process") == 1
    fresh, stored = pj.evaluate(run).to_dict(), run.result.test.to_dict()
    assert fresh["loss"] == approximately(stored.pop("loss"))  # summed in another order
    assert {key: fresh[key] for key in stored} == stored

    stopping = [tiny.SignalsParent(tiny.BATCHES + 1)]
    with pytest.raises(fit.Interrupted, match=r"stopped in epoch 2 after batch [1-5]; the same command goes on"):
        pj.fit(recipe, tmp_path / "stopped", accelerator="cpu", devices=2, reporters=stopping)
    shutil.copytree(tmp_path / "stopped", tmp_path / "alone")
    resumed = pj.fit(recipe, tmp_path / "stopped", accelerator="cpu", devices=2)
    assert tiny.traces(resumed) == tiny.traces(run)

    watcher = tiny.Watcher()
    alone = pj.fit(recipe, tmp_path / "alone", accelerator="cpu", reporters=[watcher])
    assert watcher.said[0].startswith("the run was begun with 2 and goes on with 1 processes")
    assert alone.metrics[0].train_loss == run.metrics[0].train_loss
    assert alone.metrics[1].train_loss == pytest.approx(resumed.metrics[1].train_loss, rel=0.3)


@pytest.mark.slow
def test_a_failure_in_two_processes_is_told_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(pj.PicojouleError, match=r"the loss became nan in epoch 2, batch 2"):
        pj.fit(tiny.recipe("model.name=tiny:breaks_down"), tmp_path, accelerator="cpu", devices=2)
