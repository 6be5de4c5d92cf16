"""What `import picojoule` takes on top of `import torch`, in new processes that take turns."""

from __future__ import annotations

import subprocess
import sys
from functools import partial

from timing import console, describe_machine, interleaved


def main() -> None:
    def run(statement: str) -> None:
        subprocess.run([sys.executable, "-c", statement], check=True)

    statements = {"picojoule": "import torch, picojoule", "torch": "import torch", "python": "pass"}
    timings = interleaved({name: partial(run, text) for name, text in statements.items()}, turns=15, title="importing")
    console.print(describe_machine())
    console.print(timings.line("picojoule", "torch"))
    console.print(timings.line("torch", "python"))
    console.print(f"on top of torch: {timings.median('picojoule') - timings.median('torch'):.3f} s (at most 0.3 s)")


if __name__ == "__main__":
    main()
