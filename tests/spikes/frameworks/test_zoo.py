"""SpikingJelly's own networks, unchanged: each is traced, and its bill is its penalty."""

from __future__ import annotations

import pytest
import torch

import picojoule as pj
from helpers.frameworks import need

need("spikingjelly")
from helpers.spikingjelly_zoo import counted, zoo  # noqa: E402

ZOO = zoo()
PRODUCTS = {"spikformer_cifar10", "spikformer_ti", "qkformer", "maxformer", "maxformer_cifar"}
GATES = {"sew_resnet18 AND", "sew_resnet18 IAND", "qkformer", "spike_driven_transformer"}
ANALOG = {"maxformer", "ms_resnet", "max_resnet", "att_ms_resnet", "masnn"}


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_every_network_of_the_zoo_is_counted(name: str) -> None:
    torch.manual_seed(0)
    entry = ZOO[name]
    net = entry.build().eval()
    synapses = pj.trace(net, torch.zeros(entry.batch(1)), **entry.layout)
    assert synapses.synapses > 0
    counted(net, entry, synapses)
    assert bool(synapses.products) == (name in PRODUCTS)
    gates = [layer for layer in synapses.values() if layer.relay and layer.made is not None and not layer.product]
    assert bool(gates) == (name in GATES)
    assert not synapses.analog or name in ANALOG
    assert synapses.analog or name not in ANALOG - {"maxformer"}
