"""`picojoule infer`: answers with their bill, from pictures or from a split, by either engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import picojoule as pj
import tiny
from command_line import Command
from picojoule.data.picture import read_picture
from picojoule.runs import engines
from picojoule.runs.engines import Engine


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe("model.name=tiny:pooled"), tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The first three test images of digits as files: bordered PNG, PNG in colour, JPEG of another size."""
    folder = tmp_path_factory.mktemp("pictures")
    images = pj.data.load("digits").test.images[:3, 0].numpy()
    paths = [folder / "bordered.png", folder / "colour.png", folder / "large.jpg"]
    Image.fromarray(images[0]).save(paths[0])
    Image.fromarray(images[1]).convert("RGB").save(paths[1])
    Image.fromarray(images[2]).resize((64, 64)).save(paths[2])
    return paths


@pytest.mark.parametrize("engine", ["events", pytest.param("onnx", marks=pytest.mark.slow), "dense"])
def test_a_split_is_answered_as_evaluation_does(run: pj.Run, engine: str, command: Command) -> None:
    status, out, _ = command("infer", run.path, "--trust", "--split", "test", "--engine", engine, "--json")
    assert status == 0
    document = json.loads(out)
    stored = run.result.test
    images = document["images"]
    assert len(images) == stored.samples
    assert document["accuracy"] == pytest.approx(stored.accuracy)
    assert np.mean([image["synops"] for image in images]) == pytest.approx(stored.synops, rel=1e-3)
    assert np.mean([image["joules"] for image in images]) == pytest.approx(stored.joules, rel=1e-3)
    spiking = [layer for layer in stored.layers if layer.neurons]
    for i, layer in enumerate(spiking):
        assert images[0]["layers"][i]["name"] == layer.name
        assert np.mean([image["layers"][i]["rate"] for image in images]) == pytest.approx(layer.rate, rel=1e-3)
    assert all(0.1 <= image["confidence"] <= 1 and image["milliseconds"] > 0 for image in images)
    names = pj.data.DATASETS["digits"].class_names
    assert all(image["class_name"] == names[image["class"]] for image in images)


def test_the_engines_agree(run: pj.Run, pictures: list[Path]) -> None:
    by_events, densely = (pj.infer(run, pictures, engine=engine) for engine in ("events", "dense"))
    for a, b in zip(by_events.answers, densely.answers, strict=True):
        assert (a.image, a.class_, a.synops, a.spikes) == (b.image, b.class_, b.synops, b.spikes)
        assert a.confidence == pytest.approx(b.confidence, rel=1e-4)


def test_weights_that_are_computed_are_used_as_they_are_computed(tmp_path: Path) -> None:
    """Of a layer of `nn.utils.weight_norm`, the attribute `weight` is that of some pass before the last step."""
    run = pj.fit(tiny.recipe("model.name=tiny:weight_normed"), tmp_path)
    by_events, densely = (pj.infer(run, split="test", limit=100, engine=engine) for engine in ("events", "dense"))
    assert by_events.accuracy == densely.accuracy
    for a, b in zip(by_events.answers, densely.answers, strict=True):
        assert (a.class_, a.synops, a.spikes) == (b.class_, b.synops, b.spikes)


def test_the_bounds_hold_on_all_test_images(run: pj.Run) -> None:
    """The same class for 99.9 % of them, at most one spike in 10 000 different, and the meter's operations."""
    net, data = pj.load_model(run), pj.data.load("digits")
    images = data.normalization(data.test.images.float() / 255)
    engine = pj.events.compile(net, images[:1])
    with torch.no_grad(), pj.watch(net) as dense:
        classes = net(images).argmax(1)
    own, result = engine.watch(images), engine(images)
    assert (result.logits.argmax(1) == classes).double().mean() >= 0.999
    layers = [layer.name for layer in engine.synapses.spiking]
    differing = torch.stack([(own[name] != dense[name]).flatten(1).sum(1) for name in layers]).sum(0)
    assert differing.sum() <= 1e-4 * sum(own[name].numel() for name in layers)
    fan_outs = {name: layer.fan_out.double() for name, layer in engine.synapses.items()}
    metered = sum((dense[name].double() * fan_out).flatten(1).sum(1) for name, fan_out in fan_outs.items())
    same = differing == 0
    assert same.any()
    assert torch.equal(result.synops[same].double(), metered[same])


def test_a_picture_is_answered_like_the_image_it_came_from(run: pj.Run, pictures: list[Path]) -> None:
    from_files = pj.infer(run, pictures[:2]).answers
    from_split = pj.infer(run, split="test", limit=2).answers
    for a, b in zip(from_files, from_split, strict=True):
        assert (a.class_, a.synops, a.spikes) == (b.class_, b.synops, b.spikes)
        assert a.label is None
        assert b.label is not None


