"""What two processes do together; here, because each of them must be able to import it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from lightning_fabric import Fabric

import picojoule as pj
import tiny
from picojoule.data import Images
from picojoule.runs.model import build_model, count_synapses
from picojoule.training.distributed import measure


def measured(fabric: Fabric, images: int) -> dict[str, Any]:
    """A network of two time steps on the first images of a split; of one image the second process gets none."""
    torch.manual_seed(0)
    recipe = tiny.recipe("model.name=tiny:over_time", "neuron.kind=if", "neuron.steps=2")
    model, data = build_model(recipe, trust=True), pj.data.load("digits")
    few = replace(data, test=Images(data.test.images[:images], data.test.labels[:images]))
    try:
        return measure(fabric, model, recipe, few, "test", count_synapses(model, recipe)).to_dict()
    finally:
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()  # its threads would abort a process that ends before them
