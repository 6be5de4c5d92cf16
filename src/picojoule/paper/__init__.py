"""The paper's tables and figures as experiments, by name, at five scales.

`EXPERIMENTS` lists them, `run` makes one, `estimates` says how long each would take here and on a GPU. An experiment is
a frozen value (`context.Experiment`): the recipes of its runs, and the tables and figures that are made of them; what
the paper itself prints is data (`published`), which stands beside.
"""

from picojoule.paper.estimate import estimates, remark, table
from picojoule.paper.experiments import EXPERIMENTS, NamedExperiment, find, printed_scores
from picojoule.paper.run import Produced, run
from picojoule.paper.scales import SCALES, SIZES, Scale, Size, find_scale

__all__ = [
    "EXPERIMENTS",
    "SCALES",
    "SIZES",
    "NamedExperiment",
    "Produced",
    "Scale",
    "Size",
    "estimates",
    "find",
    "find_scale",
    "printed_scores",
    "remark",
    "run",
    "table",
]
