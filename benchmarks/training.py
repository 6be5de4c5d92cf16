"""What a penalised training step costs, against the least it could cost and against the peers.

(a) ours : the same network with ReLU, which shares our dropout and batch norm
(b) ours : its convolutions and linears alone (pools stay, for they give the shapes)
(c) ours : the faster of SpikingJelly and snnTorch on the same network, in the same precision and layout
(d) ours as `picojoule train` runs it here : the faster peer as it comes (fp32, channels first)
(e) drawing, augmenting and normalising the batches, as a share of our step (ten batches are augmented at a time)

The peers are those that are installed: pip install -c constraints.txt spikingjelly snntorch

python benchmarks/training.py [--models cnn7 vgg11] [--precisions fp32 bf16] [--turns 15]
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from timing import Timings, console, describe_machine, interleaved
from torch import Tensor, nn

import picojoule as pj
from picojoule.data import Batches, Images, Normalization, RandAugment
from picojoule.data.batches import POOL

BATCH = 100
Step = Callable[[], None]
Loss = Callable[[Tensor, Tensor], Tensor]


def replaced(net: nn.Module, kinds: tuple[type[nn.Module], ...], build: Callable[[nn.Module], nn.Module]) -> nn.Module:
    for name, module in list(net.named_modules()):
        if isinstance(module, kinds):
            parent, _, leaf = name.rpartition(".")
            setattr(net.get_submodule(parent), leaf, build(module))
    return net


def stepper(net: nn.Module, loss: Loss, batches: Iterator[tuple[Tensor, Tensor]], layout: torch.memory_format) -> Step:
    net = net.to(memory_format=layout)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)

    def step() -> None:
        images, labels = next(batches)
        optimizer.zero_grad()
        loss(images.contiguous(memory_format=layout), labels).backward()
        optimizer.step()

    return step


def same_batch(shape: tuple[int, ...]) -> Iterator[tuple[Tensor, Tensor]]:
    images, labels = torch.randn(BATCH, *shape), torch.randint(10, (BATCH,))
    for layout in (torch.contiguous_format, torch.channels_last):
        images = images.contiguous(memory_format=layout)
    while True:
        yield images, labels


def data(shape: tuple[int, ...]) -> Step:
    """Ten batches as `picojoule train` makes them with `data.augment = true`."""
    pixels = torch.randint(256, (POOL * BATCH, *shape), dtype=torch.uint8)
    part = Images(pixels, torch.randint(10, (len(pixels),)))
    mean, deviation = ((value,) * shape[0] for value in (0.3, 0.3))
    batches = Batches(part, BATCH, Normalization(mean, deviation), seed=0, augment=RandAugment())
    epochs = itertools.count()

    def draw() -> None:
        for images, _ in batches.epoch(next(epochs)):
            images.contiguous(memory_format=torch.channels_last)

    return draw


def cross_entropy(net: nn.Module, precision: str) -> Loss:
    def loss(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            return F.cross_entropy(net(images), labels)

    return loss


def penalised(net: nn.Module, precision: str, shape: tuple[int, ...]) -> Loss:
    penalty = pj.Penalty(pj.trace(net, torch.zeros(1, *shape)))

    def loss(images: Tensor, labels: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            with pj.watch(net) as activity:
                logits = net(images)
            return F.cross_entropy(logits, labels) + penalty(activity)

    return loss


def alone(name: str) -> nn.Module:
    kinds = (nn.BatchNorm1d, nn.BatchNorm2d, nn.Dropout, nn.ReLU)
    return replaced(pj.zoo.create(name, neuron=nn.ReLU), kinds, lambda module: nn.Identity())


def as_peers_write_it(name: str, neuron: Callable[[], nn.Module]) -> nn.Module:
    """The same network with a peer's neuron and PyTorch's dropout."""
    return replaced(pj.zoo.create(name, neuron=neuron), (nn.Dropout,), lambda module: nn.Dropout(module.p))


def spikingjelly(name: str, precision: str) -> tuple[nn.Module, Loss]:
    from spikingjelly.activation_based import functional, neuron, surrogate

    net = as_peers_write_it(name, lambda: neuron.IFNode(v_reset=None, surrogate_function=surrogate.Sigmoid()))
    loss = cross_entropy(net, precision)

    def fresh(images: Tensor, labels: Tensor) -> Tensor:
        functional.reset_net(net)  # one step a batch: no potential is carried over
        return loss(images, labels)

    return net, fresh


def snntorch(name: str, precision: str) -> tuple[nn.Module, Loss]:
    import snntorch as snn
    from snntorch import surrogate, utils

    net = as_peers_write_it(name, lambda: snn.Leaky(beta=0.0, spike_grad=surrogate.sigmoid(), init_hidden=True))
    loss = cross_entropy(net, precision)

    def fresh(images: Tensor, labels: Tensor) -> Tensor:
        utils.reset(net)
        return loss(images, labels)

    return net, fresh


PEERS = {"spikingjelly": spikingjelly, "snntorch": snntorch}


def contestants(name: str, precision: str, default_precision: str) -> dict[str, Step]:
    torch.manual_seed(0)
    last, first = torch.channels_last, torch.contiguous_format
    ours = pj.zoo.create(name)
    shape = ours.input_shape
    batch = same_batch(shape)
    steps = {"ours": stepper(ours, penalised(ours, precision, shape), batch, last)}
    for label, net in (("relu twin", pj.zoo.create(name, neuron=nn.ReLU)), ("convs and linears", alone(name))):
        steps[label] = stepper(net, cross_entropy(net, precision), batch, last)
    steps["ten batches"] = data(shape)
    for peer, build in PEERS.items():
        if importlib.util.find_spec(peer) is None:
            console.print(f"{peer} is not installed and not measured")
            continue
        net, loss = build(name, precision)
        steps[peer] = stepper(net, loss, batch, last)
        net, loss = build(name, "fp32")
        steps[f"{peer} as it comes"] = stepper(net, loss, same_batch(shape), first)
    if default_precision != precision and any(peer in steps for peer in PEERS):
        net = pj.zoo.create(name)
        steps["ours as it comes"] = stepper(net, penalised(net, default_precision, shape), batch, last)
    return steps


def fastest(times: Timings, names: list[str]) -> str | None:
    return min((name for name in names if name in times.seconds), key=times.median, default=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    native = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    parser.add_argument("--models", nargs="+", default=["cnn7", "vgg11"], choices=pj.zoo.names())
    parser.add_argument("--precisions", nargs="+", default=["fp32", *(["bf16"] * native)], choices=["fp32", "bf16"])
    parser.add_argument("--turns", type=int, default=15)
    options = parser.parse_args()
    default_precision = "bf16" if native else "fp32"
    console.print(f"{describe_machine()}; batch {BATCH}, forward, backward and Adam")
    if not native:
        console.print("no native bfloat16 here: what `picojoule train` takes by itself is fp32")
    for name in options.models:
        for precision in options.precisions:
            steps = contestants(name, precision, default_precision)
            times = interleaved(steps, options.turns, title=f"{name} {precision}")
            title = f"{name:9} {precision}"
            console.print(f"{title} (a) {times.line('ours', 'relu twin')}")
            console.print(f"{title} (b) {times.line('ours', 'convs and linears')}")
            if peer := fastest(times, list(PEERS)):
                console.print(f"{title} (c) {times.line('ours', peer)}")
            if peer := fastest(times, [f"{peer} as it comes" for peer in PEERS]):
                own = "ours as it comes" if "ours as it comes" in times.seconds else "ours"
                console.print(f"{title} (d) {times.line(own, peer)}")
            share = times.median("ten batches") / POOL / times.median("ours")
            console.print(f"{title} (e) data and augmentation take {share:.2%} of our step")


if __name__ == "__main__":
    main()
