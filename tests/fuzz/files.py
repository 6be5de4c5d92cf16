"""Damaged files under the commands that read them."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from random import Random

from fuzz import junk, promises, sandbox
from fuzz.commands import registry
from fuzz.outcome import Outcome

READERS = {
    "run/weights.safetensors": (
        "evaluate run --json",
        "infer run picture.png --json",
        "export run --to nir --out made.nir",
        "train recipe.toml --into here",
    ),
    "run/result.json": (
        "evaluate run --json",
        "pick . --json",
        "pick run --max-loss 5",
        "train recipe.toml --into here",
        "report run --out made --json",
    ),
    "run/metrics.jsonl": (
        "train recipe.toml --into here",
        "report run --out made --json",
        "pick run",
        "evaluate run --json",
    ),
    "run/recipe.toml": (
        "evaluate run --json",
        "infer run picture.png",
        "export run --to nir --out made.nir",
        "train recipe.toml --into here",
        "pick run",
        "report run --out made",
    ),
    "many": ("pick many --max-loss 5 --json", "report many --out made --json"),
    "recipe.toml": ("train recipe.toml --into new", "frontier recipe.toml --into new --points 2"),
    "sweep.toml": ("sweep sweep.toml --into new --no-such",),
    "picture.png": ("infer run picture.png --json", "infer run picture.png picture.jpg"),
    "picture.jpg": ("infer run picture.jpg --engine dense",),
    "data": (
        "data --json",
        "data fetch fashion-mnist --from data",
        "data fetch cifar-10 --from data",
        "data fetch cifar-100 --from data",
    ),
}


def drawn(seed: int) -> tuple[str, str]:
    """The file that is damaged, and the command on it."""
    chance = Random(seed)
    file = chance.choice(list(READERS))
    return file, chance.choice(READERS[file])


def tried(seed: int) -> Outcome:
    file, command = drawn(seed)
    chance = Random(seed + 1)
    with sandbox.copied() as here:
        if " here" in command:  # the run stands where it would be trained
            _as_trained(here)
            file = file.replace("run/", f"here/{next((here / 'here').iterdir()).name}/")
        damage(here, file, chance)
        before = sandbox.contents(here)
        ended = sandbox.run(trusting(command.split()))
        after = sandbox.contents(here)
    outcome = promises.check(ended, before, after, may_take_long=False)
    outcome.failures = [(f"{name} ({Path(file).name})", details) for name, details in outcome.failures]
    return outcome


def trusting(arguments: list[str]) -> list[str]:
    """With consent to the model code that a run folder names, where the command asks for it."""
    options = [option for parameter in registry()[arguments[0]].params for option in parameter.opts]
    return [*arguments, "--trust"] if "--trust" in options else arguments


def described(seed: int) -> str:
    file, command = drawn(seed)
    return f"picojoule {command} with {file} damaged"


def _as_trained(here: Path) -> None:
    import picojoule as pj

    (here / "here").mkdir()
    shutil.copytree(here / "run", here / "here" / pj.Recipe.loads(sandbox.RECIPE).name)


def damage(here: Path, file: str, chance: Random) -> None:
    path = here / file
    if file == "data":
        _data_files(path, chance)
        return
    if path.is_dir():
        path = chance.choice(sorted(p for p in path.rglob("*") if p.is_file()))
    content = path.read_bytes()
    way = chance.random()
    if way < 0.5 and path.suffix in (".json", ".jsonl", ".toml"):
        path.write_text(_reworded(path, chance), encoding="utf-8", errors="replace")
    elif way < 0.8:
        path.write_bytes(junk.bytes_of(content, chance))
    else:
        path.unlink()
        kind = chance.randrange(5)
        if kind == 0:
            path.mkdir()
        elif kind == 1:
            path.symlink_to(path.name)
        elif kind == 2:
            path.symlink_to("nowhere-at-all")
        elif kind == 3:
            os.mkfifo(path)


def _reworded(path: Path, chance: Random) -> str:
    text = path.read_text(encoding="utf-8")
    if chance.random() < 0.03:
        return junk.deep()
    if path.suffix == ".json":
        return junk.json_text(junk.mutated(json.loads(text), chance))
    if path.suffix == ".jsonl":
        lines = [json.loads(line) for line in text.splitlines()]
        return "".join(json.dumps(junk.mutated(line, chance)) + "\n" for line in lines)
    from fuzz.recipes import altered

    return altered(text, chance)


def _data_files(folder: Path, chance: Random) -> None:
    """Something with the names of official files."""
    names = {
        "fashion-mnist": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz"),
        "cifar-10": (
            "data_batch_1.bin",
            "data_batch_1",
            "cifar-10-binary.tar.gz",
            "cifar-10-python.tar.gz",
            "batches.meta",
        ),
        "cifar-100": ("train.bin", "train", "test", "cifar-100-python.tar.gz"),
    }
    for _ in range(chance.choice([1, 2, 4])):
        name = chance.choice(list(names))
        place = folder / chance.choice(["", name])
        place.mkdir(exist_ok=True)
        idx = b"\0\0\x08\x03" + b"\0\0\0\x02" * 3 + bytes(8)
        pickle = b"\x80\x02}q\x00(X\x04\x00\x00\x00dataq\x01K\x01u."
        content = chance.choice([b"", idx, pickle, b"\x1f\x8b\x08", bytes(3073 * 2)])
        (place / chance.choice(names[name])).write_bytes(junk.bytes_of(content, chance))
