"""The command line as its users meet it: output, exit status, and one sentence for every mistake."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import picojoule as pj
from command_line import COMMANDS
from paper_networks import SMALLEST_FIRST
from picojoule.cli import main


@dataclass(frozen=True)
class Outcome:
    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command line in this process, as the installed script calls it."""

    def run(*arguments: str, columns: int = 120) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["picojoule", *arguments])
        monkeypatch.setenv("COLUMNS", str(columns))
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Outcome(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str, str], None]]:
    """Modules of a user in the current folder, forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)

    def write(name: str, source: str) -> None:
        file = tmp_path / f"{name.replace('.', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source, encoding="utf-8")

    yield write
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("users_"):
            del sys.modules[name]


def is_a_sentence(outcome: Outcome, *parts: str) -> bool:
    """Exit status 2, nothing on standard output, one line that names what is wrong."""
    assert outcome.status == 2
    assert outcome.out == ""
    assert outcome.err.startswith("picojoule: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    for part in parts:
        assert part in outcome.err, part
    return True


@functools.cache
def traced(model: str, psi: Any) -> pj.Synapses:
    net = pj.zoo.create(model)
    return pj.trace(net, torch.zeros(1, *net.input_shape), psi=psi)


# ------------------------------------------------------------------------------------------------------- profile --json


FIELDS = (
    "model input_shape psi chains steps neurons spiking_layers synapses encoder_macs analog_macs unit_synapses analog "
    "penalty_at_one layers"
).split()
LAYER_FIELDS = "name shape neurons synapses psi_min psi_max kind".split()


@pytest.mark.parametrize(
    ("model", "psi"),
    [
        *(("cnn7", psi) for psi in ("uniform", "paper", "exact")),
        *(pytest.param(model, "exact", marks=pytest.mark.slow) for model in ("vgg11", "resnet18")),
    ],
)
def test_profile_as_json(run: Run, model: str, psi: Any) -> None:
    outcome = run("profile", model, "--psi", psi, "--json")
    assert outcome.status == 0
    assert outcome.err == ""
    fields = json.loads(outcome.out)
    assert list(fields) == FIELDS
    synapses = traced(model, psi)
    neurons, layers = synapses.neurons, len(synapses.spiking)
    assert fields["model"] == model
    assert fields["input_shape"] == list(synapses.input_shape)
    assert fields["psi"] == psi
    assert (fields["neurons"], fields["spiking_layers"]) == (neurons, layers)
    assert (fields["synapses"], fields["encoder_macs"]) == (synapses.synapses, synapses.encoder_macs)
    assert fields["penalty_at_one"] == {"syn": fields["synapses"], "total": neurons, "balance": layers}
    for kind, at_one in fields["penalty_at_one"].items():
        assert type(at_one) is int
        assert pj.Penalty(synapses, kind).at_one == pytest.approx(at_one, rel=1e-14)
    for key in ("neurons", "spiking_layers", "synapses", "encoder_macs"):
        assert type(fields[key]) is int
    assert [row["name"] for row in fields["layers"]] == list(synapses)
    assert sum(row["synapses"] for row in fields["layers"]) == fields["synapses"]
    assert sum(row["neurons"] for row in fields["layers"]) == neurons
    for row in fields["layers"]:
        fan_out = synapses[row["name"]].fan_out
        assert list(row) == LAYER_FIELDS
        assert row["shape"] == list(fan_out.shape)
        assert (row["psi_min"], row["psi_max"]) == (fan_out.min().item(), fan_out.max().item())
        assert psi != "exact" or type(row["psi_max"]) is int


def test_profile_without_psi_is_exact(run: Run) -> None:
    assert run("profile", "cnn7", "--json") == run("profile", "cnn7", "--psi", "exact", "--json")


# -------------------------------------------------------------------------------------------------------- profile table


@pytest.mark.parametrize("model", SMALLEST_FIRST)
def test_profile_as_a_table(run: Run, model: str) -> None:
    outcome = run("profile", model, "--psi", "uniform")
    assert outcome.status == 0
    assert outcome.err == ""
    counted = traced(model, "uniform")
    neurons, layers, synapses = counted.neurons, len(counted.spiking), counted.synapses
    words = " ".join(outcome.out.split())
    for statement in (
        "ψ = uniform",
        "×32×32",
        f"syn {synapses:,}",
        f"total {neurons:,}",
        f"balance {layers}",
        "multiply-accumulates",
        "share",
        "100.0%",
    ):
        assert statement in words, statement
    for name in traced(model, "uniform"):
        assert name in outcome.out, name


def test_shares_add_up(run: Run) -> None:
    out = run("profile", "cnn7").out
    rows = [line for line in out.splitlines() if "spike" in line]
    shares = [float(row.split("%")[0].split()[-1]) for row in rows]
    assert len(shares) == 6
    assert sum(shares) == pytest.approx(100, abs=0.3)


# ------------------------------------------------------------------------------------------------- a model of one's own


OWN = """
from torch import nn
import picojoule as pj

