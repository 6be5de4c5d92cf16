"""The user's cache folder, where what can be fetched or measured again may stay."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Return picojoule's own folder in the platform's cache folder (`$XDG_CACHE_HOME`, `~/.cache`).

    Returns:
        The folder, which need not be there.

    Raises:
        RuntimeError: If the user has no home folder.

    >>> cache_folder().name
    'picojoule'
    """
    return _platform_cache() / "picojoule"


def _platform_cache() -> Path:
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path.home() / ".cache"
