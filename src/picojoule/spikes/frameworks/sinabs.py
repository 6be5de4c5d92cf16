"""sinabs: layers that take [B, T, …], or [B·T, …] in their Squeeze forms; a neuron may fire many times in a step."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor, nn

from picojoule.spikes.frameworks.kinds import BATCH_FIRST, Fires, Framework, Inside, Kind, Once, Refused, Silent
from picojoule.spikes.layout import LayerLayout


def _by_module(module: Any, spikes: Tensor, once: Once) -> object:
    """Its recurrent module takes one time step, [B, …]."""
    return module.rec_connect(spikes.flatten(0, 1))


_INSIDE = Inside(fed_back=_by_module, across_calls=False)  # each call begins without what was fed back


def _recurrent(module: nn.Module) -> Kind:
    fires = _stateful(module)
    return replace(fires, inside=_INSIDE) if isinstance(fires, Fires) else fires


def _stateful(module: nn.Module) -> Kind:
    if getattr(module, "spike_fn", None) is None:
        return Silent()
    steps, samples = getattr(module, "num_timesteps", None), getattr(module, "batch_size", None)
    if steps is None and samples is None:
        return Fires(BATCH_FIRST)
    return Fires(LayerLayout(folded="batch", steps=_positive(steps), samples=_positive(samples)))


def _positive(number: int | None) -> int | None:
    """The Squeeze forms write −1 for the number that follows from the other."""
    return number if number is not None and number > 0 else None


def _signal_encoder(module: nn.Module) -> Kind | None:
    """Without `spk_out` it passes on the signal, which is input as any other."""
    return Fires() if getattr(module, "spk_out", True) else None


SINABS = Framework(
    name="sinabs",
    package="sinabs",
    tested="3.1.3",
    kinds={
        "StatefulLayer": _stateful,  # IAF, LIF, ALIF and their Squeeze forms; ExpLeak, which has no spike function
        "Img2SpikeLayer": Fires(),
        "Sig2SpikeLayer": _signal_encoder,
        **dict.fromkeys("LIFRecurrent IAFRecurrent ALIFRecurrent".split(), _recurrent),
        "SpikingMaxPooling2dLayer": Refused(
            "chooses by the spikes of all earlier steps what it passes on, which is not counted",
            "use nn.MaxPool2d, nn.AvgPool2d or SumPool2d",
        ),
    },
    spare={"Network": "analog_model"},  # of which `spiking_model` was made
)
