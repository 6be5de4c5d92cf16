"""Norse: a SequentialState of cells, trained on handwritten digits, without and with the spiking synaptic penalty.

pip install norse; python docs/examples/norse_digits.py

The lines that picojoule adds to the training script are marked. The network is called once a step. One of layers over
[T, B, …] (`norse.LIF`, `norse.Lift`) is traced and watched with `steps=STEPS`.
"""

from __future__ import annotations

import norse.torch as norse
import torch
import torch.nn.functional as F
from norse.torch.functional.lif_box import LIFBoxParameters
from torch import Tensor, nn

import picojoule as pj

STEPS, EPOCHS, BATCH = 6, 5, 64

digits = pj.data.load("digits")


def images(part: pj.data.Images) -> Tensor:
    """The original 8×8 pixels."""
    return digits.normalization(part.images.float() / 255)[:, :, ::4, ::4]


def network() -> nn.Module:
    torch.manual_seed(0)
    neuron = LIFBoxParameters(tau_mem_inv=torch.tensor(500.0), v_th=torch.tensor(0.5), alpha=torch.tensor(10.0))
    return norse.SequentialState(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        norse.LIFBoxCell(neuron),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        norse.LIFBoxCell(neuron),
        nn.Flatten(),
        nn.Linear(256, 10),
        norse.LICell(),
    )


def run(net: nn.Module, x: Tensor) -> Tensor:
    state, logits = None, []
    for _ in range(STEPS):  # the same image in every step
        out, state = net(x, state)
        logits.append(out)
    return torch.stack(logits).mean(0)


def train(strength: float) -> tuple[float, pj.EnergyReport]:
    net, x, labels = network(), images(digits.train), digits.train.labels
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    synapses = pj.trace(net, x[:1])  # picojoule
    penalty = pj.Penalty(synapses)  # picojoule
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            with pj.watch(net, steps=STEPS) as activity:  # picojoule
                logits = run(net, x[batch])
            loss = F.cross_entropy(logits, labels[batch]) + strength * penalty(activity)  # picojoule
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return test(net.eval(), synapses)


@torch.no_grad()
def test(net: nn.Module, synapses: pj.Synapses) -> tuple[float, pj.EnergyReport]:
    meter = pj.EnergyMeter(synapses)  # picojoule
    with pj.watch(net, steps=STEPS) as activity:  # picojoule
        logits = run(net, images(digits.test))
    meter.update(activity)  # picojoule
    return (logits.argmax(1) == digits.test.labels).float().mean().item(), meter.compute()


if __name__ == "__main__":
    for strength in (0.0, 2.0):
        accuracy, bill = train(strength)
        print(f"strength {strength}: {100 * accuracy:.1f} % right, {bill.joules * 1e9:.2f} nJ a sample")
    print(bill)
