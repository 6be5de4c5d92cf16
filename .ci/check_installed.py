"""Run in a clean environment: the picojoule imported there is the installed wheel, whole and of its own version."""

from __future__ import annotations

import sys
from importlib.metadata import version
from pathlib import Path

import picojoule
from picojoule.paper.settings import settings

home = Path(picojoule.__file__).parent
if not home.is_relative_to(sys.prefix):
    sys.exit(f"picojoule comes from {home}, not from this environment")
if len(settings()) != 8:
    sys.exit("the wheel lacks recipes of the paper")
for part in ("py.typed", *(f"report/assets/{name}" for name in ("page.css", "page.js", "report.js", "report.html"))):
    if not (home / part).is_file():
        sys.exit(f"the wheel lacks {part}")
if version("picojoule") != picojoule.__version__:
    sys.exit(f"the wheel says {version('picojoule')}, the package {picojoule.__version__}")
