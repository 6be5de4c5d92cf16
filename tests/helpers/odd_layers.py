"""Ways to make a layer do something else than its class and its attributes say, each put on a small network.

Every one of them changes the numbers: a reader that overlooks it answers wrongly.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.nn.utils import parametrizations, parametrize, prune

import picojoule as pj

SHAPE = (1, 6, 6)
LAYER, NEURON = "3", "1"
"""What the oddities are put on."""


def network(neuron: Callable[[], nn.Module] = lambda: pj.Spike(0.2)) -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3), neuron(), nn.Flatten(), nn.Linear(64, 12), nn.BatchNorm1d(12), neuron(), nn.Linear(12, 3)
    )
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.normal_(layer.weight, std=0.7)
            nn.init.normal_(layer.bias)
    return net.eval()


def _after_a_step(net: nn.Module) -> None:
    """Parameters move on, and whatever was computed from them stays behind."""
    with torch.no_grad():
        for parameter in net[3].parameters():  # type: ignore[index]
            parameter.mul_(-1.5).add_(0.1)


@contextmanager
def old_weight_norm(net: Any) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.weight_norm(net[3])
    _after_a_step(net)
    yield


@contextmanager
def new_weight_norm(net: Any) -> Iterator[None]:
    parametrizations.weight_norm(net[3])
    _after_a_step(net)
    yield


@contextmanager
def old_spectral_norm(net: Any) -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        nn.utils.spectral_norm(net[3])
    _after_a_step(net)
    yield


@contextmanager
def new_spectral_norm(net: Any) -> Iterator[None]:
    parametrizations.spectral_norm(net[3])
    _after_a_step(net)
    yield


class Doubled(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * x


@contextmanager
def own_parametrization(net: Any) -> Iterator[None]:
    parametrize.register_parametrization(net[3], "bias", Doubled())
    yield


@contextmanager
def pruned_weight(net: Any) -> Iterator[None]:
    prune.random_unstructured(net[3], "weight", 0.5)
    _after_a_step(net)
    yield


@contextmanager
def pruned_bias(net: Any) -> Iterator[None]:
    prune.random_unstructured(net[3], "bias", 0.5)
    _after_a_step(net)
    yield


@contextmanager
def pruned_norm(net: Any) -> Iterator[None]:
    prune.random_unstructured(net[4], "bias", 0.5)
    with torch.no_grad():
        net[4].bias_orig.add_(1)
    yield


def _hook(layer: str, kind: str) -> Callable[[Any], Any]:
    @contextmanager
    def odd(net: Any) -> Iterator[None]:
        module = net if layer == "" else net.get_submodule(layer)
        if kind == "hook":
            handle = module.register_forward_hook(lambda module, inputs, output: 0.5 * output + 0.7)
        else:
            handle = module.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 0.5 + 0.7,))
        try:
            yield
        finally:
            handle.remove()

    return odd


@contextmanager
def hook_that_sets_weights(net: Any) -> Iterator[None]:
    def hook(module: Any, inputs: Any) -> None:
        module.bias.data.fill_(0.8)

    handle = net[3].register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _for_all_modules(register: Callable[[Any], Any], hook: Callable[..., Any]) -> Iterator[None]:
    handle = register(hook)
    try:
        yield
    finally:
        handle.remove()


def shifts_linear_layers(module: nn.Module, inputs: Any, output: Any) -> Any:
    return output + 0.7 if isinstance(module, nn.Linear) else None


def shifts_what_neurons_take(module: nn.Module, inputs: Any) -> Any:
    return (inputs[0] - 0.7,) if isinstance(module, pj.Spike | pj.QuantizedReLU) else None


@contextmanager
def global_hook(net: Any) -> Iterator[None]:
    with _for_all_modules(register_module_forward_hook, shifts_linear_layers):
        yield


@contextmanager
def global_pre_hook(net: Any) -> Iterator[None]:
    with _for_all_modules(register_module_forward_pre_hook, shifts_what_neurons_take):
        yield


def _own_forward(layer: str) -> Callable[[Any], Any]:
    @contextmanager
    def odd(net: Any) -> Iterator[None]:
        module = net if layer == "" else net.get_submodule(layer)
        plain = module.forward
        module.forward = lambda x: plain(x) * 0.5 + 0.7
        yield

    return odd


class Shifted(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + 0.7


class ShiftedSpike(pj.Spike):
    def forward(self, u: Tensor) -> Tensor:
        return super().forward(u - 0.7)


@contextmanager
def derived_layer(net: Any) -> Iterator[None]:
    net[3].__class__ = Shifted
    yield


@contextmanager
def derived_neuron(net: Any) -> Iterator[None]:
    if isinstance(net[1], pj.Spike):
        net[1].__class__ = ShiftedSpike
    yield


@contextmanager
def quantisation_aware(net: Any) -> Iterator[None]:
    """Four bits of weight, so that it shows."""
    from torch.ao.nn import qat
    from torch.ao.quantization import FakeQuantize, MinMaxObserver, QConfig

    weight = FakeQuantize.with_args(
        observer=MinMaxObserver, quant_min=-8, quant_max=7, dtype=torch.qint8, qscheme=torch.per_tensor_symmetric
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net[3].qconfig = QConfig(activation=nn.Identity, weight=weight)
        net[3] = qat.Linear.from_float(net[3].train())
        net(torch.randn(4, *SHAPE))
        net.apply(torch.ao.quantization.disable_observer)
    net.eval()
    yield


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "weight norm, old": old_weight_norm,
    "weight norm, new": new_weight_norm,
    "spectral norm, old": old_spectral_norm,
    "spectral norm, new": new_spectral_norm,
    "parametrisation": own_parametrization,
    "pruned weight": pruned_weight,
    "pruned bias": pruned_bias,
    "pruned batch norm": pruned_norm,
}
"""Weights that are made from others in every forward pass."""
BEHAVED: dict[str, Callable[[Any], Any]] = {
    "hook": _hook(LAYER, "hook"),
    "pre-hook": _hook(LAYER, "pre-hook"),
    "hook on a neuron": _hook(NEURON, "hook"),
    "pre-hook on a neuron": _hook(NEURON, "pre-hook"),
    "hook on the network": _hook("", "hook"),
    "pre-hook on the network": _hook("", "pre-hook"),
    "hook on dropped layers": _hook("2", "hook"),
    "hook that sets weights": hook_that_sets_weights,
    "hook for all": global_hook,
    "pre-hook for all": global_pre_hook,
    "forward of an instance": _own_forward(LAYER),
    "forward of a neuron": _own_forward(NEURON),
    "forward of the network": _own_forward(""),
    "derived layer": derived_layer,
    "derived neuron": derived_neuron,
    "quantisation-aware": quantisation_aware,
}
"""Layers that do something else with the weights that they have."""
ODD = COMPUTED | BEHAVED
