"""From a network to an engine: captured, lowered, and compared with the network before it is given out."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from picojoule.deploy.events.builder import WeightType
from picojoule.deploy.events.engine import Engine, load_kernels
from picojoule.deploy.events.lowering import DESTINATION, lower
from picojoule.deploy.graph.capture import network_of, shaped_layer_graph
from picojoule.deploy.reproduction import difference, probes
from picojoule.errors import PicojouleError, unknown
from picojoule.neurons.lif import IF, LIF, MembraneNeuron
from picojoule.neurons.spike import Spike
from picojoule.neurons.time_steps import check_steps
from picojoule.spikes.spiking import spiking_modules
from picojoule.synapses.trace import trace


def compile(
    model: nn.Module,
    example: Tensor,
    *,
    weights: WeightType = "float32",
    threads: int = 1,
    steps: int | None = None,
) -> Engine:
    """Compile a spiking network into an engine that walks only its spikes.

    On noise and on the first samples of the example, the engine is compared with the model layer by layer, spikes and
    synaptic operations included; a network that it does not reproduce is refused.

    Args:
        model: The network, with `picojoule.Spike`, `IF` or `LIF` as its neurons; it stays as it is.
        example: A batch as the model takes it. Real images are worth more than zeros, because the engine is compared
            with the model on them.
        weights: "float32", or "int8" to store the weights of all that spikes feed as bytes, with a scale for each
            output channel, and add them up in whole numbers. What is compared is the network before that rounding.
        threads: How many threads share the images of a batch; one image is the work of one thread.
        steps: Time steps T; None takes what the network's neurons were told, and needs no saying for one step.

    Returns:
        The engine, ready to be called.

    Raises:
        PicojouleError: If Numba is not installed, an argument is not valid, a layer cannot be run, or the engine does
            not reproduce the network.

    Example:
        >>> import picojoule as pj
        >>> net = pj.zoo.create("cnn7").eval()
        >>> images = torch.rand(2, 1, 32, 32)
        >>> result = compile(net, images)(images)
        >>> torch.allclose(result.logits, net(images), atol=1e-4), result.synops.shape
        (True, torch.Size([2]))
    """
    if weights not in ("float32", "int8"):
        raise unknown("weights", str(weights), ("float32", "int8"))
    if type(threads) is not int or threads < 1:
        raise PicojouleError(f"threads={threads!r} is not a number of threads: give a whole number from 1 up")
    model = network_of(model, DESTINATION)
    for name, layer in spiking_modules(model).items():
        if type(layer) not in _NEURONS:
            remedy = "use picojoule.Spike, IF or LIF as its neuron"
            raise DESTINATION.refusal(f"the layer {name!r} ({type(layer).__name__})", remedy)
    steps = _steps_of(model, steps)
    if not isinstance(example, Tensor):
        raise PicojouleError(
            f"the event engine needs a tensor as its example, not {type(example).__name__}: give a batch of images"
        )
    load_kernels()  # before anything that takes time
    synapses = trace(model, example, steps=steps)
    with shaped_layer_graph(model, tuple(example.shape[1:]), DESTINATION) as graph:
        programs = [lower(model, graph, stored, steps) for stored in dict.fromkeys(("float32", weights))]
    engines = [Engine(program, synapses, threads) for program in programs]
    images = probes(example.to(next(model.parameters(), example)))
    found = difference(model, images, engines[0].executed)
    if found is not None:
        raise PicojouleError(
            f"the event engine does not reproduce {type(model).__name__} ({found}): leave out of its forward pass what "
            "is not in the weights and settings of its layers, or use the dense engine"
        )
    for engine in engines:
        _check_operations(engine, images)
    return engines[-1]


_NEURONS = (Spike, IF, LIF)


def _steps_of(model: nn.Module, said: int | None) -> int:
    """Find the number of time steps, by what was said and by what the neurons were told."""
    if said is not None:
        check_steps(said)
    told = {layer.steps for layer in spiking_modules(model).values() if isinstance(layer, MembraneNeuron)}
    known = {*told, said} - {None}
    if len(known) > 1:
        raise PicojouleError(f"the network's neurons and steps={said} say different numbers of time steps: {known}")
    if not known and told:
        raise PicojouleError(
            "the network's neurons take [T, B, …] and do not know how many time steps that is: say steps=T"
        )
    return known.pop() or 1 if known else 1


def _check_operations(engine: Engine, images: Tensor) -> None:
    """Refuse an engine whose count of operations is not ψ times the spikes that it emits."""
    activity, result = engine.watch(images), engine(images)
    expected = torch.zeros(len(images), dtype=torch.float64)
    for name, layer in engine.synapses.items():
        if layer.fan_out.any():
            for spikes in activity.by_step(name):
                expected += (spikes.double() * layer.fan_out).flatten(1).sum(1)
    if not torch.equal(expected.long(), result.synops):
        raise PicojouleError(
            f"the event engine counts other synaptic operations than ψ ({result.synops.tolist()} instead of "
            f"{expected.long().tolist()} on noise): use the dense engine"
        )
