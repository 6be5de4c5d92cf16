"""The figures, as Altair charts: they take rows and return a chart, for the page and for PNG, SVG and PDF alike.

Each has one set of rows, so that a page can put others in their place.
"""

from picojoule.report.figures.axes import Width
from picojoule.report.figures.layer_charts import (
    energy_by_layer,
    layers,
    penalty_by_layer,
    rate_by_layer,
    share_by_layer,
)
from picojoule.report.figures.palette import BLUE, GREY, KIND_COLOURS, PALETTE, colours, looks
from picojoule.report.figures.tradeoff_chart import extent, tradeoff
from picojoule.report.figures.training_charts import TRAINING, training, training_curves

__all__ = [
    "BLUE",
    "GREY",
    "KIND_COLOURS",
    "PALETTE",
    "TRAINING",
    "Width",
    "colours",
    "energy_by_layer",
    "extent",
    "layers",
    "looks",
    "penalty_by_layer",
    "rate_by_layer",
    "share_by_layer",
    "tradeoff",
    "training",
    "training_curves",
]
