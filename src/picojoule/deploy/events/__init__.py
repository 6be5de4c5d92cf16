"""Event-driven inference: the energy bill is also the clock.

A dense engine computes every synapse of a network, however few of its neurons fire. This one walks the active spikes:
its time is proportional to the synaptic operations that it does, and counts, image by image.

    engine = picojoule.events.compile(net, images)
    result = engine(images)
    result.logits, result.synops

It runs networks of `picojoule.Spike`, or of `IF` and `LIF` over several time steps, with `nn.Conv1d` and `nn.Conv2d`
(stride, padding with zeros, dilation, groups), `nn.Linear`, average, adaptive average and max pools, batch norm between
synapses and neurons, dropout, flatten, means over the map, and sums of currents or of spikes, in whatever way the
forward pass connects them; also what `picojoule.convert` makes. Anything else is refused by name. The first layer
(pixels) is computed densely, once for all time steps.

The answer is PyTorch's up to the order of float32 sums, which can flip a neuron that sits exactly on its threshold.
"""

from __future__ import annotations

from picojoule.deploy.events.compilation import compile
from picojoule.deploy.events.engine import Engine, Result

__all__ = ["Engine", "Result", "compile"]
