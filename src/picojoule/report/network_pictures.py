"""Pictures of a trained network at work on some images of its data set."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import altair as alt
import torch

from picojoule.data import Batches, Given, Images
from picojoule.errors import PicojouleError, unknown
from picojoule.io.files import make_folder
from picojoule.neurons.time_steps import as_batch
from picojoule.report import plot
from picojoule.report.pictures import save
from picojoule.runs.folder import Run
from picojoule.runs.model import Trust, count_synapses, load_data, load_model
from picojoule.runs.result import Split
from picojoule.spikes.watch import watch

MOST_IMAGES = 1000
"""Images at once: all spikes of all of them are held in memory."""


def show_network(
    run: Run | str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    images: int = 32,
    at: Sequence[int] | None = None,
    split: Split = "test",
    trust: Trust = False,
    data: Given | None = None,
) -> list[Path]:
    """Draw a trained network at work: raster, rates and dead neurons, rate and energy maps, potentials.

    Args:
        run: The run, or the path of its folder.
        out: The folder of the pictures; None is `pictures` in the run's folder.
        images: How many images of the split it is shown; the first of them are taken.
        at: In place of the first, the images at these positions, counted from 0.
        split: "test" or "validation".
        trust: Needed for a model or data that are not picojoule's own code, as `load_model` says.
        data: The data that were given to `fit`, for a run with `data.name = "own"`.

    Returns:
        The pictures that were written: SVG, PDF and PNG of each.

    Raises:
        PicojouleError: If the run cannot be read, its network has no spikes, or an argument is not valid.

    Example:
        >>> import tempfile
        >>> pictures = show_network(finished_run, tempfile.mkdtemp(), images=4)
        >>> sorted({picture.stem for picture in pictures})
        ['energy-maps', 'potentials', 'raster', 'rate-maps', 'rates']
    """
    if split not in get_args(Split):
        raise unknown("split", str(split), get_args(Split))
    if type(images) is not int or not 1 <= images <= MOST_IMAGES:
        raise PicojouleError(f"{images!r} images cannot be shown: take a whole number from 1 to {MOST_IMAGES}")
    if at is not None and not 1 <= len(at) <= MOST_IMAGES:
        raise PicojouleError(f"{len(at)} images cannot be shown: name 1 to {MOST_IMAGES}")
    run = Run.opened(run)
    recipe, model = run.recipe, load_model(run, trust)
    synapses = count_synapses(model, recipe)
    if synapses is None:
        raise PicojouleError(f"the network of {run.path} has no spikes to be shown: choose a run with spiking neurons")
    loaded = load_data(run, trust, data)
    part = loaded.validation if split == "validation" else loaded.test
    if at is not None:
        part, images = _chosen(part, at), len(at)
    batch, _ = next(iter(Batches(part, images, loaded.normalization if recipe.data.normalize else None)))
    folder = Path(out) if out is not None else run.path / "pictures"
    make_folder(folder)
    charts: dict[str, alt.TopLevelMixin] = {}
    with torch.no_grad():
        with watch(model, synapses.steps) as activity:
            model(as_batch(batch))
        if recipe.neuron.kind == "spike":
            with plot.watch_potentials(model) as found:
                model(as_batch(batch))
            charts["potentials"] = plot.potentials(found)
    charts["raster"], charts["rates"] = plot.raster(activity), plot.rates(activity)
    if any(len(layer.shape) == 3 for layer in synapses.values()):
        charts["rate-maps"] = plot.rate_maps(activity)
        charts["energy-maps"] = plot.energy_maps(activity, synapses, hardware=recipe.energy.hardware)
    return [file for name, chart in charts.items() for file in save(chart, folder / name)]


def _chosen(part: Images, at: Sequence[int]) -> Images:
    """Take the images at some positions."""
    wrong = [position for position in at if type(position) is not int or not 0 <= position < len(part)]
    if wrong:
        raise PicojouleError(f"there is no image {wrong[0]!r}: the split has {len(part):,}, counted from 0")
    index = torch.tensor(at)
    return Images(part.images[index], part.labels[index])
