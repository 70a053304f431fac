"""Pages in docs/ that list numbered cases, and which tests play each of them. The tests name the numbers.

A test carries a mark such as ``@pytest.mark.fault("F05")``, with the number of each case that it plays. A
control, which is marked with ``control=True``, plays the case without the care that the other tests check,
and shows harm. A test whose parameters switch the care off carries both marks.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]


class Case(NamedTuple):
    number: str
    #: What happens to a site.
    what: str
    #: What the tests check: the promises of docs/explanation/promises.md, and what is answered.
    must: str
    #: What no test plays, and what stands in for it. Empty if nothing is missing.
    missing: str = ""


class Mark(NamedTuple):
    """A number that a mark in the tests names."""

    number: str
    #: The test, as pytest calls it without its parameters. Empty if the mark stands above no test.
    test: str
    #: Whether the test plays the case without our care.
    control: bool = False


class MarkedPage(NamedTuple):
    """A page with one row for each of its cases."""

    #: The mark of the tests, as in ``pytest.mark.fault``. The plural is the name of the page.
    mark: str
    #: The heading of the column that says what happens.
    happens: str
    cases: tuple[Case, ...]

    @property
    def path(self) -> Path:
        return ROOT / f"docs/explanation/{self.mark}s.md"

    def marks(self) -> Iterator[Mark]:
        """Yield what all marks in the tests name."""
        for path in sorted((ROOT / "tests").rglob("*.py")):
            source = path.read_text("utf-8")
            if f"mark.{self.mark}" in source:
                yield from self.marks_in(source, path.relative_to(ROOT).as_posix())

    def marks_in(self, source: str, path: str) -> Iterator[Mark]:
        """Yield what the marks in *source* name, without an import of it."""
        tree = ast.parse(source)
        tests = dict(_decorated(tree.body, path))
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func).endswith(f"mark.{self.mark}"):
                control = any(
                    keyword.arg == "control" and ast.unparse(keyword.value) == "True"
                    for keyword in call.keywords
                )
                for number in call.args:
                    written = number.value if isinstance(number, ast.Constant) else ast.unparse(number)
                    yield Mark(str(written), tests.get(call, ""), control)

    def filled(self, page: str, marked: list[Mark]) -> str:
        """Return *page* with the table that it should have."""
        head = f"| | {self.happens} | what must hold | tests | controls | what is missing |\n{'|---' * 6}|\n"
        rows = [
            f"| {case.number} | {case.what} | {case.must} | {_listed(played_by(case, marked))} "
            f"| {_listed(played_by(case, marked, control=True))} | {case.missing} |\n"
            for case in self.cases
        ]
        begin, end = f"<!-- {self.mark}s -->\n", f"<!-- {self.mark}s end -->"
        table = re.compile(rf"(?<={begin}).*?(?={end})", re.DOTALL)
        return table.sub(lambda _: f"\n{head}{''.join(rows)}\n", page)

    def write(self) -> None:
        self.path.write_text(self.filled(self.path.read_text("utf-8"), list(self.marks())), "utf-8")


def played_by(case: Case, marked: list[Mark], control: bool = False) -> list[str]:
    """Return the tests in *marked* that play *case*; with *control*, the controls instead."""
    return [mark.test for mark in marked if mark.number == case.number and mark.control is control]


def _decorated(body: list[ast.stmt], above: str) -> Iterator[tuple[ast.expr, str]]:
    """Yield each decorator of a test, or of a class of tests, in *body* with what pytest calls the test."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{above}::{node.name}"
            if node.name.lower().startswith("test"):
                yield from ((decorator, name) for decorator in node.decorator_list)
            if isinstance(node, ast.ClassDef):
                yield from _decorated(node.body, name)


def _listed(tests: list[str]) -> str:
    return ", ".join(f"`{test}`" for test in tests) or "none"
