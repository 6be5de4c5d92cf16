"""What people do to a network that stands: hooks, parametrisations, masks, other forwards, other memory."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

import picojoule as pj

if TYPE_CHECKING:
    from fuzz.networks import Built

Change = Callable[["Built", Random], bool]
"""Changes the network, or gives False where there is nothing to change."""

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)


def _layers(built: Built) -> list[nn.Module]:
    return [
        m
        for m in built.model.modules()
        if isinstance(m, LAYERS) and isinstance(vars(m)["_parameters"].get("weight"), Tensor)
    ]


def on_a_layer(change: Callable[[nn.Module, Random], Any]) -> Change:
    def changed(built: Built, chance: Random) -> bool:
        layers = _layers(built)
        if not layers:
            return False
        return change(chance.choice(layers), chance) is not False

    changed.__name__ = change.__name__
    return changed


def on_a_layer_run_once(change: Callable[[nn.Module, Random], Any]) -> Change:
    """For weights that every pass of training changes: a checkpoint's second pass has others, and another gradient."""

    def changed(built: Built, chance: Random) -> bool:
        repeated = {part for m in built.model.modules() if getattr(m, "recomputes", False) for part in m.modules()}
        layers = [layer for layer in _layers(built) if layer not in repeated]
        if not layers:
            return False
        return change(chance.choice(layers), chance) is not False

    changed.__name__ = change.__name__
    return changed


def on_a_neuron(change: Callable[[nn.Module, Random], Any]) -> Change:
    def changed(built: Built, chance: Random) -> bool:
        neurons = list(built.neurons.values())
        if not neurons:
            return False
        return change(chance.choice(neurons), chance) is not False

    changed.__name__ = change.__name__
    return changed


@on_a_layer
def old_weight_norm(module: nn.Module, chance: Random) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.weight_norm(module)
    with torch.no_grad():
        module.weight_g.mul_(torch.empty_like(module.weight_g).uniform_(0.5, 3))


@on_a_layer
def weight_norm(module: nn.Module, chance: Random) -> None:
    parametrizations.weight_norm(module)
    with torch.no_grad():
        size = module.parametrizations.weight.original0
        size.mul_(torch.empty_like(size).uniform_(0.5, 3))


@on_a_layer_run_once
def old_spectral_norm(module: nn.Module, chance: Random) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nn.utils.spectral_norm(module)


@on_a_layer_run_once
def spectral_norm(module: nn.Module, chance: Random) -> None:
    parametrizations.spectral_norm(module)


