"""Training against a plain PyTorch loop, in one process and in two, and what a run leaves behind."""

from __future__ import annotations

import json
import logging
import math
import random
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
import tiny
from picojoule import engine, evaluation

SAMPLE_FIELDS = (
    "split samples accuracy loss joules synops encoder_macs encoder_joules ann_joules update_joules "
    "rate_mean rate_sum dead_rate steps psi hardware layers"
).split()
LAYER_FIELDS = "name neurons synops joules rate dead_rate".split()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[pj.Run, tiny.Watcher]:
    watcher = tiny.Watcher()
    return pj.fit(tiny.recipe(), tmp_path_factory.mktemp("runs"), reporters=[watcher]), watcher


# --- The objective ---------------------------------------------------------------------------------------------------


def fan_out_of_first_layer() -> Tensor:
    """ψ of 4×7×7 neurons before a 3×3 convolution of stride 2 to 8 channels, one synapse at a time."""
    psi = torch.zeros(4, 7, 7)
    for y in range(3):
        for x in range(3):
            for dy in range(3):
                for dx in range(3):
                    psi[:, 2 * y + dy, 2 * x + dx] += 8
    return psi


def omega(spikes: list[Tensor], kind: str, p: float, normalized: bool) -> Tensor:
    ones = [torch.ones(4, 7, 7), torch.ones(8, 3, 3)]
    weights = {
        "syn": [fan_out_of_first_layer(), 10 * ones[1]],
        "total": ones,
        "balance": [ones[0] / 196, ones[1] / 72],
    }[kind]
    total = sum(((w * s**p).sum() / (p * len(s)) for w, s in zip(weights, spikes, strict=True)), torch.zeros(()))
    return total / (sum(w.sum() for w in weights) / p) if normalized else total


