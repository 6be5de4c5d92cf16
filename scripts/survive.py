"""Kills a training run at random moments, lets the same command go on, and compares the end with an undisturbed run.

    python scripts/survive.py --kills 20
    python scripts/survive.py --kills 5 recipes/small/cnn7-fashion-mnist.toml training.epochs=2

Everything happens in a temporary folder of its own. A run that finishes in spite of the kills is compared, and another
one takes the rest of them. Exit status 0 if weights, result and metrics (but for the seconds) are the same bit for
bit, else 1.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = [
    str(ROOT / "recipes" / "smoke" / "digits.toml"),
    *("data.limit=100", "data.augment=true", "training.batch_size=20", "training.epochs=4", "training.threads=1"),
]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("recipe", nargs="*", default=DEFAULT, help="a recipe and overrides, as for `picojoule train`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="picojoule-survive-") as temporary:
        return survive(options.recipe, options.kills, random.Random(options.seed), Path(temporary))


def survive(recipe: list[str], kills: int, moments: random.Random, home: Path) -> int:
    process = start(recipe, home / "undisturbed")
    seconds = time_in_training(process, home / "undisturbed")
    reference = traces(home / "undisturbed")
    print(f"undisturbed: {seconds:.1f} s in training, accuracy {reference['accuracy']}", flush=True)
    done = rounds = different = 0
    while done < kills:
        rounds += 1
        into = home / f"killed-{rounds}"
        while done < kills and not finished(into):
            done += kill_once(recipe, into, moments.uniform(0, seconds / 2), done + 1)
        time_in_training(start(recipe, into), into)
        differences = [name for name, content in traces(into).items() if content != reference[name]]
        different += bool(differences)
        print(
            f"run {rounds}: {'DIFFERENT ' + ', '.join(differences) if differences else 'the same bit for bit'}",
            flush=True,
        )
    print(f"{done} kills in {rounds} runs, {rounds - different} of them the same bit for bit as the undisturbed one")
    return 1 if different else 0


def start(recipe: list[str], into: Path) -> subprocess.Popen[str]:
    into.mkdir(exist_ok=True)
    command = [sys.executable, "-c", "from picojoule.cli import main; main()", "train", *recipe, "--into", str(into)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait_for_training(process: subprocess.Popen[str], into: Path) -> None:
    """Imports take much of the time but hold nothing that could be lost; a run writes its metrics when it begins."""
    written = modified(into)
    while modified(into) == written and process.poll() is None:
        time.sleep(0.005)


def modified(into: Path) -> list[int]:
    return [path.stat().st_mtime_ns for path in into.glob("*/metrics.jsonl")]


def time_in_training(process: subprocess.Popen[str], into: Path) -> float:
    wait_for_training(process, into)
    began = time.monotonic()
    _, words = process.communicate()
    if process.returncode:
        raise SystemExit(f"training failed with status {process.returncode}:\n{words}")
    return time.monotonic() - began


def kill_once(recipe: list[str], into: Path, after: float, number: int) -> bool:
    """Whether the process still ran at its moment."""
    process = start(recipe, into)
    wait_for_training(process, into)
    time.sleep(after)
    alive = process.poll() is None
    process.kill()
    process.communicate()
    if alive:
        found = sorted(path.name for path in into.glob("*/*") if path.suffix == ".safetensors")
        print(f"kill {number} after {after:.2f} s: {', '.join(found) or 'no checkpoint yet'}", flush=True)
    return alive


def finished(into: Path) -> bool:
    return any(into.glob("*/result.json"))


def traces(into: Path) -> dict[str, object]:
    """All that a run leaves, but for the time it took."""
    (run,) = into.iterdir()
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    result = (run / "result.json").read_bytes()
    return {
        "files": sorted(path.name for path in run.iterdir()),
        "weights.safetensors": (run / "weights.safetensors").read_bytes(),
        "result.json": result,
        "metrics.jsonl": [
            {key: value for key, value in line.items() if key not in ("seconds", "peak_bytes")} for line in lines
        ],
        "accuracy": json.loads(result)["test"]["accuracy"],
    }


if __name__ == "__main__":
    sys.exit(main())
