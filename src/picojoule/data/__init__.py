"""Data sets: getting them, loading them whole, and making batches. `picojoule data` is a thin shell around this."""

from __future__ import annotations

from picojoule.data.augment import RandAugment
from picojoule.data.batches import Batches
from picojoule.data.cache import cache_root
from picojoule.data.datasets import DATASETS, find
from picojoule.data.fetch import Fetched, Listing, fetch, listing
from picojoule.data.loading import Data, Images, Normalization, load
from picojoule.data.progress import Progress

__all__ = [
    "DATASETS",
    "Batches",
    "Data",
    "Fetched",
    "Images",
    "Listing",
    "Normalization",
    "Progress",
    "RandAugment",
    "cache_root",
    "fetch",
    "find",
    "listing",
    "load",
]
