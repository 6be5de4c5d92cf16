"""Whose code runs: what a stranger's run folder names is neither imported nor called without consent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

import picojoule as pj
import tiny
from command_line import Command
from picojoule.cli import streams
from picojoule.runs.model import build_model

RUN_COMMANDS = [
    ("evaluate",),
    ("infer", "--split", "test", "--limit", "1"),
    ("export", "--to", "onnx"),
    ("show", "--images", "1"),
]

STRANGE = """
from pathlib import Path
Path("imported").touch()
def build(classes, in_channels, neuron):
    Path("called").touch()
    import tiny
    return tiny.net(classes, in_channels, neuron)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> pj.Run:
    return pj.fit(tiny.recipe("training.epochs=1"), tmp_path_factory.mktemp("runs"))


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trained: pj.Run) -> Path:
    """A stranger's run folder, in the current folder beside the module that it names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "strange", raising=False)
    Path("strange.py").write_text(STRANGE)
    folder = tmp_path / "foreign"
    folder.mkdir()
    (folder / "recipe.toml").write_text(tiny.recipe("model.name=strange:build").to_toml())
    (folder / "weights.safetensors").write_bytes((trained.path / "weights.safetensors").read_bytes())
    return folder


def ran() -> list[str]:
    return [name for name in ("imported", "called") if Path(name).exists()]


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(request, id=request[0], marks=pytest.mark.slow if number else ())
        for number, request in enumerate(RUN_COMMANDS)
    ],
)
def test_code_that_a_run_folder_names_waits_for_consent(
    foreign: Path, command: Command, request_: tuple[str, ...]
) -> None:
    name, *options = request_
    before = sorted(foreign.iterdir())
    status, out, err = command(name, foreign, *options)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "'strange:build'" in err
    assert "add --trust, or --model strange:build" in err
    assert ran() == []
    assert sorted(foreign.iterdir()) == before

    for consent in (("--trust",), ("--model", "strange:build")):
        sys.modules.pop("strange", None)
        for trace in ran():
            Path(trace).unlink()
        status, _, err = command(name, foreign, *options, *consent)
        assert (status, ran()) == (0, ["imported", "called"]), err


@pytest.mark.parametrize("more", [(), ("--trust",)])
def test_consent_to_one_factory_is_none_to_another(foreign: Path, command: Command, more: tuple[str, ...]) -> None:
    for other in ("tiny:net", "strange:other", "cnn7", ""):
        status, out, err = command("evaluate", foreign, "--model", other, *more)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert f"'strange:build', not {other!r}" in err
    assert ran() == []


@pytest.mark.parametrize("request_", RUN_COMMANDS, ids=lambda request: request[0])
@pytest.mark.slow
def test_a_factory_that_ends_the_process_does_not(foreign: Path, request_: tuple[str, ...]) -> None:
    """In a process of its own, for `os.abort` would take the tests along."""
    (foreign / "recipe.toml").write_text(tiny.recipe("model.name=os:abort").to_toml())
    name, *options = request_
    done = subprocess.run(
        [sys.executable, "-m", "picojoule", name, str(foreign), *options], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "'os:abort'" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [pytest.param(("report", "--out", "page"), marks=pytest.mark.slow), ("pick", "--min-accuracy", "2")],
)
def test_commands_on_folders_of_runs_run_none_of_their_code(
    foreign: Path, trained: pj.Run, command: Command, arguments: tuple[str, ...]
) -> None:
    pj.Run.at(foreign).write_result(trained.result)
    name, *options = arguments
    status, out, err = command(name, foreign.parent, *options)
    assert (status, bool(out), ran()) == (0, True, []), err


def test_the_folder_of_a_recipe_says_nothing_that_the_recipe_given_does_not(foreign: Path, command: Command) -> None:
    """Training resumes a stranger's folder only with the very recipe, whose model is then the user's own word."""
    given = tiny.recipe("training.epochs=1")
    folder = foreign.rename(foreign.parent / given.name)
    Path("mine.toml").write_text(given.to_toml())
    status, _, err = command("train", "mine.toml", "--into", folder.parent)
    assert status == 2
    assert "belongs to another recipe" in err
    assert ran() == []


def test_in_python(foreign: Path) -> None:
    for refused in (
        lambda: pj.evaluate(foreign),
        lambda: pj.infer(foreign, split="test", limit=1),
        lambda: pj.load_model(pj.Run.at(foreign)),
        lambda: build_model(pj.Run.at(foreign).recipe),
    ):
        with pytest.raises(pj.PicojouleError, match=r"'strange:build', which is not picojoule's own .* trust=True"):
            refused()
    assert ran() == []
    assert pj.evaluate(foreign, trust="strange:build").samples == pj.evaluate(foreign, trust=True).samples


def test_what_the_caller_trained_is_his_own(tmp_path: Path) -> None:
    recipe = tiny.recipe("training.epochs=1")
    run = pj.fit(recipe, tmp_path)
    pj.load_model(run)  # the recipe came from the caller
    pj.load_model(pj.fit(recipe, tmp_path))  # once more, though nothing was trained
    [swept] = pj.sweep.run([recipe], tmp_path).runs
    pj.load_model(swept)
    assert swept == run == pj.Run.at(run.path)
    with pytest.raises(pj.PicojouleError, match="names the model 'tiny:net'"):
        pj.load_model(pj.Run.at(run.path))
    run.write_text("recipe.toml", tiny.recipe("training.epochs=1", "model.name=os:abort").to_toml())
    with pytest.raises(pj.PicojouleError, match="names the model 'os:abort'"):
        pj.load_model(run)


def test_models_of_the_zoo_need_no_consent(tmp_path: Path) -> None:
    recipe = tiny.recipe("model.name=cnn7")
    (tmp_path / "recipe.toml").write_text(recipe.to_toml())
    weights = build_model(recipe).state_dict()
    pj.Run.at(tmp_path).write_weights(weights)
    loaded = pj.load_model(pj.Run.at(tmp_path)).state_dict()
    assert all(torch.equal(loaded[name], weights[name]) for name in weights)


def test_files_of_the_current_folder_pass_for_no_library_afterwards(foreign: Path) -> None:
    """A module that is imported later, such as one of a library, is not looked for in the current folder first."""
    here = str(foreign.parent)
    pj.load_model(pj.Run.at(foreign), trust=True)
    assert sys.path[0] != here
    assert sys.path[-1] == here


ESCAPES = "a\x1b]0;mine\x07\x1b[31m\nb"


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", ESCAPES),
        ("infer", ESCAPES, "a.png"),
        ("export", ESCAPES, "--to", "nir"),
        ("profile", ESCAPES),
        ("profile", f"{ESCAPES}:build", "--input", "1,2,2"),
        ("profile", "cnn7", "--psi", ESCAPES),
        ("train", f"{ESCAPES}.toml"),
        ("train", "recipe.toml", f"{ESCAPES}=1"),
        ("train", "recipe.toml", f"seed={ESCAPES}"),
        ("sweep", f"{ESCAPES}.toml"),
        ("frontier", f"{ESCAPES}.toml"),
        ("report", ESCAPES),
        ("pick", ESCAPES, "--max-loss", "1"),
        ("pick", ".", "--max-energy", ESCAPES),
        ("data", "fetch", ESCAPES),
        ("paper", "run", ESCAPES),
        (ESCAPES,),
        ("evaluate", f"--{ESCAPES}"),
    ],
    ids=lambda arguments: f"{arguments[0]!a:.12}-{len(arguments)}",
)
def test_escapes_in_names_are_shown_not_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Command, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text(tiny.RECIPE)
    status, out, err = command(*arguments)
    assert (status, out, err.count("\n")) == (2, "", 1), err
    assert all(character.isprintable() for character in err[:-1])
    assert r"\x1b]0;mine" in err


def test_the_answers_to_pictures_with_escapes_in_their_names(foreign: Path, command: Command) -> None:
    for name in ("good", "bad"):
        Path(f"{name}{ESCAPES}.png").touch()
    images = pj.data.load("digits").test.images[0, 0].numpy()
    Image.fromarray(images).save(f"good{ESCAPES}.png", format="PNG")
    status, out, err = command("infer", foreign, f"good{ESCAPES}.png", f"bad{ESCAPES}.png", "--trust")
    assert status == 1
    for text, name in ((out, "good"), (err, "bad")):
        assert all(character.isprintable() for character in text if character != "\n")
        assert rf"{name}a\x1b]0;mine\x07" in text


@pytest.mark.parametrize("terminal", [False, True])
def test_a_path_is_whole_for_a_program_and_harmless_for_a_terminal(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    streams.show_path(Path(ESCAPES))
    expected = ESCAPES.encode("unicode_escape").decode() if terminal else ESCAPES
    assert capsys.readouterr().out == f"{expected}\n"
