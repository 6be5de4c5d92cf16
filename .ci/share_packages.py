"""Lets this environment see the packages of another one and a folder of sources; its own packages come first.

python share_packages.py PYTHON_OF_THE_OTHER SOURCES
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

other, sources = sys.argv[1:]
code = "import sysconfig; print(sysconfig.get_path('purelib'))"
packages = subprocess.run([other, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
Path(sysconfig.get_path("purelib"), "shared.pth").write_text(
    f"{Path(sources).resolve()}\n{packages}\n", encoding="utf-8"
)