def build():
    return nn.Sequential(nn.Conv2d(2, 4, 3), pj.Spike(), nn.Flatten(), nn.Linear(4 * 3 * 3, 5))

class Knows(nn.Sequential):
    input_shape = (2, 5, 5)
    def __init__(self):
        super().__init__(*build())

def relay():
    return nn.Sequential(nn.Conv2d(1, 4, 3), pj.Spike(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 5))

def number():
    return 7

def without_spikes():
    return nn.Linear(2, 2)

def hungry(width):
    return build()

VALUE = 3
"""


@pytest.mark.parametrize("arguments", [("users_nets:build", "--input", "2,5,5"), ("users_nets:Knows",)])
def test_a_model_of_ones_own(run: Run, package: Callable[[str, str], None], arguments: tuple[str, ...]) -> None:
    package("users_nets", OWN)
    outcome = run("profile", *arguments, "--json")
    assert outcome.status == 0, outcome.err
    assert json.loads(outcome.out) == {
        "model": arguments[0],
        "input_shape": [2, 5, 5],
        "psi": "exact",
        "chains": "run",
        "steps": 1,
        "neurons": 36,
        "spiking_layers": 1,
        "synapses": 180,
        "encoder_macs": 3 * 3 * 9 * 2 * 4,
        "unit_synapses": 0,
        "analog_macs": 0,
        "analog": [],
        "penalty_at_one": {"syn": 180, "total": 36, "balance": 1},
        "layers": [
            {
                "name": "1",
                "shape": [4, 3, 3],
                "neurons": 36,
                "synapses": 180,
                "psi_min": 5,
                "psi_max": 5,
                "kind": "neurons",
            }
        ],
    }


def test_a_model_of_ones_own_in_a_package(run: Run, package: Callable[[str, str], None]) -> None:
    package("users_package.deep.nets", OWN)
    outcome = run("profile", "users_package.deep.nets:build", "--input", "2,5,5")
    assert outcome.status == 0, outcome.err
    assert "180" in outcome.out


def test_a_relay_has_no_neurons_in_the_profile(run: Run, package: Callable[[str, str], None]) -> None:
    package("users_nets", OWN)
    fields = json.loads(run("profile", "users_nets:relay", "--input", "1,4,4", "--json").out)
    assert [(row["name"], row["neurons"], row["synapses"]) for row in fields["layers"]] == [("1", 16, 0), ("2", 0, 20)]
    assert fields["penalty_at_one"] == {"syn": 20, "total": 16, "balance": 1}
    assert "relay" in run("profile", "users_nets:relay", "--input", "1,4,4").out


OVER_TIME = """
import torch
from torch import nn
import picojoule as pj

class Attends(nn.Module):
    def __init__(self, steps=2):
        super().__init__()
        self.steps = steps
        self.q, self.k, self.v = (nn.Sequential(nn.Linear(4, 4), pj.LIF(steps=steps)) for _ in range(3))
        self.mix, self.head = nn.Linear(4, 4), nn.Linear(4, 2)
    def forward(self, x):
        x = x.flatten(0, 1) if x.dim() == 4 else torch.cat([x] * self.steps)
        y = self.q(x) @ (self.k(x).mT @ self.v(x))
        return self.head(self.mix(y)).unflatten(0, (self.steps, -1)).mean(0)
