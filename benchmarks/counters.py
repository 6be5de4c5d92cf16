"""Synaptic operations of a network as each tool counts them, by the layer of synapses that the spikes enter.

Convention of all of them here: accumulates a sample, the mean over the batch. Products of two activations stand in a
row of their own, named after the module that multiplies.
"""

from __future__ import annotations

import importlib.util
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.metadata import version
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import picojoule as pj

Counts = dict[str, float]
SYNAPSES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)


def synaptic_layers(net: nn.Module) -> dict[str, nn.Module]:
    return {name: module for name, module in net.named_modules() if isinstance(module, SYNAPSES)}


def products_of(module: str) -> str:
    """The row of the products in a module's own forward."""
    return f"{module} products".strip()


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
        report, layers = self.meter.compute(), synaptic_layers(self.net)
        counts: Counts = defaultdict(float)
        for each in report.weights:
            name = each.layer.name
            counts[name if name in layers else products_of(name.rpartition(".")[0])] += each.synops
        assert math.isclose(sum(counts.values()), report.synops), "something has no row"
        return dict(counts)


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
        root = type(self.net).__name__
        found = {scope: sum(counts.values()) for scope, counts in self._counter.get_counts().items()}
        sums = {name: found.get(f"{root}.{name}".rstrip("."), 0) for name, _ in self.net.named_modules()}
        layers, counts = synaptic_layers(self.net), {}
        for name, module in self.net.named_modules():
            if name in layers:
                counts[name] = sums[name] / self.samples
                continue
            prefix = f"{name}." if name else ""
            own = sums[name] - sum(sums[prefix + child] for child, _ in module.named_children())
            if own:
                counts[products_of(name)] = own / self.samples
        return counts


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
        return {
            self.names[id(hook.layer)]: float(metric.compute()["Effective_ACs"])
            for hook, metric in zip(self.model.connection_hooks, self.metrics, strict=True)
        }


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


class _ByFormula:
    """A formula of what enters a layer of weights and what comes out of it, summed over all calls."""

    package = "spikingjelly"  # of the environment in which formulas are computed, once
    version = ""

    def __init__(self, net: nn.Module, example: Tensor) -> None:
        self.net, self.samples = net, 0
        self._sums: Counts = dict.fromkeys(synaptic_layers(net), 0.0)

    @contextmanager
    def counting(self) -> Iterator[None]:
        def hook(name: str) -> Callable[..., None]:
            def count(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
                self._sums[name] += self.of(module, inputs[0].double(), output)

            return count

        handles = [module.register_forward_hook(hook(name)) for name, module in synaptic_layers(self.net).items()]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def of(self, module: nn.Module, x: Tensor, output: Tensor) -> float:
        raise NotImplementedError

    def update(self, batch: Tensor) -> None:
        self.samples += len(batch)

    def counts(self) -> Counts:
        return {name: value / self.samples for name, value in self._sums.items()}


class Norse(_ByFormula):
    """`SynOpsCounter`: every spike times all weights of its channel (merged after 1.1.0, so by its formula)."""

    version = "after 1.1.0, its formula"

    def of(self, module: nn.Module, x: Tensor, output: Tensor) -> float:
        weight = module.get_parameter("weight")  # [out, in / groups, …kernel]
        groups = getattr(module, "groups", 1)
        return x.sum().item() * len(weight) * weight[0, 0].numel() / groups


class Syops(_ByFormula):
    """syops-counter: the mean of what enters times the dense operations, where that holds 0 and 1 alone.

    0.0.5 imports neurons that SpikingJelly 2.0 no longer has, so by its formula.
    """

    version = "0.0.5, its formula"

    def of(self, module: nn.Module, x: Tensor, output: Tensor) -> float:
        binary = len(x.unique()) <= 2 and x.min() >= 0 and x.max() <= 1
        return x.mean().item() * dense(module, output) if binary else 0.0


class RuleOfThumb(_ByFormula):
    """Rate × T × FLOPs, as papers have it: dense operations times the mean of what enters.

    Of a product, the rate of the operand that holds 0 and 1 alone, the first if both do.
    """

    version = "rate × T × FLOPs"

    def of(self, module: nn.Module, x: Tensor, output: Tensor) -> float:
        return x.mean().item() * dense(module, output)

    @contextmanager
    def counting(self) -> Iterator[None]:
        with super().counting(), _Products(self.net, self._sums):
            yield


class _Products(TorchFunctionMode):
    """Adds up products of two activations by the modules whose forward they stand in."""

    _NAMES = frozenset(("matmul", "__matmul__", "bmm"))

    def __init__(self, net: nn.Module, sums: Counts) -> None:
        super().__init__()
        self.sums, self.within = sums, [""]
        self.handles = []
        for name, module in net.named_modules():
            self.handles.append(module.register_forward_pre_hook(lambda *_, name=name: self.within.append(name)))
            self.handles.append(module.register_forward_hook(lambda *_: (self.within.pop(), None)[1]))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") in self._NAMES:
            left, right = args
            rate = left if bool(((left == 0) | (left == 1)).all()) else right
            name = products_of(self.within[-1])
            self.sums[name] = self.sums.get(name, 0.0) + rate.double().mean().item() * left.numel() * right.shape[-1]
        return result

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        for handle in self.handles:
            handle.remove()


def dense(module: nn.Module, output: Tensor) -> float:
    """Multiply-accumulates of a layer of weights, each output reading all of its inputs, padding too."""
    return output.numel() * module.get_parameter("weight")[0].numel()


COUNTERS: dict[str, type[Picojoule | Sinabs | SpikingJelly | NeuroBench | Norse | Syops | RuleOfThumb]] = {
    "picojoule": Picojoule,
    "sinabs": Sinabs,
    "SpikingJelly": SpikingJelly,
    "NeuroBench": NeuroBench,
    "Norse": Norse,
    "syops": Syops,
    "rule of thumb": RuleOfThumb,
}


def installed() -> list[str]:
    """The tools that can be run here; formulas run in the one environment that has SpikingJelly."""
    return [name for name, counter in COUNTERS.items() if importlib.util.find_spec(counter.package) is not None]


def version_of(tool: str) -> str:
    """Its version, or what stands for it."""
    counter = COUNTERS[tool]
    return counter.version if issubclass(counter, _ByFormula) else version(counter.package)


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
