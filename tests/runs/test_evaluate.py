"""Measuring a trained network afresh gives what its run has stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning_fabric import Fabric

import picojoule as pj
import tiny
from command_line import Command
from two_processes import measured

FIELDS = (
    "split samples accuracy loss joules synops encoder_macs encoder_joules analog_macs analog_joules ann_joules "
    "update_joules total_joules total_shares ann_ratio synops_per_synapse "
    "rate_mean rate_sum dead_rate steps psi hardware layers"
).split()
FOOTPRINT = ["parameters", "weight_bytes", "peak_activation_bytes"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe("model.name=tiny:pooled"), tmp_path_factory.mktemp("runs"))


@pytest.mark.parametrize("steps", ["10001", str(10**30)])
def test_more_time_steps_than_anybody_has_time_for(run: pj.Run, command: Command, steps: str) -> None:
    status, out, err = command("evaluate", str(run.path), "--convert-steps", steps)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{steps} time steps are too many for an image: take up to 10000" in err


@pytest.mark.parametrize("split", ["test", "validation"])
def test_evaluating_afresh_gives_what_was_stored(run: pj.Run, split: Any) -> None:
    for where in (run, run.path, str(run.path)):
        assert pj.evaluate(where, split, trust=True).to_dict() == run.result.on(split).to_dict()


def test_evaluation_agrees_with_a_plain_loop(run: pj.Run) -> None:
    model = pj.load_model(run)
    assert not model.training
    data = pj.data.load("digits")
    images = data.normalization(data.test.images.float() / 255)
    with torch.no_grad():
        logits = model(images)
    evaluated = pj.evaluate(run)
    assert evaluated.accuracy == (logits.argmax(1) == data.test.labels).double().mean().item()
    loss = -logits.double().log_softmax(1)[torch.arange(len(logits)), data.test.labels].mean().item()
    assert evaluated.loss == pytest.approx(loss, rel=1e-6)
    with torch.no_grad():
        spikes = model.spike2(model.norm2(model.conv2(model.pool1(model.spike1(model.norm1(model.conv1(images)))))))
    last = evaluated.to_dict()["layers"][-1]
    assert last["synops"] == pytest.approx(10 * spikes.sum().item() / 360)
    assert last["rate"] == pytest.approx(spikes.mean().item())


def test_evaluation_leaves_random_numbers_and_threads_alone(run: pj.Run) -> None:
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    pj.evaluate(run)
    pj.load_model(run)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("split", ["test", "validation"])
def test_evaluate_as_json(run: pj.Run, command: Command, split: str) -> None:
    status, out, err = command("evaluate", str(run.path), "--split", split, "--trust", "--json")
    assert (status, err) == (0, "")
    fields = json.loads(out)
    assert list(fields) == FIELDS + FOOTPRINT
    occupied = {name: fields.pop(name) for name in FOOTPRINT}
    assert fields == run.result.on(split).to_dict()
    footprint = pj.evaluate(run, split).footprint
    assert footprint is not None
    assert occupied == footprint.to_dict()
    assert [list(layer) for layer in fields["layers"]] == ["name neurons synops joules rate dead_rate".split()] * 3


def test_evaluate_as_a_table(run: pj.Run, command: Command) -> None:
    status, out, err = command("evaluate", str(run.path), "--trust")
    assert (status, err) == (0, "")
    for word in (
        "spike1",
        "pool1",
        "spike2",
        "relay",
        "accuracy",
        "360 test images",
        "514 parameters",
        "2.17 kB of weights",
    ):
        assert word in out


def test_a_relu_network_is_evaluated_by_the_command_too(tmp_path: Path, command: Command) -> None:
    relu = pj.fit(tiny.recipe("neuron.kind=relu", "penalty.strength=0", "training.epochs=1"), tmp_path)
    status, out, _ = command("evaluate", str(relu.path), "--trust")
    assert status == 0
    assert out.startswith("accuracy ")
    status, out, _ = command("evaluate", str(relu.path), "--trust", "--json")
    document = json.loads(out)
    assert all(document.pop(name) > 0 for name in FOOTPRINT)
    assert document == relu.result.test.to_dict()


def test_mistakes_are_told_in_a_sentence(run: pj.Run, command: Command, tmp_path: Path) -> None:
    unfinished = pj.Run(tmp_path / "unfinished")
    with unfinished.begun(tiny.recipe()):
        pass
    for arguments, words in (
        ((str(tmp_path),), "is not a run folder"),
        ((str(run.path), "--split", "tset"), "did you mean 'test'"),
        ((str(unfinished.path),), "finish the run with `picojoule train`"),
    ):
        status, out, err = command("evaluate", *arguments)
        assert (status, out) == (2, "")
        assert err.startswith("picojoule: ")
        assert err.count("\n") == 1
        assert words in err
    with pytest.raises(pj.PicojouleError, match="unknown split 'train'"):
        pj.evaluate(run, "train")  # type: ignore[arg-type]


def test_weights_of_another_network_are_refused(run: pj.Run, tmp_path: Path) -> None:
    other = pj.fit(tiny.recipe("training.epochs=1"), tmp_path)
    (other.path / "weights.safetensors").write_bytes((run.path / "weights.safetensors").read_bytes())
    with pytest.raises(pj.PicojouleError, match="do not fit the model of its recipe") as caught:
        pj.evaluate(other)
    assert "\n" not in str(caught.value)


# --- Two processes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 3])
def test_a_process_that_gets_no_batch_changes_nothing(images: int) -> None:
    two = Fabric(accelerator="cpu", devices=2, strategy="ddp_spawn").launch(measured, images)
    one = measured(Fabric(accelerator="cpu"), images)
    assert two.pop("loss") == pytest.approx(one.pop("loss"), rel=1e-6)
    assert two == one
    assert (one["samples"], one["steps"]) == (images, 2)
    assert one["synops"] > 0
