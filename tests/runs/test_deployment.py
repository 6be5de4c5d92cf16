"""What an exported file carries: enough to answer images with it and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import picojoule as pj
import tiny
from picojoule.cli import main
from picojoule.runs.deployment import deployment_facts


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe("model.name=tiny:normed", "training.epochs=1"), tmp_path_factory.mktemp("runs"))


def test_an_onnx_file_and_its_facts_answer_images_as_the_run_does(run: pj.Run, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    facts = deployment_facts(run)
    file = pj.export.write(pj.load_model(run), run.recipe.example(), "onnx", tmp_path / "net.onnx", facts=facts)
    session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])
    carried = json.loads(session.get_modelmeta().custom_metadata_map["picojoule"])
    assert carried == facts == json.loads((tmp_path / "net.onnx.json").read_text(encoding="utf-8"))
    assert carried["recipe_digest"] == run.recipe.digest
    assert (carried["hardware"], carried["class_names"][3], carried["padding"]) == ("horowitz-45nm-fp32", "three", 0)
    stored = pj.data.load("digits").test
    mean, deviation = (np.array(carried[key])[:, None, None] for key in ("mean", "deviation"))
    inputs = ((stored.images[:].numpy() * carried["scale"] - mean) / deviation).astype(np.float32)
    (logits,) = session.run(["logits"], {"images": inputs})
    assert (logits.argmax(1) == stored.labels.numpy()).mean() == pytest.approx(run.result.test.accuracy, abs=0.01)


def test_a_nir_file_carries_the_same(run: pj.Run, tmp_path: Path) -> None:
    nir = pytest.importorskip("nir")
    facts = deployment_facts(run)
    file = pj.export.write(pj.load_model(run), run.recipe.example(), "nir", tmp_path / "net.nir", facts=facts)
    told = nir.read(file, type_check=False).nodes["input"].metadata["picojoule"]
    assert json.loads(told.decode() if isinstance(told, bytes) else told) == facts


def test_the_command_writes_the_facts_beside(
    run: pj.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "net.onnx"
    arguments = ["export", str(run.path), "--to", "onnx", "--out", str(out), "--trust", "--json"]
    monkeypatch.setattr(sys, "argv", ["picojoule", *arguments])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out)["facts"] == f"{out}.json"
    assert json.loads(Path(f"{out}.json").read_text(encoding="utf-8"))["classes"] == 10


def test_times_have_a_median_and_a_spread(run: pj.Run) -> None:
    result = pj.infer(run, split="test", limit=20, engine="dense")
    times = sorted(answer.milliseconds for answer in result.answers)
    spread = result.milliseconds
    assert spread["median"] == pytest.approx(float(np.median(times)))
    assert times[0] <= spread["low"] <= spread["median"] <= spread["high"] <= times[-1]
    assert result.to_dict()["milliseconds"] == spread
    assert any("nine of ten from" in line for line in result.lines())
    assert torch.is_tensor(pj.load_model(run).out.weight)
