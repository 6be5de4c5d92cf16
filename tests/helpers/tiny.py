"""Networks so small that a whole run takes a second, as `model.name = "tiny:net"`, and recipes for them on digits."""

from __future__ import annotations

import json
import os
import signal
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import picojoule as pj
from picojoule.neurons.time_steps import present, readout
from picojoule.runs.metrics import EpochMetrics

Neuron = Callable[[], nn.Module]

RECIPE = """
model.name = "tiny:net"
data.name = "digits"
data.limit = 200
optimizer.lr = 0.01
penalty.strength = 0.5
training.epochs = 3
training.batch_size = 40
training.precision = "32"
training.threads = 1
"""
BATCHES = 5
"""An epoch of the recipe."""


def recipe(*overrides: str) -> pj.Recipe:
    return pj.Recipe.loads(RECIPE, *overrides)


def figures(accuracy: float = 0.5, joules: float = 1e-8) -> dict[str, Any]:
    """A split in `result.json`."""
    head = {"split": "test", "samples": 100, "accuracy": accuracy, "loss": 1.5}
    bill = {"joules": joules, "synops": joules / 0.9e-12, "encoder_macs": 0.0, "encoder_joules": 0.0}
    rates = {"ann_joules": None, "rate_mean": 0.1, "rate_sum": 0.1, "dead_rate": 0.01}
    return {**head, **bill, **rates, "steps": 1, "psi": "exact", "hardware": "horowitz-45nm-fp32", "layers": []}


def epoch(number: int = 0) -> dict[str, Any]:
    """A line of `metrics.jsonl`."""
    losses = {"train_loss": 1.5, "train_accuracy": 0.5, "train_penalty": 0.1}
    validation = {"validation_loss": 1.5, "validation_accuracy": 0.5}
    bill = {"joules": 1e-8, "rate_mean": 0.1, "dead_rate": 0.01, "layers": []}
    return {"epoch": number, **losses, **validation, **bill, "lr": 0.01, "seconds": 1.0}


class Classifier(nn.Sequential):
    input_shape = (1, 32, 32)

    def __init__(self, **layers: nn.Module) -> None:
        super().__init__(OrderedDict(layers))


