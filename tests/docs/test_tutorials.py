"""The tutorial that is made of commands: they run as they stand, and what it says of them holds."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from command_line import Command

POWER_LIMIT = Path(__file__).resolve().parents[2] / "docs" / "tutorials" / "power-limit.md"


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)


@pytest.mark.slow
def test_from_a_power_limit_to_an_exported_network(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run, printed = "", {}
    for line in "".join(blocks(POWER_LIMIT, "sh")).splitlines():
        name, *words = line.split()
        if name == "cd":
            monkeypatch.chdir(words[0])
            continue
        status, out, err = command(*(run if word == "RUN" else word for word in words))
        assert status == 0, f"{line}: {err}"
        printed[words[0]] = out
        if words[0] == "train":
            run = out.splitlines()[-1]
    assert run in printed["pick"]
    result = json.loads(Path(run, "result.json").read_text(encoding="utf-8"))
    assert result["budget"]["met"]
    assert result["test"]["accuracy"] > 0.95
    assert Path("node.nir").is_file()
    (inference,) = blocks(POWER_LIMIT, "py")
    exec(inference, {})
    assert re.search(r"\[\d\]\n$", capsys.readouterr().out)