def test_a_bad_picture_is_named_and_the_rest_go_on(
    run: pj.Run, pictures: list[Path], tmp_path: Path, command: Command
) -> None:
    whole = pictures[2].read_bytes()
    (tmp_path / "text.png").write_text("no picture")
    (tmp_path / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    bad = [tmp_path / "absent.png", tmp_path / "text.png", tmp_path / "cut.jpg", tmp_path]
    status, out, err = command("infer", run.path, "--trust", *bad[:2], pictures[0], *bad[2:], pictures[1], "--json")
    assert status == 1
    document = json.loads(out)
    assert [image["image"] for image in document["images"]] == [str(path) for path in pictures[:2]]
    assert [fault["image"] for fault in document["failed"]] == [str(path) for path in bad]
    assert all(str(path) in err for path in bad)
    assert "Traceback" not in err


def test_people_read_lines(run: pj.Run, pictures: list[Path], command: Command) -> None:
    status, out, _ = command("infer", run.path, "--trust", *pictures)
    assert status == 0
    assert out.count("\n") == 5
    assert "memory: 4.91 kB of weights, " in out
    for path in pictures:
        assert f"{path}: class " in out
    assert "synaptic operations" in out


@pytest.mark.slow
def test_the_bill_is_that_of_the_price_list(tmp_path: Path) -> None:
    """Of one with memory traffic: a price for each spike, and for each synapse its own."""
    run = pj.fit(tiny.recipe("model.name=tiny:pooled", "energy.hardware=lemaire-45nm-int32"), tmp_path)
    stored = run.result.test
    for engine in ("events", "dense"):
        answers = pj.infer(run, split="test", engine=engine).answers  # type: ignore[arg-type]
        assert np.mean([answer.joules for answer in answers]) == pytest.approx(stored.joules, rel=1e-3)
    assert stored.joules > 100 * stored.synops * 0.1e-12


@pytest.mark.slow
def test_the_bill_is_by_the_psi_of_the_recipe(tmp_path: Path, command: Command) -> None:
    """Image by image what `evaluate` has on average, under each convention; the two differ."""
    bills = {}
    for psi in ("exact", "uniform"):
        run = pj.fit(tiny.recipe("penalty.strength=0", f"energy.psi={psi}", "training.epochs=1"), tmp_path)
        stored = run.result.test
        bills[psi] = stored.synops
        for engine in ("events", "dense"):
            status, out, _ = command("infer", run.path, "--trust", "--split", "test", "--engine", engine, "--json")
            document = json.loads(out)
            assert (status, document["psi"]) == (0, psi)
            for key in ("synops", "joules"):
                mean = np.mean([image[key] for image in document["images"]])
                assert mean == pytest.approx(getattr(stored, key), rel=1e-3)
            _, out, _ = command("infer", run.path, "--trust", "--split", "test", "--limit", "1", "--engine", engine)
            assert f"synaptic operations (ψ {psi})" in out
    assert bills["uniform"] != pytest.approx(bills["exact"], rel=0.05)


def test_a_split_is_the_one_of_the_recipe(tmp_path: Path) -> None:
    limits = ("data.limit_test=20", "data.limit_validation=30")
    run = pj.fit(tiny.recipe("model.name=tiny:pooled", "training.epochs=1", *limits), tmp_path)
    for split, images in (("test", 20), ("validation", 30)):
        answered = pj.infer(run, split=split)  # type: ignore[arg-type]
        assert len(answered.answers) == run.result.on(split).samples == images
        assert answered.accuracy == pytest.approx(run.result.on(split).accuracy)
        synops = np.mean([answer.synops for answer in answered.answers])
        assert synops == pytest.approx(run.result.on(split).synops, rel=1e-3)


@pytest.mark.slow
def test_neurons_over_time_are_answered_by_both_engines(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("model.name=tiny:over_time", "neuron.kind=lif", "neuron.steps=3"), tmp_path)
    by_events, densely = (pj.infer(run, split="test", engine=engine) for engine in ("events", "dense"))
    stored = run.result.test
    for answered in (by_events, densely):
        answers = answered.answers
        rates = [image["layers"][0]["rate"] for image in answered.to_dict()["images"]]
        assert np.mean(rates) == pytest.approx(stored.layers[0].rate, rel=1e-3), "per neuron and step"
        assert np.mean([answer.class_ == answer.label for answer in answers]) == pytest.approx(stored.accuracy)
        assert np.mean([answer.synops for answer in answers]) == pytest.approx(stored.synops, rel=1e-3)


@pytest.mark.slow
def test_the_fastest_engine_is_taken_and_named(run: pj.Run, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The times are made up, so that the choice does not depend on the machine."""
    times = {"events": 2.0, "onnx": 1.0, "dense": 3.0}
    monkeypatch.setattr(engines, "_median_milliseconds", lambda engine, _: times[engine.name])
    few = ("infer", run.path, "--trust", "--split", "test", "--limit", "2")
    status, out, _ = command(*few, "--engine", "auto", "--json")
    document = json.loads(out)
    assert (status, document["engine"], document["weights"]) == (0, "onnx", "float32")
    assert [(each["engine"], each["milliseconds"]) for each in document["candidates"]] == [
        ("onnx", 1.0),
        ("events", 2.0),
        ("dense", 3.0),
    ]
    status, out, _ = command(*few, "--engine", "auto", "--weights", "int8")
    assert status == 0
    assert "2 images by events with int8 weights" in out
    assert "engine: events is the fastest here" in out
    assert "not onnx, for the engine 'onnx' has float32 weights only" in out


def test_engines_are_timed_by_their_calls_alone() -> None:
    def engine(calls: list[Tensor]) -> Engine:
        def answer(x: Tensor) -> Any:
            calls.append(x)
            return lambda: pytest.fail("the findings are no part of the time")

        return Engine("dense", answer, 0, None)

    shown: list[Tensor] = []
    example = torch.arange(3.0).view(3, 1)
    assert engines._median_milliseconds(engine(shown), example) >= 0
    assert {x.item() for x in shown} == {0.0, 1.0, 2.0}
    assert all(x.shape == (1, 1) for x in shown)


def test_int8_weights_take_less_memory_and_answer_nearly_alike(run: pj.Run) -> None:
    whole, rounded = (pj.infer(run, split="test", weights=weights) for weights in ("float32", "int8"))  # type: ignore[arg-type]
    assert rounded.memory.weight_bytes < whole.memory.weight_bytes
    assert rounded.memory.activation_bytes == whole.memory.activation_bytes
    assert whole.accuracy is not None
    assert rounded.accuracy == pytest.approx(whole.accuracy, abs=0.05)
    off = [a.confidence != b.confidence for a, b in zip(whole.answers, rounded.answers, strict=True)]
    assert any(off), "the weights were not rounded"
    document = rounded.to_dict()
    assert document["memory"]["process_peak_bytes"] > 10**7
    assert document["milliseconds"]["low"] <= document["milliseconds"]["median"] <= document["milliseconds"]["high"]


@pytest.mark.parametrize("request_", [("evaluate",), ("infer", "--split", "test", "--limit", "1", "--engine", "dense")])
def test_what_a_model_prints_is_not_in_the_document(
    request_: tuple[str, ...], tmp_path: Path, command: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pj.fit(tiny.recipe("model.name=tiny:speaks", "training.epochs=1"), tmp_path)
    capsys.readouterr()
    name, *options = request_
    status, out, err = command(name, run.path, "--trust", *options, "--json")
    assert status == 0
    json.loads(out)
    assert "forward" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "pictures or a split"),
        (["a.png", "--split", "test"], "pictures or a split"),
        (["--split", "tset"], "did you mean 'test'"),
        (["--split", "test", "--limit", "0"], "limit 0"),
        (["a.png", "--limit", "3"], "limit 3"),
        (["a.png", "--engine", "event"], "did you mean 'events'"),
        (["a.png", "--weights", "int4"], "int8"),
        (["--split", "test", "--weights", "int8", "--engine", "dense"], "take --engine events for int8"),
    ],
)
def test_a_wrong_request(run: pj.Run, arguments: list[str], message: str, command: Command) -> None:
    status, out, err = command("infer", run.path, "--trust", *arguments)
    assert (status, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_folder_that_is_no_run(tmp_path: Path, command: Command) -> None:
    status, _, err = command("infer", tmp_path, "a.png")
    assert status == 2
    assert "not a run folder" in err


def test_pictures_take_the_form_of_the_data_set(pictures: list[Path]) -> None:
    images = pj.data.load("digits").test.images
    pad = pj.data.DATASETS["digits"].pad
    assert torch.equal(read_picture(pictures[0], (1, 32, 32), pad), images[0])
    assert torch.equal(read_picture(pictures[1], (1, 32, 32), pad), images[1])
    assert read_picture(pictures[2], (1, 32, 32), pad).shape == images.shape[1:]
    assert read_picture(pictures[2], (3, 32, 32), 0).shape == (3, 32, 32)
    bordered = read_picture(pictures[2], (1, 28, 28), 2)
    assert bordered.shape == (1, 32, 32)
    assert not bordered[:, :2].any()
    assert torch.equal(read_picture(pictures[0], (1, 28, 28), 2), images[0]), "it has its border already"


def test_a_picture_is_read_as_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grey = np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)
    picture, path = Image.fromarray(grey), tmp_path / "picture.png"

    def read() -> list[list[int]]:
        pixels: list[list[int]] = read_picture(path, (1, 32, 32), 0)[0].tolist()
        return pixels

    Image.fromarray(grey.astype(np.uint16) * 257).save(path)
    assert read() == grey.tolist(), "16 bits"
    clear = picture.convert("RGBA")
    clear.putalpha(Image.fromarray(np.where(grey < 128, 0, 255).astype(np.uint8)))
    clear.save(path)
    assert read() == np.where(grey < 128, 0, grey).tolist(), "transparent"
    turned = Image.Exif()
    turned[0x0112] = 6  # to be turned by a quarter, clockwise
    picture.save(path, exif=turned)
    assert read() == np.rot90(grey, -1).tolist(), "lying on its side"
    picture.convert("P").save(path)
    assert read() == grey.tolist(), "with a palette"
    for most in (1000, 100):  # a warning of Pillow's, and an error
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", most)
        with pytest.raises(pj.PicojouleError, match="too many pixels"):
            read()
