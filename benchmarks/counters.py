"""Synaptic operations of a network as each tool counts them, by the layer of synapses that the spikes enter.

Convention of all of them here: accumulates a sample, the mean over the batch. picojoule counts at the neurons; in a
network whose layers follow one another its counts are shown at the synapses that come next.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn

import picojoule as pj

Counts = dict[str, float]
SYNAPSES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def synaptic_layers(net: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in net.named_modules() if isinstance(module, SYNAPSES)}


class Picojoule:
    """Beside a forward pass: `with counter.counting(): net(batch)`, then `counter.update(batch)`."""

    package = "picojoule"

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        self.net = net
        self.meter = pj.EnergyMeter(pj.trace(net, example))

    @contextmanager
    def counting(self) -> Iterator[None]:
        with pj.watch(self.net) as self.activity:
            yield

    def update(self, batch: Tensor) -> None:
        self.meter.update(self.activity)

    def counts(self) -> Counts:
        by_layer = {layer.name: layer.synops for layer in self.meter.compute().layers}
        if not isinstance(self.net, nn.Sequential):
            return {"total": sum(by_layer.values())}
        counts, waiting = {}, 0.0
        for name, module in self.net.named_children():
            waiting += by_layer.get(name, 0.0)
            if isinstance(module, SYNAPSES):
                counts[name], waiting = waiting, 0.0
        return counts


class SpikingJelly:
    """`SynOpCounter`: operations of matrix products and convolutions whose input is exactly 0 and 1."""

    package = "spikingjelly"

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        from spikingjelly.activation_based.op_counter import DispatchCounterMode, SynOpCounter

        self.net, self.samples = net, 0
        self._mode, self._counter = DispatchCounterMode, SynOpCounter()

    def counting(self) -> AbstractContextManager[object]:
        return self._mode([self._counter])

    def update(self, batch: Tensor) -> None:
        self.samples += len(batch)

    def counts(self) -> Counts:
        scopes = self._counter.get_counts()
        root = type(self.net).__name__
        if not isinstance(self.net, nn.Sequential):
            return {"total": self._counter.get_total() / self.samples}
        return {
            name: sum(scopes.get(f"{root}.{name}", {}).values()) / self.samples for name in synaptic_layers(self.net)
        }


class NeuroBench:
    """`SynapticOperations`, its effective accumulates: layers whose input is −1, 0 and 1, zero weights left out."""

    package = "neurobench"

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        from neurobench.metrics.workload import SynapticOperations
        from neurobench.models import TorchModel

        self.net, self.model = net, TorchModel(net)
        self.model.register_hooks()
        self.names = {id(module): name for name, module in net.named_modules()}
        self.metrics = [SynapticOperations() for _ in self.model.connection_hooks]

    def counting(self) -> AbstractContextManager[object]:
        return nullcontext()

    def update(self, batch: Tensor) -> None:
        hooks = self.model.connection_hooks
        for hook, metric in zip(hooks, self.metrics, strict=True):  # one metric a layer; it sums over layers by itself
            self.model.connection_hooks = [hook]
            metric(self.model, None, (batch, None))
        self.model.connection_hooks = hooks
        self.model.reset_hooks()

    def counts(self) -> Counts:
        values = {
            self.names[id(hook.layer)]: float(metric.compute()["Effective_ACs"])
            for hook, metric in zip(self.model.connection_hooks, self.metrics, strict=True)
        }
        return values if isinstance(self.net, nn.Sequential) else {"total": sum(values.values())}


class Sinabs:
    """`register_synops_hooks`: sums of input times fan-out in a flat Sequential, average pools undone by k²."""

    package = "sinabs"

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        from sinabs.hooks import register_synops_hooks

        if not isinstance(net, nn.Sequential):
            raise TypeError("sinabs' hooks take a flat Sequential")
        self.net, self.samples = net, 0
        self._sums: Counts = {}
        register_synops_hooks(net)

    def counting(self) -> AbstractContextManager[object]:
        return nullcontext()

    def update(self, batch: Tensor) -> None:
        names = [name for name, _ in self.net.named_children()]
        self.samples += len(batch)
        for index, mean in self.net.hook_data["synops_per_timestep"].items():
            self._sums[names[index]] = self._sums.get(names[index], 0.0) + float(mean) * len(batch)

    def counts(self) -> Counts:
        return {name: value / self.samples for name, value in self._sums.items()}


COUNTERS: dict[str, type[Picojoule | Sinabs | SpikingJelly | NeuroBench]] = {
    "picojoule": Picojoule,
    "sinabs": Sinabs,
    "SpikingJelly": SpikingJelly,
    "NeuroBench": NeuroBench,
}


def installed() -> list[str]:
    return [name for name, counter in COUNTERS.items() if importlib.util.find_spec(counter.package) is not None]


def measure(tool: str, build: Callable[[], nn.Module], batches: list[Tensor]) -> Counts:
    """What one tool counts on a network of its own."""
    net = build().eval()
    counter = COUNTERS[tool](net, batches[0][:1])
    with torch.no_grad():
        for batch in batches:
            with counter.counting():
                net(batch)
            counter.update(batch)
    return counter.counts()
