"""The tables of docs/reference/arrangements.md say what the matrix shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fence.instance import POINTS
from tests.transactions.arrangement import OVERSELLS, SELLS, Arrangement
from tests.transactions.cells import TABLES
from tests.transactions.till import REQUESTS, STOCK, THREADS

PAGE = (Path(__file__).parents[2] / "docs/reference/arrangements.md").read_text("utf-8")
WORDS = {SELLS: "right", OVERSELLS: "oversells", None: "not run"}


def row(arrangement: Arrangement) -> str:
    shown = [arrangement.plain, arrangement.lock, arrangement.fence, arrangement.expected("batch")]
    return f"| {arrangement.title} | {' | '.join(WORDS.get(one, 'refused') for one in shown)} |"


@pytest.mark.parametrize("framework", TABLES)
def test_each_arrangement_has_its_row(framework: str) -> None:
    section = PAGE.split(f"\n## {framework.title()}\n")[1].split("\n## ")[0]
    table = section.split("\n|---|---|---|---|---|\n")[1].split("\n\n")[0]
    assert table.splitlines() == [row(arrangement) for arrangement in TABLES[framework].values()]


def test_the_numbers_of_the_page_are_those_of_the_runs() -> None:
    assert (STOCK, REQUESTS, THREADS) == (10, 16, 8)
    assert "eight threads send two requests each" in PAGE
    assert "*Right* means 10 sold, 6 told that there are no more" in PAGE


def test_a_holder_stalls_at_as_many_points_as_the_page_has() -> None:
    section = PAGE.split("\n## A holder that stalls\n")[1].split("\n## ")[0]
    assert len(section.split("\n|---|---|---|\n")[1].split("\n\n")[0].splitlines()) == len(POINTS)
