"""What runs say to people: tables, figures and pages made from their results.

`gather` reads a folder of runs, `settings` and `curves` make trade-off curves of them, `score_table` compares the
curves, `figures` draws, and `write` puts everything into one page with its figures and tables beside it.
"""

from picojoule.report import figures, rows, shares
from picojoule.report.collection import Collection, Entry, gather
from picojoule.report.comparison import Comparison
from picojoule.report.curve import Curve, Point, Setting, curves, mean_table, settings
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
    "Setting",
    "curves",
    "figures",
    "gather",
    "mean_table",
    "rows",
    "save",
    "score",
    "score_table",
    "seed_table",
    "settings",
    "shares",
    "write",
]
