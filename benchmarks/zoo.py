"""SpikingJelly's own networks through trace, watch, EnergyMeter and Penalty, unchanged: what is counted in each.

python benchmarks/zoo.py [NAME…] [--out results/zoo.md]

Runs in the environment that has SpikingJelly (`make peers` makes it). The networks have the small sizes that the tests
use (`tests/helpers/spikingjelly_zoo.py`). A network whose bill and penalty differ, or that is refused, ends the script
with status 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch

import picojoule as pj

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from helpers.spikingjelly_zoo import Entry, counted, zoo

COLUMNS = (
    "network", "spiking layers", "neurons", "synapses", "relays", "products", "pairs at most", "analog MACs",
    "unit synapses", "trace [s]",
)  # fmt: skip
HEAD = """# SpikingJelly's own networks

Every network of SpikingJelly {version} (`activation_based.model`), unchanged and at small sizes, through `trace`,
`watch`, `EnergyMeter` and `Penalty`. "Synapses" is Ω(1): what one step costs if everything fires once, with pairs of
spikes in products and unit synapses. Analog MACs are per sample and forward pass (all time steps), outside Ω. In each
of them the bill and the penalty of random images are the same number.

"""
TAIL = """
`spike_dhs found` is the network that its search has found: without the second and third copies of its layers and the
head that only trains, whose neurons are never called, which `trace` refuses.

Made by `python benchmarks/zoo.py --out results/zoo.md` ({machine}).
"""


def row(name: str, entry: Entry) -> list[str]:
    torch.manual_seed(0)
    net = entry.build().eval()
    start = time.perf_counter()
    synapses = pj.trace(net, torch.zeros(entry.batch(1)), **entry.layout)
    seconds = time.perf_counter() - start
    counted(net, entry, synapses)
    relays = sum(layer.relay and not layer.product for layer in synapses.values())
    pairs = sum(layer.synapses for layer in synapses.products)
    numbers = (
        len(synapses.spiking), synapses.neurons, synapses.synapses, relays, len(synapses.products), pairs,
        synapses.analog_macs, synapses.unit_synapses,
    )  # fmt: skip
    return [name, *(f"{number:,}" for number in numbers), f"{seconds:.1f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" + "---:|" * (len(COLUMNS) - 1)]
    failed = []
    for name, entry in zoo().items():
        if options.names and name not in options.names:
            continue
        try:
            lines.append("| " + " | ".join(row(name, entry)) + " |")
        except (pj.PicojouleError, AssertionError) as error:
            failed.append(name)
            lines.append(f"| {name} | {error} |")
        print(lines[-1], flush=True)
    if options.out is not None:
        machine = f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads"
        text = HEAD.format(version=version("spikingjelly")) + "\n".join(lines) + "\n" + TAIL.format(machine=machine)
        options.out.write_text(text, encoding="utf-8")
    if failed:
        sys.exit(f"not counted: {', '.join(failed)}")


if __name__ == "__main__":
    main()
