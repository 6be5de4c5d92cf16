"""What the paper's runs would take on a GPU: an estimate by arithmetic, for a machine that has none.

A step takes 0.5 ms for each layer, in which the work is handed to the GPU, and six floating-point operations for each
synapse and image: a multiply-accumulate is two, and the backward pass costs twice the forward pass. 10 TFLOP/s are what
training sustains, about half of what an A100 has in fp32 (19.5) and less than a third of an RTX 3090 (35.6), both by
NVIDIA's data sheets. Loading and augmenting images is not counted. Nothing of this was measured.
"""

from __future__ import annotations

from picojoule.paper.step_time import StepTime
from picojoule.recipe import Recipe
from picojoule.runs.model import build_model, count_synapses

SUSTAINED = 1e13
"""Floating-point operations per second."""
PER_LAYER = 5e-4
"""Seconds in which the work of one layer is handed to the GPU, in a training step."""
ASSUMED = (
    "on a GPU: an estimate, not measured: 6 operations a synapse and image at 10 TFLOP/s, 0.5 ms a layer and step, one "
    "run after another, images at hand"
)
"""The same in one line, for people."""


def on_gpu(recipe: Recipe) -> StepTime:
    """Estimate the time of a training step on a GPU.

    Args:
        recipe: The network.

    Returns:
        Its step time, by the arithmetic above.

    >>> from picojoule.paper.settings import setting
    >>> time = on_gpu(setting("cnn7-fashion-mnist-adam-s3nn"))
    >>> time.image == 6 * (98_895_888 + 129_600) / 1e13  # the synapses of spikes, and those that the image feeds
    True
    """
    synapses = count_synapses(build_model(recipe), recipe.with_values(energy={"psi": "exact"}))
    assert synapses is not None  # the paper's recipes have spiking neurons
    forward = 2 * (synapses.synapses + synapses.encoder_macs) / SUSTAINED
    return StepTime(step=PER_LAYER * (len(synapses) + 1), image=3 * forward, evaluation=forward)
