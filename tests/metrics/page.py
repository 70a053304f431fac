"""What the page of metrics has its reader write."""

from __future__ import annotations

from pathlib import Path

from tests.web.quickstart import code_blocks

PAGE = Path(__file__).resolve().parents[2] / "docs/how-to/metrics.md"


def block(what: str) -> str:
    """The block of the page that has *what* in it."""
    (found,) = (one for one in code_blocks(PAGE.read_text("utf-8"), "python") if what in one)
    return found
