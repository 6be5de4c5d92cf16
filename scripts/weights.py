"""Ship a trained network: rounds a run's weights to int8, measures them, and puts them among the zoo's.

python scripts/weights.py runs/cnn7-fashion-mnist-syn1-64-s0-… fashion-mnist-10pct --baseline RUN_WITHOUT_PENALTY
"""

from __future__ import annotations

import argparse
import hashlib
import json
from pathlib import Path

from picojoule.io.files import make_folder, write_atomically
from picojoule.io.tensors import pack_tensors
from picojoule.runs.evaluate import evaluate
from picojoule.runs.folder import RECIPE, Run
from picojoule.runs.result import SplitResult
from picojoule.zoo import pretrained


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a finished run of a network of the zoo")
    parser.add_argument("name", help="the name of the weights, such as fashion-mnist-10pct")
    parser.add_argument("--baseline", type=Path, required=True, help="the run without a penalty")
    options = parser.parse_args()
    run, baseline = Run.at(options.run), Run.at(options.baseline)
    name = f"{run.recipe.model.name}/{options.name}"
    home = make_folder(pretrained.HOME / name)
    state = run.weights
    rounded = [key for key, tensor in state.items() if tensor.dim() > 1]
    content = pack_tensors(state, {}, rounded)
    write_atomically(home / pretrained.WEIGHTS, content)
    write_atomically(home / RECIPE, run.recipe.to_toml().encode())
    shipped = Run(home)
    figures = {split: SplitResult.parse(evaluate(shipped, split).to_dict()) for split in ("test", "validation")}
    shipped.write_text("result.json", run.result.model_copy(update=figures).to_json())
    known = json.loads(pretrained.INDEX.read_text(encoding="utf-8"))
    known[name] = pretrained.Weights(
        sha256=hashlib.sha256(content).hexdigest(),
        accuracy=figures["test"].accuracy,
        joules=figures["test"].joules,
        share=figures["test"].joules / baseline.result.test.joules,
        recipe=run.recipe.digest,
    )._asdict()
    write_atomically(pretrained.INDEX, (json.dumps(dict(sorted(known.items())), indent=2) + "\n").encode())
    right, before = figures["test"].accuracy, run.result.test.accuracy
    print(f"{name}: {len(content):,} bytes, accuracy {right:.2%} (before rounding {before:.2%})")
    print(home)


if __name__ == "__main__":
    main()