"""


@pytest.mark.parametrize("options", [(), ("--frames",)])
def test_a_profile_over_time_has_products_and_analog_synapses(
    run: Run, package: Callable[[str, str], None], options: tuple[str, ...]
) -> None:
    package("users_nets", OVER_TIME)
    arguments = ("users_nets:Attends", "--input", "3,4", "--steps", "5", *options)
    fields = json.loads(run("profile", *arguments, "--json").out)
    assert (fields["steps"], fields["input_shape"]) == (5, [3, 4])
    kinds = {row["kind"]: row["synapses"] for row in fields["layers"]}
    assert kinds == {"neurons": 0, "product": 3 * 4 * 4}  # the last of q, k and v stands for neurons
    assert sum(row["synapses"] for row in fields["layers"]) == 3 * 4 * 4 * 2
    assert fields["analog"] == [{"name": "mix", "macs": 5 * 3 * 16}, {"name": "head", "macs": 5 * 3 * 8}]
    assert fields["encoder_macs"] == 5 * 3 * 3 * 16
    latex = run("profile", *arguments, "--latex").out
    assert latex.startswith(r"\begin{tabular}")
    latex = latex.replace(r"\textendash{}", "–")
    assert "mix (analog) &  & – & – & – & 240" in latex
    assert "encoder &  & – & – & – & 720" in latex
    assert "(product) & – & – & 1 & 48 & –" in latex


def test_a_profile_of_the_zoo_over_time(run: Run) -> None:
    fields = json.loads(run("profile", "cnn7", "--steps", "3", "--json").out)
    once = traced("cnn7", "exact")
    assert (fields["steps"], fields["synapses"], fields["encoder_macs"]) == (3, once.synapses, 3 * once.encoder_macs)


# ------------------------------------------------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("steps", ["0", "-2", "99999999"])
def test_a_wrong_number_of_steps(run: Run, steps: str) -> None:
    assert is_a_sentence(run("profile", "cnn7", "--steps", steps), f"--steps {steps}", "whole number")


def test_a_table_or_a_document(run: Run) -> None:
    assert is_a_sentence(run("profile", "cnn7", "--latex", "--json"), "--latex", "--json")


@pytest.mark.parametrize("name", ["cnn8", "CNN7", "", "resnet", "../cnn7"])
@pytest.mark.parametrize("options", [(), ("--json",)])
def test_a_wrong_model_lists_the_valid_ones(run: Run, name: str, options: tuple[str, ...]) -> None:
    assert is_a_sentence(run("profile", name, *options), repr(name), *pj.zoo.names())


def test_a_near_miss_is_guessed(run: Run) -> None:
    assert is_a_sentence(run("profile", "vgg1"), "did you mean 'vgg11'?")


@pytest.mark.parametrize("psi", ["Exact", "", "papers"])
def test_a_wrong_psi_lists_the_valid_ones(run: Run, psi: str) -> None:
    assert is_a_sentence(run("profile", "cnn7", "--psi", psi), repr(psi), "exact", "uniform", "paper")


def test_a_wrong_bill_of_chains_lists_the_valid_ones(run: Run) -> None:
    assert is_a_sentence(run("profile", "cnn7", "--chains", "fold"), "'fold'", "run", "merged")


SEPARABLE = """
from torch import nn
import picojoule as pj

def build():
    return nn.Sequential(pj.declare_spiking(nn.Identity()), nn.Conv2d(2, 3, 1), nn.Conv2d(3, 4, 3), pj.Spike())
