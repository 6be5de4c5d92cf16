"""SpikingJelly: a multi-step network trained on handwritten digits, without and with the spiking synaptic penalty.

pip install spikingjelly; python docs/examples/spikingjelly_digits.py

The lines that picojoule adds to the training script are marked. That time comes first, [T, B, …], follows from the
neurons' `step_mode="m"`. In single-step mode (`step_mode="s"`) trace one step, watch with `steps=STEPS` and call the
network once a step inside the block.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from spikingjelly.activation_based import functional, layer, neuron, surrogate
from torch import Tensor, nn

import picojoule as pj

STEPS, EPOCHS, BATCH = 4, 5, 64

digits = pj.data.load("digits")


def images(part: pj.data.Images) -> Tensor:
    """The original 8×8 pixels."""
    return digits.normalization(part.images.float() / 255)[:, :, ::4, ::4]


def network() -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(
        layer.Conv2d(1, 8, 3, padding=1, bias=False),
        layer.BatchNorm2d(8),
        neuron.LIFNode(surrogate_function=surrogate.ATan()),
        layer.MaxPool2d(2),
        layer.Conv2d(8, 16, 3, padding=1, bias=False),
        layer.BatchNorm2d(16),
        neuron.LIFNode(surrogate_function=surrogate.ATan()),
        layer.Flatten(),
        layer.Linear(256, 10),
    )
    functional.set_step_mode(net, "m")
    return net


def over_time(x: Tensor) -> Tensor:
    return x.expand(STEPS, *x.shape)  # the same image in every step


def train(strength: float) -> tuple[float, pj.EnergyReport]:
    net, x, labels = network(), images(digits.train), digits.train.labels
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    synapses = pj.trace(net, over_time(x[:1]), steps=STEPS)  # picojoule
    penalty = pj.Penalty(synapses)  # picojoule
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            functional.reset_net(net)
            with pj.watch(net, steps=STEPS) as activity:  # picojoule
                logits = net(over_time(x[batch])).mean(0)
            loss = F.cross_entropy(logits, labels[batch]) + strength * penalty(activity)  # picojoule
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return test(net.eval(), synapses)


@torch.no_grad()
def test(net: nn.Module, synapses: pj.Synapses) -> tuple[float, pj.EnergyReport]:
    meter = pj.EnergyMeter(synapses)  # picojoule
    functional.reset_net(net)
    with pj.watch(net, steps=STEPS) as activity:  # picojoule
        logits = net(over_time(images(digits.test))).mean(0)
    meter.update(activity)  # picojoule
    return (logits.argmax(1) == digits.test.labels).float().mean().item(), meter.compute()


if __name__ == "__main__":
    for strength in (0.0, 2.0):
        accuracy, bill = train(strength)
        print(f"strength {strength}: {100 * accuracy:.1f} % right, {bill.joules * 1e9:.2f} nJ a sample")
    print(bill)