def net(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Everything that has a state: weights, batch norm, dropout."""
    return Classifier(
        conv1=nn.Conv2d(in_channels, 4, 5, 4),
        norm1=nn.BatchNorm2d(4),
        spike1=neuron(),
        drop1=nn.Dropout(0.2),
        conv2=nn.Conv2d(4, 8, 3, 2),
        norm2=nn.BatchNorm2d(8),
        spike2=neuron(),
        flat=nn.Flatten(),
        out=nn.Linear(72, classes),
    )


def fan_out_of_first_layer() -> Tensor:
    """Of `net`: ψ of 4×7×7 neurons before a 3×3 convolution of stride 2 to 8 channels, one synapse at a time."""
    psi = torch.zeros(4, 7, 7)
    for y in range(3):
        for x in range(3):
            for dy in range(3):
                for dx in range(3):
                    psi[:, 2 * y + dy, 2 * x + dx] += 8
    return psi


def fragile(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Three layers without norms, which a penalty silences for good."""
    return Classifier(
        flat=nn.Flatten(),
        first=nn.Linear(in_channels * 1024, 64),
        spike1=neuron(),
        second=nn.Linear(64, 64),
        spike2=neuron(),
        third=nn.Linear(64, 64),
        spike3=neuron(),
        out=nn.Linear(64, classes),
    )


def normed(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Batch norm and no dropout."""
    layers = net(classes, in_channels, neuron).named_children()
    return Classifier(**{name: layer for name, layer in layers if name != "drop1"})


def cumulative(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Batch norm whose averages are those of all batches so far."""
    model = net(classes, in_channels, neuron)
    for norm in (model.norm1, model.norm2):
        assert isinstance(norm, nn.BatchNorm2d)
        norm.momentum = None
    return model


def untracked(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Batch norm without running averages."""
    layers = dict(net(classes, in_channels, neuron).named_children())
    norms = {name: nn.BatchNorm2d(width, track_running_stats=False) for name, width in (("norm1", 4), ("norm2", 8))}
    return Classifier(**{name: norms.get(name, layer) for name, layer in layers.items()})


def without_maps(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Batch norm that has no statistics of a single image."""
    return Classifier(
        flat=nn.Flatten(),
        inner=nn.Linear(in_channels * 1024, 20),
        norm=nn.BatchNorm1d(20),
        spike=neuron(),
        out=nn.Linear(20, classes),
    )


def plain(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Neither batch norm nor dropout: nothing in it depends on how a batch is shared out."""
    layers = net(classes, in_channels, neuron).named_children()
    model = Classifier(**{name: layer for name, layer in layers if name not in ("norm1", "drop1", "norm2")})
    for name, parameter in model.named_parameters():
        if name.endswith("weight"):
            nn.init.kaiming_normal_(parameter)
    return model


def pooled(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """With a relay."""
    return Classifier(
        conv1=nn.Conv2d(in_channels, 4, 5, 4),
        norm1=nn.BatchNorm2d(4),
        spike1=neuron(),
        pool1=nn.MaxPool2d(2),
        conv2=nn.Conv2d(4, 8, 3),
        norm2=nn.BatchNorm2d(8),
        spike2=neuron(),
        flat=nn.Flatten(),
        out=nn.Linear(8, classes),
    )


def weight_normed(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Weights of the old style, which a hook computes before every pass."""
    model = net(classes, in_channels, neuron)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for layer in (model.conv1, model.conv2, model.out):
            nn.utils.weight_norm(layer)
    return model


class OverTime(Classifier):
    steps = 1

    def forward(self, x: Tensor) -> Tensor:
        return readout(super().forward(present(x, self.steps)), self.steps)


def over_time(classes: int, in_channels: int, neuron: Neuron, steps: int) -> OverTime:
    """`net` for neurons that run over time steps."""
    model = OverTime(**dict(net(classes, in_channels, neuron).named_children()))
    model.steps = steps
    return model


class BreaksDown(nn.Module):
    """Turns its input into NaN from the second training epoch on: the seventh batch is the first that it spoils."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))
        self.seen: Tensor

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        self.seen += 1
        return x * torch.nan if self.seen > BATCHES + 1 else x


def breaks_down(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    model = net(classes, in_channels, neuron)
    return Classifier(**dict(model.named_children()), end=BreaksDown())


def confesses(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Does nothing but say under what circumstances it was asked to."""
    raise RuntimeError(f"{torch.get_num_threads()} threads, GPU {os.environ.get('CUDA_VISIBLE_DEVICES', 'any')}")


def vanishes(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Takes the process with it."""
    os._exit(7)


def exits(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    raise SystemExit("enough")


class Insatiable(Classifier):
    def forward(self, input: Tensor) -> Tensor:
        return torch.empty(1 << 60, dtype=torch.uint8) if self.training else super().forward(input)


def insatiable(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Wants more memory than there is, in training."""
    return Insatiable(**dict(net(classes, in_channels, neuron).named_children()))


def marked(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """Prints, as a user's model may, and leaves the number of its process in the folder TINY_MARKS."""
    print("built")
    os.write(1, b"built\n")
    (Path(os.environ["TINY_MARKS"]) / str(os.getpid())).touch()
    return net(classes, in_channels, neuron)


class Waits(nn.Module):
    """Takes its time in training as long as the file TINY_PAUSE is there: whoever watches is never too late."""

    def forward(self, x: Tensor) -> Tensor:
        if self.training and Path(os.environ["TINY_PAUSE"]).exists():
            time.sleep(0.2)
        return x


def paused(classes: int, in_channels: int, neuron: Neuron) -> Classifier:
    """`net`, which trains slowly or fast as it is told, and `marked`."""
    return Classifier(**dict(marked(classes, in_channels, neuron).named_children()), end=Waits())


class Speaks(Classifier):
    def forward(self, x: Tensor) -> Tensor:
        print("forward")
        return super().forward(x)


def speaks(classes: int, in_channels: int, neuron: Neuron) -> Speaks:
    """Prints in every forward pass."""
    return Speaks(**dict(net(classes, in_channels, neuron).named_children()))


# --- Runs ------------------------------------------------------------------------------------------------------------


class Watcher:
    """A reporter that remembers, and does something after a given number of batches or epochs."""

    def __init__(
        self,
        after_batch: dict[int, Callable[[], None]] | None = None,
        after_epoch: dict[int, Callable[[], None]] | None = None,
    ) -> None:
        self.said: list[str] = []
        self.began: list[tuple[int, int]] = []
        self.batches = 0
        self.epochs: list[EpochMetrics] = []
        self.ended = 0
        self._after_batch, self._after_epoch = after_batch or {}, after_epoch or {}

    def begin(self, run: pj.Run, recipe: pj.Recipe, batches: int, epoch: int, batch: int) -> None:
        self.began.append((epoch, batch))

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        self.batches += 1
        self._after_batch.get(self.batches, lambda: None)()

    def epoch(self, metrics: EpochMetrics) -> None:
        self.epochs.append(metrics)
        self._after_epoch.get(len(self.epochs), lambda: None)()

    def say(self, text: str) -> None:
        self.said.append(text)

    def end(self) -> None:
        self.ended += 1


def signal_to_self(number: signal.Signals) -> Callable[[], None]:
    return lambda: os.kill(os.getpid(), number)


def traces(run: pj.Run) -> dict[str, Any]:
    """All that a run leaves, but for the time it took."""
    metrics = [
        {key: value for key, value in entry.to_dict().items() if key not in ("seconds", "peak_bytes")}
        for entry in run.metrics
    ]
    files = {path.name for path in run.path.iterdir()} - {".lock"}
    return {
        "files": files,
        "metrics": json.dumps(metrics),
        "result": (run.path / "result.json").read_bytes(),
        "weights": (run.path / "weights.safetensors").read_bytes(),
    }


class SignalsParent(Watcher):
    """Asks the process that started this one to stop, as a user would."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self._batch = batch

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        super().step(epoch, batch, loss, accuracy)
        if self.batches == self._batch:
            os.kill(os.getppid(), signal.SIGTERM)


class _Slow(Watcher):
    """Pauses after each batch, keeps count of them in a file, and never comes to the end of the last epoch."""

    def __init__(self, count: Path, seconds: float, epochs: int) -> None:
        super().__init__()
        self._count, self._seconds, self._epochs = count, seconds, epochs

    def step(self, epoch: int, batch: int, loss: float, accuracy: float) -> None:
        super().step(epoch, batch, loss, accuracy)
        self._count.write_text(str(self.batches))
        time.sleep(self._seconds)
        while (epoch, batch) >= (self._epochs - 1, BATCHES):
            time.sleep(1)


def train_slowly(text: str, into: str, count: str, seconds: float) -> None:
    """For a process of its own, which has to be killed."""
    torch.set_num_threads(1)
    recipe = pj.Recipe.loads(text)
    pj.fit(recipe, into, reporters=[_Slow(Path(count), seconds, recipe.training.epochs)])
