"""The formats of export as destinations of the graph front end: the words in which they refuse a network."""

from __future__ import annotations

from picojoule.deploy.graph.refusal import Destination

NIR = Destination(
    "the NIR export",
    "cannot express",
    otherwise=", or export to ONNX",
    remedy="build it from Conv1d, Conv2d, Linear, batch norm, average pools, sums and picojoule.Spike",
)
ONNX = Destination("the ONNX export", "cannot express")