"""


@pytest.mark.parametrize(
    ("chains", "synapses", "analog"), [("run", 25 * 2 * 3, 9 * 9 * 3 * 4), ("merged", 9 * 9 * 2 * 4, 0)]
)
def test_layers_without_a_neuron_between_them(
    run: Run, package: Callable[[str, str], None], chains: str, synapses: int, analog: int
) -> None:
    package("users_chains", SEPARABLE)
    outcome = run("profile", "users_chains:build", "--input", "2,5,5", "--chains", chains, "--json")
    assert outcome.status == 0, outcome.err
    fields = json.loads(outcome.out)
    assert (fields["chains"], fields["synapses"], fields["analog_macs"]) == (chains, synapses, analog)


@pytest.mark.parametrize("shape", ["", ",", "3,,32", "3,-1,32", "0,32,32", "a,b", "3.5,32,32", "3x32x32"])
def test_a_wrong_input(run: Run, shape: str) -> None:
    assert is_a_sentence(run("profile", "cnn7", "--input", shape), repr(shape), "--input 3,32,32")


@pytest.mark.parametrize("shape", ["1,99999999,99999999", "99999999999999999999"])
def test_an_input_that_no_memory_holds(run: Run, shape: str) -> None:
    assert is_a_sentence(run("profile", "cnn7", "--input", shape), shape, "shape of one input")


@pytest.mark.parametrize("shape", ["1,8,8", "1,32", "1,32,32,32"])
def test_an_input_that_does_not_fit_the_model(run: Run, shape: str) -> None:
    assert is_a_sentence(run("profile", "cnn7", "--input", shape), "shape")


def test_other_channels_than_usual(run: Run) -> None:
    fields = json.loads(run("profile", "cnn7", "--input", "3,32,32", "--json").out)
    assert fields["input_shape"] == [3, 32, 32]
    assert fields["encoder_macs"] == 3 * traced("cnn7", "exact").encoder_macs


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("users_nets:number", ["int", "nn.Module"]),
        ("users_nets:without_spikes", ["no spiking layer"]),
        ("users_nets:hungry", ["users_nets:hungry", "width"]),
        (".users_nets:build", ["'.users_nets"]),
        ("users_nets:builds", ["'builds'", "build", "relay"]),
        ("users_nets:VALUE", ["'VALUE'", "build"]),
        ("users_nets:", ["package.module:factory"]),
        (":build", ["package.module:factory"]),
        ("users_missing:build", ["cannot import 'users_missing'"]),
        ("users_nets.build:build", ["cannot import 'users_nets.build'"]),
        ("users_needy:build", ["cannot import 'users_needy'", "no_such_library"]),
    ],
)
def test_a_wrong_factory(run: Run, package: Callable[[str, str], None], name: str, parts: list[str]) -> None:
    package("users_nets", OWN)
    package("users_needy", "import no_such_library\n")
    assert is_a_sentence(run("profile", name, "--input", "2,5,5"), *parts)


def test_a_model_that_does_not_say_what_it_takes_in(run: Run, package: Callable[[str, str], None]) -> None:
    package("users_nets", OWN)
    assert is_a_sentence(run("profile", "users_nets:build"), "--input 3,32,32")


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("profil",), ["'profil'", "Did you mean 'profile'?", "`picojoule --help`"]),
        (("paper", "rum"), ["'rum'", "`picojoule paper --help`"]),
        (("profile",), ["missing argument 'model'", "`picojoule profile --help`"]),
        (("export", "run"), ["missing option '--to'", "`picojoule export --help`"]),
        (("profile", "cnn7", "--pis", "exact"), ["--pis", "--psi"]),
        (("--nonsense",), ["--nonsense"]),
        (("--non\nsense",), ["sense"]),
        (("sweep", "any.toml", "--workers"), ["'--workers' requires an argument"]),
        (("sweep", "any.toml", "--workers", "two"), ["'--workers'", "integer"]),
        (("evaluate", "run", "twice"), ["twice"]),
    ],
)
@pytest.mark.parametrize("columns", [40, 120])
def test_wrong_usage(run: Run, arguments: tuple[str, ...], parts: list[str], columns: int) -> None:
    assert is_a_sentence(run(*arguments, columns=columns), *parts)


@pytest.mark.parametrize("arguments", [(), ("paper",)])
def test_a_group_without_a_command_shows_its_help(run: Run, arguments: tuple[str, ...]) -> None:
    outcome = run(*arguments)
    assert outcome.status == 2
    assert "Usage" in outcome.out
    assert outcome.err == ""


def test_ctrl_c_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("picojoule.data.listing", interrupted)
    assert run("data") == Outcome(1, "", "picojoule: stopped\n")


# --- A model that is none, or that ends the process ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("os:abort", "a function of Python itself"),
        ("os:_exit", "a function of Python itself"),
        ("collections:OrderedDict", "a class, but not an nn.Module"),
        ("users_model:made", "a model, not a function that builds one"),
    ],
)
def test_what_cannot_build_a_model_is_refused_uncalled(
    run: Run, package: Callable[[str, str], None], name: str, part: str
) -> None:
    package("users_model", "from torch import nn\nmade = nn.Linear(2, 2)\n")
    assert is_a_sentence(run("profile", name), name, part, "name a class or a function that returns the model")


def test_a_model_without_parameters_cannot_be_trained(run: Run, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text('model.name = "torch.nn:Identity"\ndata.name = "digits"\n')
    outcome = run("train", str(recipe), "--into", str(tmp_path / "runs"))
    assert is_a_sentence(outcome, "torch.nn:Identity has no parameters to train")


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("import sys\ndef net(): sys.exit(0)", ["users_exit:net ended", "(SystemExit: 0)", "let it return"]),
        ("def net(): raise SystemExit('enough')", ["users_exit:net ended", "(SystemExit: enough)"]),
        ("import sys\nsys.exit(3)", ["users_exit ended", "(SystemExit: 3)", "__main__"]),
        (
            "import sys, picojoule as pj\nfrom torch import nn\nclass net(nn.Sequential):\n    input_shape = (2,)\n"
            "    def __init__(self): super().__init__(nn.Linear(2, 2), pj.Spike(), nn.Linear(2, 2))\n"
            "    def forward(self, x): sys.exit(0)",
            ["the model ended the process (SystemExit: 0)"],
        ),
    ],
    ids=["factory", "with words", "import", "forward"],
)
def test_a_model_that_exits_is_a_failure_and_said(
    run: Run, package: Callable[[str, str], None], source: str, parts: list[str]
) -> None:
    package("users_exit", source)
    outcome = run("profile", "users_exit:net")
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert outcome.err.startswith("picojoule: ")
    assert all(part in outcome.err for part in parts)


# --- What the machine does not have ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "greed",
    [
        lambda: torch.empty(1 << 60, dtype=torch.uint8),
        lambda: np.zeros(1 << 50),
        lambda: bytearray(1 << 60),
        lambda: exec("raise OSError(12, 'Cannot allocate memory')"),
        lambda: exec("raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 GiB.')"),
    ],
    ids=["PyTorch", "NumPy", "Python", "system", "CUDA"],
)
def test_memory_that_runs_out_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch, greed: Any) -> None:
    monkeypatch.setattr("picojoule.data.listing", greed)
    outcome = run("data")
    assert (outcome.status, outcome.out, outcome.err.count("\n")) == (1, "", 1)
    assert outcome.err.startswith("picojoule: memory ran out")
    assert "take a smaller training.batch_size" in outcome.err


def test_other_faults_are_not_taken_for_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("picojoule.data.listing", lambda: torch.zeros(2) @ torch.zeros(3))
    with pytest.raises(RuntimeError, match="size"):
        run("data")


def test_two_budgets_contradict_each_other(run: Run) -> None:
    outcome = run("train", "any.toml", "penalty.budget=20%", "--budget", "30%")
    assert is_a_sentence(outcome, "--budget", "penalty.budget", "one of the two")


@pytest.mark.slow
def test_a_mistake_in_a_process_of_its_own(tmp_path: Path) -> None:
    source = "from picojoule.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", source, "profile", "cnn8", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert is_a_sentence(Outcome(done.returncode, done.stdout, done.stderr), *pj.zoo.names())


# ----------------------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_help_shows_an_example(run: Run, path: tuple[str, ...]) -> None:
    outcome = run(*path, "--help")
    assert outcome.status == 0
    assert "Example" in outcome.out
    assert f"picojoule {' '.join(path)}" in " ".join(outcome.out.split("Example")[1].split())


def test_profile_is_among_the_commands() -> None:
    assert ("profile",) in COMMANDS


def test_version(run: Run) -> None:
    assert run("--version") == Outcome(0, f"{pj.__version__}\n", "")
