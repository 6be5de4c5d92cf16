"""What inference with an exported network needs beside its weights: how an image becomes its input, its classes."""

from __future__ import annotations

from typing import Any

from picojoule.data import Given
from picojoule.runs.folder import Run
from picojoule.runs.model import Trust, load_data


def deployment_facts(run: Run, trust: Trust = False, data: Given | None = None) -> dict[str, Any]:
    """Collect what a user of the exported file has to know, as it stands in the file and in the JSON beside it.

    An input is (x · scale − mean)/deviation of the stored sample x with its border of zeros; `scale` is 1/255 for
    bytes.

    Args:
        run: The run.
        trust: As for `load_data`.
        data: The data that were given to `fit`, for a run with `data.name = "own"`.

    Returns:
        Plain values.

    Raises:
        PicojouleError: If the run's data cannot be loaded.
    """
    recipe, loaded = run.recipe, load_data(run, trust, data)
    normalized = recipe.data.normalize
    return {
        "input_shape": list(recipe.input_shape),
        "frames": recipe.frames,
        "steps": recipe.neuron.steps,
        "scale": 1 / 255 if str(loaded.test.images[:1].dtype) == "torch.uint8" else 1.0,
        "mean": list(loaded.normalization.mean) if normalized else None,
        "deviation": list(loaded.normalization.std) if normalized else None,
        "padding": recipe.data.pad,
        "classes": recipe.classes,
        "class_names": list(loaded.class_names),
        "data": recipe.data.name,
        "content": recipe.data.content,
        "hardware": recipe.energy.hardware,
        "psi": recipe.energy.psi,
        "chains": recipe.energy.chains or "run",
        "recipe_digest": recipe.digest,
    }
