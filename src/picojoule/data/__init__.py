"""Data sets: getting them, loading them whole, and making batches. `picojoule data` is a thin shell around this."""

from __future__ import annotations

from picojoule.data.augment import RandAugment
from picojoule.data.batches import Batches
from picojoule.data.cache import cache_root
from picojoule.data.datasets import DATASETS, find
from picojoule.data.fetch import Fetched, Listing, fetch, listing
from picojoule.data.given import Given
from picojoule.data.images import Data, Images, Normalization
from picojoule.data.loading import load
from picojoule.data.own import is_own, runs_code
from picojoule.data.progress import Progress

__all__ = [
    "DATASETS",
    "Batches",
    "Data",
    "Fetched",
    "Given",
    "Images",
    "Listing",
    "Normalization",
    "Progress",
    "RandAugment",
    "cache_root",
    "fetch",
    "find",
    "is_own",
    "listing",
    "load",
    "runs_code",
]