class _Scaled(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * 1.5


class _Masked(nn.Module):
    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.register_buffer("mask", (torch.rand(like.shape) < 0.5).to(like.dtype))

    def forward(self, weight: Tensor) -> Tensor:
        return weight * self.mask


@on_a_layer
def own_parametrization(module: nn.Module, chance: Random) -> None:
    parametrize.register_parametrization(module, "weight", _Scaled())


@on_a_layer
def masking_parametrization(module: nn.Module, chance: Random) -> None:
    parametrize.register_parametrization(module, "weight", _Masked(module.weight))


def _in_order(change: Callable[[nn.Module, Random], Any]) -> Callable[[nn.Module, Random], Any]:
    """Only for weights that PyTorch can prune: not for those in channels-last memory."""

    def changed(module: nn.Module, chance: Random) -> Any:
        return change(module, chance) if module.weight.is_contiguous() else False

    changed.__name__ = change.__name__
    return changed


@on_a_layer
@_in_order
def pruned(module: nn.Module, chance: Random) -> None:
    method = chance.choice([prune.random_unstructured, prune.l1_unstructured])
    method(module, "weight", amount=chance.choice([0.2, 0.5, 0.9]))


@on_a_layer
@_in_order
def pruned_channels(module: nn.Module, chance: Random) -> None:
    prune.random_structured(module, "weight", amount=1, dim=chance.choice([0, 1]))


@on_a_layer
def pruned_bias(module: nn.Module, chance: Random) -> bool:
    if module.bias is None:
        return False
    prune.random_unstructured(module, "bias", amount=0.5)
    with torch.no_grad():  # an optimiser's step: the bias that is shown is made anew in the next forward pass
        module.bias_orig.add_(0.7)
    return True


@on_a_layer
@_in_order
def pruned_for_good(module: nn.Module, chance: Random) -> None:
    """Zeros that stay: whether they are still synapses is the user's to say."""
    prune.random_unstructured(module, "weight", amount=0.3)
    with torch.no_grad():
        module.weight_orig.mul_(1.2)


@on_a_layer
def weight_in_a_buffer(module: nn.Module, chance: Random) -> None:
    weight = module.weight.detach().clone()
    del module.weight
    module.register_buffer("weight", weight)


@on_a_layer
def frozen(module: nn.Module, chance: Random) -> None:
    module.requires_grad_(False)


@on_a_layer
def pre_hook(module: nn.Module, chance: Random) -> None:
    way = chance.choice(
        [lambda x: x * 2, lambda x: x, lambda x: x.clone(), lambda x: torch.cat([x[:, :1] * 0, x[:, 1:]], 1)]
    )
    module.register_forward_pre_hook(lambda module, args: (way(args[0]),))


@on_a_layer
def hook(module: nn.Module, chance: Random) -> None:
    way = chance.choice([lambda y: y * 1.5, lambda y: y + 0.3, lambda y: y.clamp(-1, 1), lambda y: None])
    module.register_forward_hook(lambda module, args, output: way(output))


@on_a_neuron
def neuron_hook(module: nn.Module, chance: Random) -> None:
    def halved(s: Tensor) -> Tensor:
        mask = torch.ones_like(s)
        mask[..., ::2] = 0
        return s * mask

    way = chance.choice([halved, lambda s: s * 2, lambda s: 1 - s, lambda s: s * 0.5, lambda s: None])
    module.register_forward_hook(lambda module, args, output: way(output))


@on_a_neuron
def neuron_pre_hook(module: nn.Module, chance: Random) -> None:
    way = chance.choice([lambda u: u * 1.5, lambda u: u + 0.4, lambda u: -u])
    module.register_forward_pre_hook(lambda module, args: (way(args[0]),))


@on_a_neuron
def neuron_forward(module: nn.Module, chance: Random) -> None:
    original, shift = module.forward, chance.choice([0.0, 0.5])
    module.forward = lambda u: original(u + shift)


@on_a_layer
def layer_forward(module: nn.Module, chance: Random) -> None:
    original, scale = module.forward, chance.choice([1.0, 2.0])
    module.forward = lambda x: original(x) * scale


@on_a_layer
def masking_forward(module: nn.Module, chance: Random) -> bool:
    if not isinstance(module, nn.Linear):
        return False
    module.register_buffer("hand_mask", (torch.rand(module.weight.shape) < 0.5).float())
    module.forward = lambda x: F.linear(x, module.weight * module.hand_mask, module.bias)
    return True


@on_a_neuron
def another_threshold(module: nn.Module, chance: Random) -> bool:
    if not isinstance(module, pj.Spike):
        return False
    module.threshold = 0.8
    return True


def model_hook(built: Built, chance: Random) -> bool:
    way = chance.choice([lambda y: y * 2, lambda y: y + 1, lambda y: None])
    built.model.register_forward_hook(lambda module, args, output: way(output))
    return True


def model_pre_hook(built: Built, chance: Random) -> bool:
    built.model.register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))
    return True


def dynamic_quantization(built: Built, chance: Random) -> bool:
    if built.spec.dtype != "float32" or not any(type(m) is nn.Linear for m in built.model.modules()):
        return False
    linears = [m for m in built.model.modules() if isinstance(m, nn.Linear)]
    if any(
        m._forward_pre_hooks or m._forward_hooks or type(m) is not nn.Linear or "forward" in vars(m) for m in linears
    ):
        return False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        built.model = torch.ao.quantization.quantize_dynamic(built.model, {nn.Linear}, inplace=True)
    built.accidental_zeros = True
    return True


def training_for_quantization(built: Built, chance: Random) -> bool:
    from torch.ao.nn import qat

    names = [
        name
        for name, m in built.model.named_modules()
        if type(m) is nn.Linear and not m._forward_pre_hooks and isinstance(m.weight, nn.Parameter)
    ]
    if built.spec.dtype != "float32" or not names:
        return False
    name = chance.choice(names)
    linear = built.model.get_submodule(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        linear.qconfig = torch.ao.quantization.get_default_qat_qconfig("x86")
        layer = qat.Linear.from_float(linear)
        layer(torch.randn(3, linear.in_features))
    layer.apply(torch.ao.quantization.disable_observer)
    built.model.set_submodule(name, layer.eval())
    built.accidental_zeros = True
    return True


def channels_last(built: Built, chance: Random) -> bool:
    if built.images.dim() != 4:
        return False
    built.model = built.model.to(memory_format=torch.channels_last)
    built.images = built.images.contiguous(memory_format=torch.channels_last)
    return True


CHANGES: dict[str, Change] = {
    change.__name__: change
    for change in (
        old_weight_norm, weight_norm, old_spectral_norm, spectral_norm, own_parametrization, masking_parametrization,
        pruned, pruned_channels, pruned_bias, pruned_for_good, weight_in_a_buffer, frozen, pre_hook, hook, neuron_hook,
        neuron_pre_hook, neuron_forward, layer_forward, masking_forward, another_threshold, model_hook, model_pre_hook,
        dynamic_quantization, training_for_quantization, channels_last,
    )
}  # fmt: skip
