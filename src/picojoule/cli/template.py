"""The command that begins a project of one's own: a commented recipe, a network and data, which train at once."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from picojoule.cli.streams import note, show_path
from picojoule.errors import PicojouleError
from picojoule.io.files import make_folder, write_atomically

RECIPE = """\
# A run as one file. Train it with `picojoule train recipe.toml` in this folder; the same command resumes it.
# Any key can be changed on the command line: `picojoule train recipe.toml training.epochs=20 seed=1`.

seed = 0

[model]
name = "network:Network"      # the class in network.py; a network of picojoule's own: "cnn7", "vgg11", "resnet18"

[model.args]
width = 16                    # what the class is given beside classes, in_channels, input_shape, neuron and steps

[data]
name = "pictures:load"        # the function in pictures.py; or "folder:PATH" (pictures by class), "FILE.npz" (arrays)
augment = false

[neuron]
kind = "spike"                # one step; "if" and "lif" integrate over `steps` of them

[optimizer]
name = "adam"
lr = 5e-3

[penalty]
kind = "syn"                  # charges every synapse that a spike reaches: the energy itself
strength = 0                  # 0 is the baseline. In place of a strength, ask for an energy: `--budget 30%` or `2uJ`

[energy]
hardware = "horowitz-45nm-fp32"

[training]
epochs = 10
batch_size = 50
threads = 2
"""

NETWORK = '''\
"""A spiking network of your own. `picojoule train recipe.toml` builds it; `model.name` in the recipe names it."""

from torch import nn


class Network(nn.Sequential):
    def __init__(self, classes, in_channels, input_shape, neuron, width=16):
        side = input_shape[1]
        super().__init__(
            nn.Conv2d(in_channels, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            neuron(),  # a new neuron for each layer, as [neuron] in the recipe describes it
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            neuron(),
            nn.Flatten(),
            nn.Linear(2 * width * (side // 2) ** 2, classes),
        )
'''

DATA = '''\
"""Data of your own. `data.name` in the recipe names the function, which returns (train, validation, test).

Each part is None (then it is split off the training part, always the same), a pair (samples, labels) of tensors or
arrays, or a map-style data set of torch.utils.data. uint8 is a pixel; all else is taken as it is.
"""

import numpy as np
from sklearn.datasets import load_digits


def load():
    digits = load_digits()
    images = (digits.images * 255 / 16).astype(np.uint8)[:, None]  # [N, C, H, W]
    return (images, digits.target), None, None
'''

FILES = {"recipe.toml": RECIPE, "network.py": NETWORK, "pictures.py": DATA}


def begin_project(
    folder: Annotated[Path, typer.Argument(help="A new folder, or one without these files.")],
) -> None:
    """Write a commented recipe, a network and data of your own into a folder, which train at once.

    Example: `picojoule init myproject`
    """
    there = [name for name in FILES if (folder / name).exists()]
    if there:
        raise PicojouleError(f"{folder / there[0]} is there already: name another folder, or move it away")
    make_folder(folder)
    for name, text in FILES.items():
        write_atomically(folder / name, text.encode())
        show_path(folder / name)
    note(f"cd {shlex.quote(str(folder))} && picojoule train recipe.toml")