def train_by_hand(recipe: pj.Recipe) -> tuple[nn.Module, list[float]]:
    """The paper's objective with nothing of picojoule but neurons and batches; the mean cross-entropy of each epoch."""
    torch.manual_seed(recipe.seed)
    factory = getattr(tiny, recipe.model.name.partition(":")[2])
    model = factory(10, 1, pj.Spike).to(memory_format=torch.channels_last)
    data = pj.data.load("digits", limit=recipe.data.limit)
    batches = pj.data.Batches(data.train, recipe.training.batch_size, data.normalization, seed=recipe.seed)
    settings = recipe.optimizer
    build = {"adam": torch.optim.Adam, "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)}[settings.name]
    optimizer = build(model.parameters(), lr=settings.lr)
    epochs, losses = recipe.training.epochs, []
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = settings.lr * (1 + math.cos(math.pi * epoch / epochs)) / 2
        strength = recipe.penalty.strength * ((epoch + 1) / epochs if recipe.penalty.schedule == "linear" else 1)
        seen = []
        for images, labels in batches.epoch(epoch):
            x, spikes = images.to(memory_format=torch.channels_last), []
            for layer in model:
                x = layer(x)
                if isinstance(layer, pj.Spike):
                    spikes.append(x)
            entropy = -x.log_softmax(1)[torch.arange(len(x)), labels].mean()
            penalty = omega(spikes, recipe.penalty.kind, recipe.penalty.p, recipe.penalty.normalized)
            decay = torch.zeros(())
            for name, parameter in model.named_parameters():
                if settings.decay_batch_norm or not name.startswith("norm"):
                    decay = decay + settings.weight_decay / 2 * parameter.square().sum()
            optimizer.zero_grad()
            (entropy + strength * penalty + decay).backward()
            optimizer.step()
            seen.append(entropy.item())
        losses.append(sum(seen) / len(seen))
    return model, losses


@pytest.mark.parametrize(
    "overrides",
    [
        ("model.name=tiny:plain",),
        ("model.name=tiny:plain", "penalty.strength=0"),
        ("model.name=tiny:plain", "penalty.schedule=constant", "penalty.kind=total", "penalty.p=2"),
        ("model.name=tiny:plain", "penalty.kind=balance", "penalty.p=1.5", "optimizer.name=sgd"),
        ("model.name=tiny:plain", "penalty.normalized=false", "penalty.strength=1e-4", "seed=7"),
        ("model.name=tiny:normed", "optimizer.weight_decay=0.05"),
        ("model.name=tiny:normed", "optimizer.weight_decay=0.05", "optimizer.decay_batch_norm=true"),
        ("model.name=tiny:normed", "optimizer.weight_decay=0.05", "optimizer.name=sgd"),
        (
            "model.name=tiny:normed",
            "optimizer.weight_decay=0.01",
            "optimizer.name=sgd",
            "optimizer.decay_batch_norm=true",
        ),
    ],
    ids=" ".join,
)
def test_training_is_the_plain_loop(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    recipe = tiny.recipe(*overrides)
    run = pj.fit(recipe, tmp_path)
    model, losses = train_by_hand(recipe)
    assert [entry["train_loss"] for entry in run.metrics] == pytest.approx(losses, abs=1e-5)
    for name, expected in model.state_dict().items():
        torch.testing.assert_close(run.weights[name], expected, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    torch.manual_seed(recipe.seed)
    fresh = getattr(tiny, recipe.model.name.partition(":")[2])(10, 1, pj.Spike)
    assert not torch.equal(fresh.out.weight, run.weights["out.weight"])


def test_the_learning_rate_is_a_cosine_of_the_epoch(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("training.epochs=4", "optimizer.lr=0.02"), tmp_path)
    half = 0.02 * math.sqrt(0.5) / 2
    assert [entry["lr"] for entry in run.metrics] == pytest.approx([0.02, 0.01 + half, 0.01, 0.01 - half])


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
    assert [entry["epoch"] for entry in run.metrics] == [0, 1, 2]
    for entry in run.metrics:
        assert (
            list(entry)
            == (
                "epoch train_loss train_accuracy train_penalty validation_loss validation_accuracy joules rate_mean "
                "dead_rate layers lr strength target_joules seconds"
            ).split()
        )
        assert [layer["name"] for layer in entry["layers"]] == ["spike1", "spike2"]
        for layer in entry["layers"]:
            assert list(layer) == LAYER_FIELDS
            assert 0 <= layer["rate"] <= 1
        assert entry["joules"] == pytest.approx(sum(layer["joules"] for layer in entry["layers"]))
        assert 0 < entry["train_penalty"] < 1
        assert entry["seconds"] > 0
    last, stored = run.metrics[-1], run.result["validation"]
    assert (last["validation_loss"], last["joules"]) == (stored["loss"], stored["joules"])


def test_the_result_is_that_of_the_last_epoch_with_its_circumstances(finished: tuple[pj.Run, tiny.Watcher]) -> None:
    run, _ = finished
    result = run.result
    assert (
        list(result) == ("test validation recipe digest commit versions device precision processes convention").split()
    )
    assert result["recipe"] == json.loads(json.dumps(tiny.recipe().to_dict()))
    assert pj.Recipe(**result["recipe"]) == run.recipe
    assert result["digest"] == run.recipe.digest
    assert result["versions"]["torch"] == torch.__version__
    assert result["versions"]["picojoule"] == pj.__version__
    assert result["commit"] is None or len(result["commit"]) == 40
    assert (result["device"], result["precision"], result["processes"]) == ("cpu", "32", 1)
    assert result["convention"]["psi"] == "exact"
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
        evaluation.evaluate(run)
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


def test_augmentation_is_seeded(finished: tuple[pj.Run, tiny.Watcher], tmp_path: Path) -> None:
    recipe = tiny.recipe("data.augment=true")
    first, second = (pj.fit(recipe, tmp_path / name) for name in ("first", "second"))
    assert tiny.traces(first) == tiny.traces(second)
    assert not torch.equal(first.weights["out.weight"], finished[0].weights["out.weight"])


def test_a_relu_network_has_the_same_fields_with_none_where_there_are_no_spikes(
    finished: tuple[pj.Run, tiny.Watcher], tmp_path: Path
) -> None:
    run = pj.fit(tiny.recipe("neuron.kind=relu", "penalty.strength=0"), tmp_path)
    result = run.result["test"]
    assert list(result) == SAMPLE_FIELDS
    assert {key for key, value in result.items() if value is None} == (
        set("joules synops encoder_macs encoder_joules update_joules rate_mean rate_sum dead_rate psi".split())
    )
    assert result["ann_joules"] == finished[0].result["test"]["ann_joules"] > 0
    assert (result["layers"], result["steps"], result["hardware"]) == ([], 1, "horowitz-45nm-fp32")
    assert result["accuracy"] > 0.3
    assert run.metrics[-1]["train_penalty"] is None
    assert pj.evaluate(run).to_dict() == result


def test_bfloat16(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("training.precision=bf16-mixed", "training.epochs=1"), tmp_path)
    assert run.result["precision"] == "bf16-mixed"
    assert all(tensor.dtype == torch.float32 for tensor in run.weights.values() if tensor.is_floating_point())
    assert pj.evaluate(run).to_dict() == run.result["test"]


def test_a_limit_is_what_is_trained_on(tmp_path: Path) -> None:
    watcher = tiny.Watcher()
    pj.fit(tiny.recipe("data.limit=80", "training.epochs=1"), tmp_path, reporters=[watcher])
    assert watcher.batches == 2


def test_a_max_pool_is_billed_and_has_no_rate(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("model.name=tiny:pooled"), tmp_path)
    relay = run.result["test"]["layers"][1]
    assert (relay["name"], relay["neurons"], relay["rate"], relay["dead_rate"]) == ("pool1", 0, None, None)
    assert relay["joules"] > 0


def test_a_silent_layer_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    recipe = tiny.recipe("neuron.threshold=1e6", "training.epochs=1")
    watcher = tiny.Watcher()
    run = pj.fit(recipe, tmp_path / "told", reporters=[watcher])
    assert [text.partition(":")[0] for text in watcher.said] == [
        "the layer spike1 has fallen silent",
        "the layer spike2 has fallen silent",
    ]
    assert run.result["test"]["joules"] == 0
    assert run.result["test"]["dead_rate"] == 1
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
    ],
    ids=str,
)
def test_a_device_that_is_not_there(tmp_path: Path, setting: dict[str, Any], words: str) -> None:
    if setting.get("accelerator") == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(pj.PicojouleError, match=f"{words}.* cannot be used here.*choose another"):
        pj.fit(tiny.recipe(), tmp_path, **setting)


# --- Two processes ---------------------------------------------------------------------------------------------------


def approximately(value: Any) -> Any:
    return pytest.approx(value, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_two_processes_train_as_one_does(tmp_path: Path) -> None:
    recipe = tiny.recipe("model.name=tiny:plain", "optimizer.name=sgd")
    one = pj.fit(recipe, tmp_path / "one", accelerator="cpu")
    two = pj.fit(recipe, tmp_path / "two", accelerator="cpu", devices=2)
    assert two.result["processes"] == 2
    for mine, yours in zip(one.metrics, two.metrics, strict=True):
        for key in ("train_loss", "train_accuracy", "train_penalty", "validation_loss", "validation_accuracy", "lr"):
            assert yours[key] == approximately(mine[key]), key
        assert yours["joules"] == pytest.approx(mine["joules"], rel=1e-3)  # a potential may sit on the threshold
    for split in ("test", "validation"):
        assert two.result[split]["samples"] == one.result[split]["samples"]
        assert two.result[split]["loss"] == approximately(one.result[split]["loss"])
    for name, tensor in one.weights.items():
        torch.testing.assert_close(two.weights[name], tensor, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_two_processes_with_batch_norm_are_stopped_and_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    recipe = tiny.recipe("training.epochs=2")
    run = pj.fit(recipe, tmp_path / "whole", accelerator="cpu", devices=2)
    assert capfd.readouterr().err.count("batch-norm statistics are those of each process") == 1
    fresh, stored = pj.evaluate(run).to_dict(), run.result["test"]
    assert fresh["loss"] == approximately(stored.pop("loss"))  # summed in another order
    assert {key: fresh[key] for key in stored} == stored

    stopping = [tiny.SignalsParent(tiny.BATCHES + 1)]
    with pytest.raises(engine.Interrupted, match=r"stopped in epoch 2 after batch [1-5]; the same command goes on"):
        pj.fit(recipe, tmp_path / "stopped", accelerator="cpu", devices=2, reporters=stopping)
    shutil.copytree(tmp_path / "stopped", tmp_path / "alone")
    resumed = pj.fit(recipe, tmp_path / "stopped", accelerator="cpu", devices=2)
    assert tiny.traces(resumed) == tiny.traces(run)

    watcher = tiny.Watcher()
    alone = pj.fit(recipe, tmp_path / "alone", accelerator="cpu", reporters=[watcher])
    assert watcher.said[0].startswith("the run was begun with 2 and goes on with 1 processes")
    assert alone.metrics[0]["train_loss"] == run.metrics[0]["train_loss"]
    assert alone.metrics[1]["train_loss"] == pytest.approx(resumed.metrics[1]["train_loss"], rel=0.3)


@pytest.mark.slow
def test_a_failure_in_two_processes_is_told_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(pj.PicojouleError, match=r"the loss became nan in epoch 2, batch 2"):
        pj.fit(tiny.recipe("model.name=tiny:breaks_down"), tmp_path, accelerator="cpu", devices=2)


# --- Over time -------------------------------------------------------------------------------------------------------


def over_time(*overrides: str) -> pj.Recipe:
    return tiny.recipe("model.name=tiny:over_time", "data.limit=1000", "training.epochs=5", *overrides)


@pytest.fixture(scope="module")
def leaky(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    recipe = over_time("neuron.kind=lif", "neuron.steps=4", "penalty.strength=0")
    return pj.fit(recipe, tmp_path_factory.mktemp("over_time"))


def test_a_leaky_network_learns_over_four_steps(leaky: pj.Run) -> None:
    result = leaky.result["test"]
    assert result["accuracy"] > 0.8
    assert result["steps"] == 4
    assert pj.evaluate(leaky).to_dict() == result


def test_its_energy_is_the_sum_over_the_steps(leaky: pj.Run) -> None:
    """Layer by layer and step by step, with the neuron's equation written out."""
    result, model = leaky.result["test"], pj.load_model(leaky)
    data = pj.data.load("digits", limit=1000)
    images = torch.cat([batch for batch, _ in pj.data.Batches(data.test, 64, data.normalization)])
    layers = dict(model.named_children())
    v1, v2, operations, psi = 0, 0, torch.zeros(2), fan_out_of_first_layer()
    with torch.no_grad():
        for _ in range(4):
            u1 = 0.5 * v1 + layers["norm1"](layers["conv1"](images))
            s1 = (u1 >= 1).float()
            u2 = 0.5 * v2 + layers["norm2"](layers["conv2"](s1))
            s2 = (u2 >= 1).float()
            v1, v2 = u1 - s1, u2 - s2
            operations += torch.stack([(s1 * psi).sum(), s2.sum() * 10])
    assert [layer["synops"] for layer in result["layers"]] == pytest.approx(
        (operations / len(images)).tolist(), rel=1e-3
    )
    assert result["joules"] == pytest.approx(result["synops"] * 0.9e-12)
    assert result["encoder_macs"] == 4 * 7 * 7 * 25 * 4


def test_the_penalty_saves_energy_over_time(leaky: pj.Run) -> None:
    saving = pj.fit(over_time("neuron.kind=lif", "neuron.steps=4", "penalty.strength=8"), leaky.path.parent)
    assert saving.result["test"]["synops"] < 0.5 * leaky.result["test"]["synops"]
    assert saving.result["test"]["accuracy"] > 0.6


@pytest.mark.parametrize("kind", ["qrelu", "if", "lif"])
def test_every_kind_of_neuron_trains_in_one_step_in_any_model(kind: str, tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe(f"neuron.kind={kind}"), tmp_path)
    assert run.result["test"]["steps"] == 1
    assert run.metrics[-1]["train_loss"] < run.metrics[0]["train_loss"]
    assert pj.evaluate(run).to_dict() == run.result["test"]


def test_a_model_that_does_not_take_steps_is_refused_over_time(tmp_path: Path) -> None:
    with pytest.raises(pj.PicojouleError, match="tiny:net does not take steps"):
        pj.fit(tiny.recipe("neuron.kind=if", "neuron.steps=2"), tmp_path)


@pytest.mark.parametrize("kind", ["if", "lif"])
def test_a_zoo_network_of_a_recipe_runs_over_its_steps(kind: str) -> None:
    recipe = tiny.recipe("model.name=cnn7", f"neuron.kind={kind}", "neuron.steps=3")
    model = evaluation.build_model(recipe)
    synapses = evaluation.count_synapses(model, recipe)
    assert synapses is not None
    with pj.watch(model, steps=3) as activity:
        logits = model(torch.randn(2, *recipe.input_shape))
    assert logits.shape == (2, 10)
    (logits.square().mean() + pj.Penalty(synapses)(activity)).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert model.get_submodule("conv1").weight.grad.abs().sum() > 0
