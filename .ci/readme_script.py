"""Prints the Python examples of a Markdown file as one script, to run where no test tools are installed."""

from __future__ import annotations

import sys

from sybil.document import Document
from sybil.parsers.markdown import CodeBlockParser


def script(path: str) -> str:
    blocks = [
        example.parsed for example in Document.parse(path, CodeBlockParser("python", lambda example: None)).examples()
    ]
    if not blocks:
        raise SystemExit(f"{path} has no python example to check")
    if any(block.startswith(">>>") for block in blocks):
        raise SystemExit(f"{path} has an example in prompt form, which cannot run as a script: write it without >>>")
    return "\n".join(blocks)


if __name__ == "__main__":
    print(script(sys.argv[1]))
