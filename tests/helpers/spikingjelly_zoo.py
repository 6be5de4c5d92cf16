"""SpikingJelly's own networks (`activation_based.model`), at sizes that are traced in seconds.

Each is built as its authors wrote it. Some of them import torchvision for nothing but download addresses; where it is
not installed, an empty module stands in for it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import nn

import picojoule as pj


@dataclass(frozen=True)
class Entry:
    """A network, the shape of one sample (with time, where the network wants it) and where time is."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    layout: dict[str, Any] = field(default_factory=dict)

    def batch(self, samples: int) -> tuple[int, ...]:
        """The shape of a batch."""
        if "time_axis" in self.layout:
            return (self.layout["steps"], samples, *self.shape)
        return (samples, *self.shape)


def without_torchvision() -> None:
    """Let SpikingJelly's networks be imported where torchvision is not installed, or not for this PyTorch."""
    try:
        import torchvision  # noqa: F401
    except Exception:  # not there, or not for this PyTorch
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
    else:
        return
    for name in ("torchvision", "torchvision.models", "torchvision.models.utils"):
        module = ModuleType(name)
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
        sys.modules[name] = module
    sys.modules["torchvision.models.utils"].load_state_dict_from_url = None  # type: ignore[attr-defined]


STEPS = 2
TIMED = {"steps": STEPS, "time_axis": 0}
INSIDE = {"steps": STEPS}
IMAGE = (3, 32, 32)


def zoo() -> dict[str, Entry]:
    """Every network of the zoo by its name."""
    without_torchvision()
    from spikingjelly.activation_based import functional, model, neuron, surrogate
    from spikingjelly.activation_based.model import (
        parametric_lif_net,
        sew_resnet,
        snas_net,
        spike_dhs,
        spikformer,
        spiking_resnet,
        spiking_vgg,
        spiking_vggws_ottt,
    )

    integrates = {"spiking_neuron": neuron.IFNode, "surrogate_function": surrogate.ATan(), "detach_reset": True}

    def multi(build: Callable[..., nn.Module], **settings: Any) -> Callable[[], nn.Module]:
        def built() -> nn.Module:
            net = build(**settings, **integrates)
            functional.set_step_mode(net, "m")
            return net

        return built

    def searched() -> nn.Module:
        settings = SimpleNamespace(
            timestep=STEPS, second_avgpooling=2, dataset="cifar10", threshold=1.0, tau=4 / 3, celltype="forward"
        )
        cell = np.array([[0, 0, 0, 0], [3, 0, 0, 0], [2, 3, 0, 0], [1, 2, 3, 0]]).T
        return snas_net.SNASNet(settings, cell)

    small = {"T": STEPS, "num_classes": 10}
    found = {
        **{
            f"sew_resnet18 {way}": Entry(multi(sew_resnet.sew_resnet18, cnf=way), IMAGE, TIMED)
            for way in ("ADD", "AND", "IAND")
        },
        "spiking_resnet18": Entry(multi(spiking_resnet.spiking_resnet18), IMAGE, TIMED),
        "spiking_vgg11_bn": Entry(multi(spiking_vgg.spiking_vgg11_bn), IMAGE, TIMED),
        "spikformer_cifar10": Entry(
            lambda: spikformer.Spikformer(
                **small, img_size_h=32, img_size_w=32, patch_size=4, embed_dims=32, num_heads=4, depths=1
            ),
            IMAGE,
            INSIDE,
        ),
        "spikformer_ti": Entry(
            lambda: spikformer.Spikformer(
                **small, img_size_h=32, img_size_w=32, patch_size=16, embed_dims=32, num_heads=4, depths=1
            ),
            IMAGE,
            INSIDE,
        ),
        "qkformer": Entry(
            lambda: model.QKFormer(**small, embed_dims=32, num_heads=(1, 2, 4), depths=(1, 1, 1)), IMAGE, INSIDE
        ),
        "spike_driven_transformer": Entry(
            lambda: model.SpikeDrivenTransformer(**small, embed_dims=32, num_heads=4, depths=1), IMAGE, INSIDE
        ),
        "maxformer": Entry(lambda: model.MaxFormer(**small, embed_dims=32, depths=(1, 1, 1)), IMAGE, INSIDE),
        "maxformer_cifar": Entry(
            lambda: model.MaxFormer(**small, embed_dims=32, depths=(1, 1, 1), cifar=True), IMAGE, INSIDE
        ),
        "ms_resnet": Entry(lambda: model.MSResNet(**small, layers=(1, 1, 1), base_channels=8), IMAGE, INSIDE),
        "max_resnet": Entry(lambda: model.MaxResNet(**small, layers=(1, 1, 1), base_channels=8), IMAGE, INSIDE),
        "att_ms_resnet": Entry(
            lambda: model.AttMSResNet(**small, layers=(1, 1, 1), base_channels=16, reduction_c=4), IMAGE, INSIDE
        ),
        "masnn": Entry(
            lambda: model.MASNN(
                T=6, channels=(8, 8), pools=(1, 2), fc_hidden=16, reduction_t=3, reduction_c=2, input_size=(8, 8)
            ),
            (2, 8, 8),
            {"steps": 6},
        ),
        "snas_net": Entry(searched, IMAGE, INSIDE),
        "spike_dhs found": Entry(lambda: _found(spike_dhs), (3, 8, 8), {"steps": 6}),
        "spiking_vggws_ottt": Entry(lambda: spiking_vggws_ottt.ottt_spiking_vggws(num_classes=10), IMAGE),
    }
    maps = {
        "MNISTNet": (1, 28, 28),
        "FashionMNISTNet": (1, 28, 28),
        "NMNISTNet": (2, 34, 34),
        "CIFAR10Net": (3, 32, 32),
        "CIFAR10DVSNet": (2, 128, 128),
        "DVSGestureNet": (2, 128, 128),
    }
    for name, shape in maps.items():
        found[name] = Entry(multi(getattr(parametric_lif_net, name), channels=8), shape, TIMED)
    return found


def _found(spike_dhs: Any) -> nn.Module:
    """The network that the search has found: without its second and third copies and the head that only trains.

    picojoule refuses neurons that are never called, for it cannot know that they are not forgotten.
    """
    args = SimpleNamespace(fea_num_layers=6, fea_filter_multiplier=48, fea_block_multiplier=3, fea_step=3)
    net: nn.Module = spike_dhs.SpikeDHS(init_channels=3, args=args)
    for module in list(net.modules()):
        for name, _ in list(module.named_children()):
            if name.endswith(("_s", "_b")) or name in ("spikes", "auxiliary_head"):
                delattr(module, name)
    from spikingjelly.activation_based import functional

    functional.set_step_mode(net, "m")
    return net


def counted(net: nn.Module, entry: Entry, synapses: pj.Synapses) -> pj.EnergyReport:
    """Meter three random samples, and see that the penalty is the bill."""
    from spikingjelly.activation_based import functional

    functional.reset_net(net)
    meter, penalty = pj.EnergyMeter(synapses), pj.Penalty(synapses, normalized=False)
    with pj.watch(net, **entry.layout) as activity, torch.no_grad():
        net(torch.rand(entry.batch(3)))
        omega = penalty(activity).item()
    functional.reset_net(net)
    meter.update(activity)
    report = meter.compute()
    assert abs(omega - report.synops) <= 1e-6 * report.synops, f"the penalty is {omega}, the bill {report.synops}"
    return report
