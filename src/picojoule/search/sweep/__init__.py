"""Many runs at once: a recipe and its axes, on the cores of this machine or on a Ray cluster."""

from picojoule.search.sweep.axes import load, loads
from picojoule.search.sweep.board import Board
from picojoule.search.sweep.jobs import Job, Watcher
from picojoule.search.sweep.outcome import Failure, Outcome
from picojoule.search.sweep.sweep import Where, run

__all__ = ["Board", "Failure", "Job", "Outcome", "Watcher", "Where", "load", "loads", "run"]
