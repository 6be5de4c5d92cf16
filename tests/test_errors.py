"""A wrong kind of argument to a public function is one sentence, whatever the function."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import picojoule as pj
from picojoule.energy.hardware import MemoryPriceList, PriceList
from picojoule.errors import PicojouleError, memory_ran_out
from picojoule.paper.conversion_chain import stages

SOURCES = Path(pj.__file__).parent


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), pj.Spike(), nn.Linear(6, 2))


def synapses() -> pj.Synapses:
    return pj.trace(network(), torch.zeros(1, 4))


def meter() -> pj.EnergyMeter:
    return pj.EnergyMeter(synapses())


def prices(**changed: Any) -> PriceList:
    return PriceList(**{"name": "mine", "accumulate": 1e-12, "source": "measured"} | changed)


def memory_prices(**changed: Any) -> PriceList:
    given = {
        "name": "mine",
        "accumulate": 1e-12,
        "source": "measured",
        "multiply": 1e-12,
        "memory": ((1, 1.0), (2, 2.0)),
    }
    return MemoryPriceList(**given | changed)


def recipe() -> pj.Recipe:
    return pj.Recipe.loads('model.name = "cnn7"\ndata.name = "digits"')


CALLS: dict[str, Callable[[Any], object]] = {
    "trace: model": lambda wrong: pj.trace(wrong, torch.zeros(1, 4)),
    "trace: example": lambda wrong: pj.trace(network(), wrong),
    "trace: psi": lambda wrong: pj.trace(network(), torch.zeros(1, 4), psi=wrong),
    "trace: steps": lambda wrong: pj.trace(network(), torch.zeros(1, 4), steps=wrong),
    "watch: model": lambda wrong: pj.watch(wrong).__enter__(),
    "watch: steps": lambda wrong: pj.watch(network(), wrong).__enter__(),
    "Penalty: synapses": lambda wrong: pj.Penalty(wrong),
    "Penalty: kind": lambda wrong: pj.Penalty(synapses(), wrong),
    "Penalty: p": lambda wrong: pj.Penalty(synapses(), p=wrong),
    "Penalty: normalized": lambda wrong: pj.Penalty(synapses(), normalized=wrong),
    "Penalty: activity": lambda wrong: pj.Penalty(synapses())(wrong),
    "EnergyMeter: synapses": lambda wrong: pj.EnergyMeter(wrong),
    "EnergyMeter: hardware": lambda wrong: pj.EnergyMeter(synapses(), wrong),
    "EnergyMeter.update": lambda wrong: meter().update(wrong),
    "EnergyMeter.merge": lambda wrong: meter().merge(wrong),
    "EnergyMeter.load_state_dict": lambda wrong: meter().load_state_dict(wrong),
    "Layer": lambda wrong: pj.Layer("a", wrong),
    "Synapses": lambda wrong: pj.Synapses(wrong, psi="exact", input_shape=(1,), steps=1, encoder_macs=0, dense_macs=0),
    "declare_spiking": lambda wrong: pj.declare_spiking(wrong),
    "declare_rule: name": lambda wrong: pj.declare_rule(wrong, pj.rules.identity),
    "declare_rule: rule": lambda wrong: pj.declare_rule("relu", wrong),
    "hardware.get": lambda wrong: pj.hardware.get(wrong),
    "PriceList: name": lambda wrong: prices(name=wrong),
    "PriceList: source": lambda wrong: prices(source=wrong),
    "PriceList: accumulate": lambda wrong: prices(accumulate=wrong),
    "MemoryPriceList: multiply": lambda wrong: memory_prices(multiply=wrong),
    "MemoryPriceList: word": lambda wrong: memory_prices(word=wrong),
    "MemoryPriceList: memory": lambda wrong: memory_prices(memory=wrong),
    "zoo.create: name": lambda wrong: pj.zoo.create(wrong),
    "zoo.create: classes": lambda wrong: pj.zoo.create("cnn7", classes=wrong),
    "zoo.create: neuron": lambda wrong: pj.zoo.create("cnn7", neuron=wrong),
    "zoo.create: steps": lambda wrong: pj.zoo.create("cnn7", steps=wrong),
    "Spike: threshold": lambda wrong: pj.Spike(wrong),
    "Spike: surrogate": lambda wrong: pj.Spike(surrogate=wrong),
    "LIF: leak": lambda wrong: pj.LIF(leak=wrong),
    "data.load": lambda wrong: pj.data.load(wrong),
    "Recipe.load": lambda wrong: pj.Recipe.load(wrong),
    "Recipe.loads": lambda wrong: pj.Recipe.loads(wrong),
    "Recipe.override": lambda wrong: recipe().override(wrong),
    "fit: recipe": lambda wrong: pj.fit(wrong),
    "evaluate: run": lambda wrong: pj.evaluate(wrong),
    "evaluate: split": lambda wrong: pj.evaluate("nowhere", wrong),
    "infer: run": lambda wrong: pj.infer(wrong, ["image.png"]),
    "infer: limit": lambda wrong: pj.infer("nowhere", split="test", limit=wrong or -1),
    "infer: engine": lambda wrong: pj.infer("nowhere", split="test", engine=wrong),
    "load_model": lambda wrong: pj.load_model(wrong),
    "Run.at": lambda wrong: pj.Run.at(wrong),
    "sweep.load": lambda wrong: pj.sweep.load(wrong),
    "sweep.run: recipes": lambda wrong: pj.sweep.run(wrong or [wrong]),
    "sweep.run: on": lambda wrong: pj.sweep.run([], on=wrong),
    "conversion_chain.stages": lambda wrong: stages(wrong, 0.5, 2),
    "convert": lambda wrong: pj.convert(wrong),
    "tradeoff.auc": lambda wrong: pj.tradeoff.auc(wrong, [0.9]),
    "events.compile": lambda wrong: pj.events.compile(wrong, torch.zeros(1, 4)),
    "export.to_nir": lambda wrong: pj.export.to_nir(wrong, torch.zeros(1, 4)),
    "export.write: format": lambda wrong: pj.export.write(network(), torch.zeros(1, 4), wrong, "file"),
}


NAMES = ("S3NN", "Ray")
"""With which a message may begin, though it is a lower-case sentence."""


def messages() -> Iterator[tuple[str, str]]:
    """Where each message is made that is written out, and its words, with {} for what is filled in."""
    for path in sorted(SOURCES.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "PicojouleError" and node.args:
                parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
                words = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in parts)
                yield f"{path.relative_to(SOURCES)}:{node.lineno}", words


def test_all_messages_have_one_style() -> None:
    """Lower case, no full stop, what is wrong: what to do."""
    found = dict(messages())
    assert len(found) > 300
    assert not {where: text for where, text in found.items() if text[0].isupper() and not text.startswith(NAMES)}
    assert not {where: text for where, text in found.items() if text.endswith(".")}
    assert not {where: text for where, text in found.items() if ": " not in text and not text.endswith("{}")}


WRONG = {"None": None, "text": "x", "number": -1.5, "list": [1], "dictionary": {"a": 1}, "object": object()}
RIGHT = {("PriceList: name", "text"), ("PriceList: source", "text"), ("tradeoff.auc", "list")}


@pytest.mark.parametrize("call", CALLS)
def test_wrong_kinds_of_arguments(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in [wrong for wrong in WRONG if (call, wrong) not in RIGHT]:
        with pytest.raises(PicojouleError) as told:
            CALLS[call](WRONG[wrong])
        assert "\n" not in str(told.value), wrong
        assert not list(tmp_path.iterdir()), wrong


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: meter().merge(None), "merge needs another EnergyMeter, not NoneType"),
        (lambda: pj.zoo.create(None), "unknown model None: choose one of cnn7, vgg11, resnet18"),
        (lambda: pj.zoo.create("cnn7", neuron="x"), "neuron='x' makes no modules: pass a factory such as Spike"),
        (lambda: pj.zoo.create("cnn7", neuron=torch.relu), "could not be called without arguments .*: pass a factory"),
        (lambda: pj.zoo.create("cnn7", neuron=dict), "made dict: let it make an nn.Module"),
        (lambda: pj.zoo.create("cnn7", classes="10"), "classes must be 1 or more, not '10': give a whole number"),
        (lambda: prices(accumulate=None), "accumulate must be a finite number of joules, 0 or more, not None"),
        (lambda: prices(spike=True), "spike must be a finite number of joules, 0 or more, not True"),
        (lambda: prices(accumulate=10**400), "accumulate must be a finite number of joules"),
        (lambda: pj.Penalty(synapses(), p=1e308), r"p=1e\+308 is not allowed: .* 1 or more, up to 127"),
        (lambda: pj.Penalty(synapses(), p=10**400), "is not allowed: a penalty needs a finite p"),
        (lambda: recipe().override("penalty.p=1e308"), "penalty.p .*127"),
        (lambda: pj.infer("run", "image.png"), r"images is a list of pictures, not one path: give \['image.png'\]"),
        (lambda: pj.fit("recipe.toml"), "fit needs a Recipe, not str: Recipe.load reads one"),
        (lambda: pj.fit(recipe(), None), "the folder of runs is named by its path, not by NoneType"),
        (lambda: pj.load_model("runs/a"), "runs/a is not a run folder"),
        (lambda: pj.sweep.run(recipe()), "a sweep needs a list of recipes, not Recipe"),
        (lambda: pj.watch(network(), time_axis=True).__enter__(), "time_axis=True is not known"),
    ],
)
def test_the_sentence_says_what_to_do(call: Callable[[], object], words: str) -> None:
    with pytest.raises(PicojouleError, match=words):
        call()


@pytest.mark.parametrize("p", [2, 127])
def test_a_large_power_still_has_its_gradient(p: float) -> None:
    torch.manual_seed(0)
    net = network()
    with pj.watch(net) as activity:
        net(5 * torch.randn(8, 4))
    pj.Penalty(pj.trace(net, torch.zeros(1, 4)), p=p)(activity).backward()
    gradient = net[0].weight.grad
    assert gradient.any()
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state | {"samples_and_steps": torch.tensor([3, 0])},
        lambda state: state | {"samples_and_steps": torch.tensor([-1, 1])},
        lambda state: state | {"counts.1": state["counts.1"] - 1},
        lambda state: {key: value.double() for key, value in state.items()},
    ],
)
def test_states_that_no_meter_can_have(change: Callable[[dict[str, torch.Tensor]], dict[str, torch.Tensor]]) -> None:
    """The first is that of a sum over processes in which the steps were divided by their number."""
    with pytest.raises(PicojouleError, match="give what state_dict"):
        meter().load_state_dict(change(meter().state_dict()))


@pytest.mark.parametrize(("end", "told"), [("", True), (": Operation not permitted", False)])
def test_a_library_that_finds_no_room_is_memory_that_ran_out(end: str, told: bool) -> None:
    """Numba's compiler raises an error of its own over what the system's loader says."""
    with pytest.raises(OSError, match="Could not find") as raised:  # noqa: PT012
        try:
            raise OSError(f"libllvmlite.so: failed to map segment from shared object{end}")
        except OSError:
            raise OSError("Could not find/load shared object file")  # noqa: B904
    assert (memory_ran_out(raised.value) is not None) == told
