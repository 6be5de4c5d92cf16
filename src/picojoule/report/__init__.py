"""Reports on runs: tables, figures and pages made from their results.

`gather` reads a folder of runs, `run_groups` and `curves` make trade-off curves of them, `score_table` compares the
curves, `accuracy_table` and `difference_table` do so at equal energy, `figures` draws them, and `write` puts everything
into one page with its figures and tables beside it.
"""

from picojoule.report import figures, rows, shares
from picojoule.report.collection import Collection, Entry, gather, read_entry
from picojoule.report.comparison import Comparison
from picojoule.report.curve import Curve, Point, mean_table
from picojoule.report.equal_energy import accuracy_table, difference_table, differences, nearest_level
from picojoule.report.group import RunGroup, curves, run_groups
from picojoule.report.network_pictures import show_network
from picojoule.report.pictures import save
from picojoule.report.scores import score, score_table, seed_table
from picojoule.report.write import Report, write

__all__ = [
    "Collection",
    "Comparison",
    "Curve",
    "Entry",
    "Point",
    "Report",
    "RunGroup",
    "accuracy_table",
    "curves",
    "difference_table",
    "differences",
    "figures",
    "gather",
    "mean_table",
    "nearest_level",
    "read_entry",
    "rows",
    "run_groups",
    "save",
    "score",
    "score_table",
    "seed_table",
    "shares",
    "show_network",
    "write",
]
