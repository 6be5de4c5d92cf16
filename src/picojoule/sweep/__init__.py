"""Many runs at once: a recipe and its axes, on the cores of this machine or on a Ray cluster."""

from picojoule.sweep.axes import load, loads
from picojoule.sweep.board import Board
from picojoule.sweep.jobs import Job, Watcher
from picojoule.sweep.outcome import Failure, Outcome
from picojoule.sweep.sweeping import Where, run

__all__ = ["Board", "Failure", "Job", "Outcome", "Watcher", "Where", "load", "loads", "run"]
