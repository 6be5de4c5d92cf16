"""Exports a run to NIR and ONNX, executes both files by other software on test images, and compares spike by spike.

    python scripts/check_export.py runs/cnn7-fashion-mnist-… [--images 1000]

NIR files are read by `nir` and executed by the tests' own NumPy reader, ONNX files by onnxruntime. Layer by layer, each
layer is given the network's own spikes; end to end, each file runs on its own. Exit status 0 if both keep the bounds:
layer by layer no difference but where the potential is within 1e-4 of the threshold, end to end at most one spike in
10 000 different, the class the same on 99.9 % of the images; else 1.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import nir
import torch

import picojoule as pj

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))
from agreement import compare, itself, nir_executor, onnx_executor


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("run", type=Path)
    parser.add_argument("--images", type=int, default=1000)
    options = parser.parse_args()
    run = pj.Run.at(options.run)
    recipe, model = run.recipe, pj.load_model(run)
    data = pj.data.load(recipe.data.name, limit=recipe.data.limit, pad=recipe.data.pad)
    pixels = torch.cat([part.images for part in (data.test, data.validation, data.train)])[: options.images] / 255
    images = data.normalization(pixels) if recipe.data.normalize else pixels
    kept = True
    with tempfile.TemporaryDirectory() as folder:
        for to in pj.export.names():
            path = pj.export.write(model, images[:1], to, Path(folder) / f"network.{to}", print)
            if to == "nir":
                execute = nir_executor(nir.read(path))
            else:
                execute = onnx_executor(path.read_bytes(), list(pj.trace(model, images[:1])))
            agreement = compare(model, execute, images)
            print(f"{to} ({path.stat().st_size / 1e6:.1f} MB): {agreement}", flush=True)
            kept &= agreement.within_bounds
    # How much of this is the export's doing: the network against itself, its arithmetic in another order.
    other = pj.load_model(run).to(memory_format=torch.contiguous_format)
    print(f"the network against itself in another memory layout: {compare(model, itself(other), images)}")
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
