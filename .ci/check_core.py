"""Run where only the core is installed: the four core verbs work, and whatever needs more says so in one sentence."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import torch
from torch import nn

import picojoule as pj
from picojoule.io.extras import EXTRA_OF

OF_PYTORCH = ("filelock",)  # which PyTorch needs too
there = [package for package in EXTRA_OF if package not in OF_PYTORCH and importlib.util.find_spec(package)]
if there:
    sys.exit(f"this environment has more than the core: {', '.join(there)}")

net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), pj.Spike(), nn.Linear(6, 3), pj.LIF(steps=1), nn.Linear(3, 2))
synapses = pj.trace(net, torch.zeros(1, 4))
with pj.watch(net) as activity:
    out = net(torch.randn(8, 4) * 4)
(out.sum() + pj.Penalty(synapses)(activity)).backward()
meter = pj.EnergyMeter(synapses)
meter.update(activity)
print(synapses, meter.compute(), sep="\n")
if not pj.trace(pj.zoo.create("cnn7"), torch.zeros(1, 1, 32, 32))["spike1"].fan_out.sum():
    sys.exit("CNN7 has no synapses here")

wrong = []
for name in pj.__all__:
    try:
        getattr(pj, name)
    except pj.PicojouleError as error:
        if "pip install 'picojoule[" not in str(error) or "\n" in str(error):
            wrong.append(f"picojoule.{name}: {error}")
command = Path(sys.executable).with_name("picojoule")
for arguments in (["--help"], ["train", "recipe.toml"], ["report", "runs"]):
    ended = subprocess.run([command, *arguments], capture_output=True, text=True, check=False)
    told = (
        "picojoule: the command picojoule needs the package typer: install it with `pip install 'picojoule[train]'`\n"
    )
    if (ended.returncode, ended.stdout, ended.stderr) != (2, "", told):
        wrong.append(f"picojoule {' '.join(arguments)}: {ended}")
if wrong:
    sys.exit("\n".join(wrong))
