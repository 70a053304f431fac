"""The tables of the page about histories: ``python -m tests.histories --write-docs`` writes them."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.histories.plants import PLANTS
from tests.histories.process import quiet
from tests.histories.search import Found, Search

PAGE = Path(__file__).parents[2] / "docs/explanation/histories.md"
#: A table of the page, between two comments.
_TABLE = "<!-- {0} -->\n{1}\n<!-- end of {0} -->"

Cells = tuple[object, ...]


def short(number: int) -> str:
    """Return *number* as text: large ones as powers of ten."""
    return f"{number:,}" if number < 10**6 else f"{number:.1e}".replace("e+", "e")


def by_fault(found: Found) -> list[Cells]:
    return [
        (kind or "none", f"{found.states[kind]:,}", short(found.histories[kind])) for kind in found.states
    ]


def planted() -> list[Cells]:
    """Find each planted bug. Return its name, its faults, the steps, the states and the seconds."""
    rows: list[Cells] = []
    for name, one in PLANTS.items():
        with quiet(), pytest.MonkeyPatch.context() as patch:
            one.plant(patch)
            began = time.process_time()
            found = Search(one.family, one.scene, one.kinds, whole=one.whole).run()
            seconds = time.process_time() - began
        assert found.wrong, name
        needs = ", ".join(one.kinds) or "none"
        states = f"{found.states.total():,}"
        rows.append((name.replace("_", " "), needs, len(found.history), states, f"{seconds:.2f}"))
    return rows


def write(name: str, head: Cells, rows: Iterable[Cells]) -> None:
    """Write the table *name* of the page anew."""
    lines = [head, ["---"] * len(head), *rows]
    table = "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
    pattern = re.escape(_TABLE.format(name, "...")).replace(re.escape("..."), ".*?")
    text = PAGE.read_text("utf-8")
    written, times = re.subn(pattern, lambda _: _TABLE.format(name, table), text, count=1, flags=re.DOTALL)
    assert times, name
    PAGE.write_text(written, "utf-8")


def rows_of(name: str) -> list[list[str]]:
    """Return the cells of the table *name* of the page."""
    text = PAGE.read_text("utf-8").partition(f"<!-- {name} -->")[2].partition("<!-- end")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
