"""sinabs: a network of Squeeze layers, trained on handwritten digits, without and with the spiking synaptic penalty.

pip install sinabs; python docs/examples/sinabs_digits.py

The lines that picojoule adds to the training script are marked. Time is folded into the batch, [B·T, …], as the type of
the neurons says; `IAF` and `LIF`, which take [B, T, …], say so too. They may fire several times in a step; each spike
counts.
"""

from __future__ import annotations

import sinabs
import sinabs.layers as sl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import picojoule as pj

STEPS, EPOCHS, BATCH = 6, 5, 64

digits = pj.data.load("digits")


def images(part: pj.data.Images) -> Tensor:
    """The original 8×8 pixels."""
    return digits.normalization(part.images.float() / 255)[:, :, ::4, ::4]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1, bias=False),
        nn.BatchNorm2d(8),
        sl.IAFSqueeze(num_timesteps=STEPS, min_v_mem=-1.0),
        sl.SumPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        sl.LIFSqueeze(tau_mem=10.0, num_timesteps=STEPS, min_v_mem=-1.0, norm_input=False),
        nn.Flatten(),
        nn.Linear(256, 10),
    )


def run(net: nn.Module, x: Tensor) -> Tensor:
    sinabs.reset_states(net)
    logits = net(x.repeat_interleave(STEPS, 0))  # the same image in every step
    return logits.unflatten(0, (-1, STEPS)).mean(1)


def train(strength: float) -> tuple[float, pj.EnergyReport]:
    net, x, labels = network(), images(digits.train), digits.train.labels
    optimizer = torch.optim.Adam(net.parameters(), lr=4e-3)
    synapses = pj.trace(net, x[:1].repeat_interleave(STEPS, 0), steps=STEPS)  # picojoule
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
