"""The museum's page shows the exhibits as they are, and the damage as it is counted."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from demo_shop.museum.exhibits import EXHIBITS
from loadtest.museum.scenes import TRIALS
from tests.test_docs import DOCS, ROOT, headings, snippets, stands_in

PAGE = DOCS / "explanation/museum.md"
CODE = ROOT / "demo_shop" / "museum"


def test_each_exhibit_has_its_chapter_and_no_other_has() -> None:
    assert headings(PAGE) == [*EXHIBITS, "What no lock can do", "In the shop"]


def test_the_code_on_the_page_is_that_of_the_exhibits() -> None:
    sources = dict(pair for file in CODE.glob("*.py") for pair in classes_of(file))
    for exhibit, snippet in zip(EXHIBITS, snippets(PAGE), strict=True):
        name = exhibit.title().replace("-", "").replace("Zookeeper", "ZooKeeper")
        assert stands_in(snippet, sources[name]), exhibit


def classes_of(file: Path) -> Iterator[tuple[str, str]]:
    """Each class of a module, and its source."""
    text = file.read_text("utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            yield node.name, "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])


def test_the_table_on_the_page_is_that_of_the_runs() -> None:
    rows = re.findall(
        r"^\| `([^`]+)` \| (.+) \| (.+) \| (\d+) \| 0 \|$", PAGE.read_text("utf-8"), re.MULTILINE
    )
    assert rows == [
        (trial.exhibit, trial.scene.__name__.replace("_", " "), trial.unit, str(trial.damage))
        for trial in TRIALS
    ]
