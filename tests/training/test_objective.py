"""Training against a plain PyTorch loop that knows nothing of picojoule but neurons and batches."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import picojoule as pj
import tiny


def omega(spikes: list[Tensor], kind: str, p: float, normalized: bool) -> Tensor:
    ones = [torch.ones(4, 7, 7), torch.ones(8, 3, 3)]
    weights = {
        "syn": [tiny.fan_out_of_first_layer(), 10 * ones[1]],
        "total": ones,
        "balance": [ones[0] / 196, ones[1] / 72],
    }[kind]
    total = sum(((w * s**p).sum() / (p * len(s)) for w, s in zip(weights, spikes, strict=True)), torch.zeros(()))
    return total / (sum(w.sum() for w in weights) / p) if normalized else total


def train_by_hand(recipe: pj.Recipe) -> tuple[nn.Module, list[float]]:
    """The paper's objective with nothing of picojoule but neurons and batches; the mean cross-entropy of each epoch."""
    torch.manual_seed(recipe.seed)
    factory = getattr(tiny, recipe.model.name.partition(":")[2])
    model = factory(10, 1, pj.Spike).to(memory_format=torch.channels_last)
    data = pj.data.load("digits", limit=recipe.data.limit)
    batches = pj.data.Batches(data.train, recipe.training.batch_size, data.normalization, seed=recipe.seed)
    settings = recipe.optimizer
    build = {"adam": torch.optim.Adam, "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9)}[settings.name]
    optimizer = build(model.parameters(), lr=settings.lr)
    epochs, losses = recipe.training.epochs, []
    for epoch in range(epochs):
        strength = recipe.penalty.strength * ((epoch + 1) / epochs if recipe.penalty.schedule == "linear" else 1)
        seen = []
        for number, (images, labels) in enumerate(batches.epoch(epoch)):
            done = epoch + (number / len(batches) if settings.anneal == "batches" else 0)
            optimizer.param_groups[0]["lr"] = settings.lr * (1 + math.cos(math.pi * done / epochs)) / 2
            x, spikes = images.to(memory_format=torch.channels_last), []
            for layer in model:
                x = layer(x)
                if isinstance(layer, pj.Spike):
                    spikes.append(x)
            entropy = -x.log_softmax(1)[torch.arange(len(x)), labels].mean()
            penalty = omega(spikes, recipe.penalty.kind, recipe.penalty.p, recipe.penalty.normalized)
            decay = torch.zeros(())
            for name, parameter in model.named_parameters():
                if settings.decay_batch_norm or not name.startswith("norm"):
                    decay = decay + settings.weight_decay / 2 * parameter.square().sum()
            optimizer.zero_grad()
            (entropy + strength * penalty + decay).backward()
            optimizer.step()
            seen.append(entropy.item())
        losses.append(sum(seen) / len(seen))
    return model, losses


@pytest.mark.parametrize(
    "overrides",
    [
        ("model.name=tiny:plain",),
        ("model.name=tiny:plain", "penalty.strength=0"),
        ("model.name=tiny:plain", "penalty.schedule=constant", "penalty.kind=total", "penalty.p=2"),
        ("model.name=tiny:plain", "penalty.kind=balance", "penalty.p=1.5", "optimizer.name=sgd"),
        ("model.name=tiny:plain", "optimizer.anneal=batches"),
        ("model.name=tiny:plain", "penalty.normalized=false", "penalty.strength=1e-4", "seed=7"),
        ("model.name=tiny:normed", "optimizer.weight_decay=0.05"),
        ("model.name=tiny:normed", "optimizer.weight_decay=0.05", "optimizer.decay_batch_norm=true"),
        ("model.name=tiny:normed", "optimizer.weight_decay=0.05", "optimizer.name=sgd"),
        (
            "model.name=tiny:normed",
            "optimizer.weight_decay=0.01",
            "optimizer.name=sgd",
            "optimizer.decay_batch_norm=true",
        ),
    ],
    ids=" ".join,
)
def test_training_is_the_plain_loop(tmp_path: Path, overrides: tuple[str, ...]) -> None:
    recipe = tiny.recipe(*overrides)
    run = pj.fit(recipe, tmp_path)
    model, losses = train_by_hand(recipe)
    assert [entry.train_loss for entry in run.metrics] == pytest.approx(losses, abs=1e-5)
    for name, expected in model.state_dict().items():
        torch.testing.assert_close(run.weights[name], expected, rtol=1e-5, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    torch.manual_seed(recipe.seed)
    fresh = getattr(tiny, recipe.model.name.partition(":")[2])(10, 1, pj.Spike)
    assert not torch.equal(fresh.out.weight, run.weights["out.weight"])


def test_the_learning_rate_is_a_cosine_of_the_epoch(tmp_path: Path) -> None:
    run = pj.fit(tiny.recipe("training.epochs=4", "optimizer.lr=0.02"), tmp_path)
    half = 0.02 * math.sqrt(0.5) / 2
    assert [entry.lr for entry in run.metrics] == pytest.approx([0.02, 0.01 + half, 0.01, 0.01 - half])
