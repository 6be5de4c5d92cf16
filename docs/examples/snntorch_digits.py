"""snnTorch: a network with explicit states, trained on handwritten digits, without and with the synaptic penalty.

pip install snntorch; python docs/examples/snntorch_digits.py

The lines that picojoule adds to the training script are marked. The network loops over time inside its forward pass.
One with `init_hidden=True` that is called once a step is traced with one step and watched with `steps=STEPS`.
"""

from __future__ import annotations

import snntorch as snn
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj

STEPS, EPOCHS, BATCH = 5, 5, 64

digits = pj.data.load("digits")


def images(part: pj.data.Images) -> Tensor:
    """The original 8×8 pixels."""
    return digits.normalization(part.images.float() / 255)[:, :, ::4, ::4]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv1, self.norm1 = nn.Conv2d(1, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.lif1, self.pool = snn.Leaky(beta=0.9), nn.MaxPool2d(2)
        self.conv2, self.norm2 = nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16)
        self.lif2 = snn.Synaptic(alpha=0.5, beta=0.9)
        self.out = nn.Linear(256, 10)

    def forward(self, x: Tensor) -> Tensor:
        mem1 = self.lif1.reset_mem()
        syn2, mem2 = self.lif2.reset_mem()
        logits = []
        for _ in range(STEPS):  # the same image in every step
            spk1, mem1 = self.lif1(self.norm1(self.conv1(x)), mem1)
            spk2, syn2, mem2 = self.lif2(self.norm2(self.conv2(self.pool(spk1))), syn2, mem2)
            logits.append(self.out(spk2.flatten(1)))
        return torch.stack(logits).mean(0)


def train(strength: float) -> tuple[float, pj.EnergyReport]:
    net, x, labels = Net(), images(digits.train), digits.train.labels
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    synapses = pj.trace(net, x[:1], steps=STEPS)  # picojoule
    penalty = pj.Penalty(synapses)  # picojoule
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            with pj.watch(net, steps=STEPS) as activity:  # picojoule
                logits = net(x[batch])
            loss = F.cross_entropy(logits, labels[batch]) + strength * penalty(activity)  # picojoule
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return test(net.eval(), synapses)


@torch.no_grad()
def test(net: nn.Module, synapses: pj.Synapses) -> tuple[float, pj.EnergyReport]:
    meter = pj.EnergyMeter(synapses)  # picojoule
    with pj.watch(net, steps=STEPS) as activity:  # picojoule
        logits = net(images(digits.test))
    meter.update(activity)  # picojoule
    return (logits.argmax(1) == digits.test.labels).float().mean().item(), meter.compute()


if __name__ == "__main__":
    for strength in (0.0, 2.0):
        accuracy, bill = train(strength)
        print(f"strength {strength}: {100 * accuracy:.1f} % right, {bill.joules * 1e9:.2f} nJ a sample")
    print(bill)
