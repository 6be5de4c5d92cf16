"""README: short, its figures those of the files that they come from, its commands those that there are."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest
import typer.main

import picojoule as pj
from picojoule import paper, report
from picojoule.cli import app
from picojoule.runs.folder import find_runs
from picojoule.zoo import pretrained

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SECTION = {part.partition("\n")[0]: part for part in re.split(r"^## ", README, flags=re.MULTILINE)}
CLAIMS = {  # a row of the table → the curves whose difference it is, without their power
    "Ω_syn is better than Ω_total": "Ω_syn − Ω_total",
    "Ω_syn is better than Ω_balance": "Ω_syn − Ω_balance",
    "p = 1 is better than p = 2": "Ω_syn: p = 1 − p = 2",
}
INTERVAL = r"([\d.]+) \[(−?[\d.]+), ([\d.]+)\]"


def test_it_is_at_most_120_lines() -> None:
    assert len(README.splitlines()) <= 120


@cache
def differences() -> dict[str, tuple[str, report.equal_energy.Difference]]:
    """Every difference of the runs that the table names: its verdict."""
    (source,) = re.findall(r"<!-- differences of (\S+) -->", README)
    collection = report.gather(ROOT / source)
    group = max(report.run_groups(collection), key=lambda group: len(group.entries))
    return {found.label: (found.verdict, found) for found in report.differences(group.curves)}


def shown(claim: str) -> list[tuple[str, str]]:
    """Verdict and interval of a row of the table."""
    (row,) = [line for line in README.splitlines() if line.startswith(f"| {claim} |")]
    return [
        (verdict.strip("*"), interval)
        for verdict, interval in re.findall(rf"(\*\*holds\*\*|cannot be told), ({INTERVAL.replace('(', '(?:')})", row)
    ]


@pytest.mark.parametrize("claim", CLAIMS)
def test_the_claims_are_those_of_the_runs(claim: str) -> None:
    told = [
        (verdict, f"{100 * mean:.1f} [{100 * low:.1f}, {100 * high:.1f}]".replace("-", "−"))
        for label, (verdict, found) in differences().items()
        if label.startswith(CLAIMS[claim]) and found.overall is not None
        for mean, low, high in [found.overall]
    ]
    assert shown(claim)
    assert shown(claim) == told[: len(shown(claim))]


def test_the_speeds_are_those_of_the_benchmark() -> None:
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in (ROOT / "results" / "speed.md").read_text(encoding="utf-8").splitlines()
        if re.match(r"\| \w+ \| (fp32|bf16) \|", line)
    ]
    peers = [row for row in rows if row[2] != "picojoule"]
    times, memory = ([row[column].split()[0] for row in peers] for column in (4, 6))
    metering = [round(100 * (float(row[10]) - 1)) for row in rows if row[2] == "picojoule" and row[10] != "–"]
    said = SECTION["Speed: the bill is the clock"]
    assert f"{min(times)} to {max(times)} of the time and {min(memory)} to {max(memory)} of the memory" in said
    assert f"adds {min(metering)} to {max(metering)} %" in said


def test_the_demo_is_as_good_as_is_said() -> None:
    runs = [
        run
        for run in find_runs(ROOT / "results" / "tried.runs.zip")
        if (run.recipe.data.limit, run.recipe.training.epochs, run.recipe.training.batch_size) == (10_000, 3, 25)
        and (run.recipe.seed, run.recipe.optimizer.lr, run.recipe.optimizer.anneal) == (0, 2e-3, None)
    ]
    before, after = (run.result.test for run in sorted(runs, key=lambda run: run.recipe.penalty.strength))
    assert before.joules
    assert after.joules
    share = f"{100 * after.joules / before.joules:.0f} % of the energy"
    said = f"{100 * before.accuracy:.1f} % right without, {100 * after.accuracy:.1f} % with the penalty, at {share}"
    assert said in README


def test_the_shipped_network_is_as_good_as_is_said() -> None:
    (name, percent) = re.findall(r'create\("cnn7", weights="([\w-]+)"\)`, in int8, ([\d.]+) % right', README)[0]
    assert f"{100 * pretrained.index()[f'cnn7/{name}'].accuracy:.1f}" == percent


def test_the_number_of_price_lists() -> None:
    assert len(pj.hardware.names()) == 6
    assert "six price lists" in README


def commands() -> list[list[str]]:
    lines = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True)) and words[0] == "picojoule"]


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_the_commands_are_there_with_their_options(words: list[str]) -> None:
    command = typer.main.get_command(app)
    rest = words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command = command.commands[rest.pop(0)]
    assert not isinstance(command, click.Group) or not rest
    options = {name for parameter in command.params for name in parameter.opts}
    assert {word for word in rest if word.startswith("--")} <= options
    if "--scale" in rest:
        assert paper.find(rest[0])
        assert rest[rest.index("--scale") + 1] in paper.SIZES


def test_the_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}:.*##", makefile, re.MULTILINE), target
