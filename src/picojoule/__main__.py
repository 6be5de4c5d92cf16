"""The command `picojoule`, also as `python -m picojoule`."""

from __future__ import annotations

import sys
from typing import NoReturn

from picojoule.errors import PicojouleError
from picojoule.io.extras import explained


def main() -> NoReturn:
    """Run the command line, or say in one sentence which packages it lacks."""
    try:
        from picojoule.cli import main as run
    except ModuleNotFoundError as fault:
        told = explained(fault, "the command picojoule")
        if not isinstance(told, PicojouleError):
            raise
        print(f"picojoule: {told}", file=sys.stderr)
        sys.exit(2)
    run()


if __name__ == "__main__":
    main()
