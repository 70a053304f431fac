"""The pages of faults and attacks are made of the marks in the tests, and say why a case has no test."""

from __future__ import annotations

import re

import pytest

from tests import attacks, faults
from tests.marked_pages import ROOT, Mark, MarkedPage, played_by

MARKED = {page: list(page.marks()) for page in (faults.PAGE, attacks.PAGE)}
PROMISES = (ROOT / "docs/explanation/promises.md").read_text("utf-8")
#: By mark: the letter of the numbers, and how many cases there are.
COUNTED = {"fault": ("F", 43), "attack": ("A", 44)}

each_page = pytest.mark.parametrize("page", MARKED, ids=lambda page: page.mark)


@each_page
def test_the_page_is_what_would_be_written_now(page: MarkedPage) -> None:
    text = page.path.read_text("utf-8")
    assert text == page.filled(text, MARKED[page]), f"Run: python -m tests.{page.mark}s"
    letter, count = COUNTED[page.mark]
    assert re.findall(rf"^\| ({letter}\d+) \|", text, re.MULTILINE) == numbers(letter, count)
    assert f"these {count} {page.mark}s" in text
    assert page.filled(text, []) != text


@each_page
def test_each_case_has_a_test_or_a_sentence_that_says_why_not(page: MarkedPage) -> None:
    marked = MARKED[page]
    assert [case.number for case in page.cases] == numbers(*COUNTED[page.mark])
    assert [case for case in page.cases if not (played_by(case, marked) or case.missing)] == []
    # One that has more tests than that hides the ones that say most.
    assert [case.number for case in page.cases if len(played_by(case, marked)) > 5] == []
    assert [case.number for case in page.cases if len(played_by(case, marked, control=True)) > 3] == []
    for case in page.cases:
        assert all(not text or text.endswith(".") for text in (case.what, case.must, case.missing)), case


@each_page
def test_each_case_has_a_control(page: MarkedPage) -> None:
    def without(marked: list[Mark]) -> list[str]:
        return [case.number for case in page.cases if not played_by(case, marked, control=True)]

    marked, number = MARKED[page], f"{COUNTED[page.mark][0]}05"
    assert without(marked) == []
    assert without([mark for mark in marked if not (mark.control and mark.number == number)]) == [number]


def numbers(letter: str, count: int) -> list[str]:
    return [f"{letter}{number:02}" for number in range(1, count + 1)]


@each_page
def test_each_promise_and_each_case_that_a_sentence_names_is_there(page: MarkedPage) -> None:
    there = {case.number for case in page.cases}
    letter, _ = COUNTED[page.mark]
    for case in page.cases:
        said = f"{case.must} {case.missing}"
        assert all(f"| {promise} |" in PROMISES for promise in re.findall(r"\bG\d+\b", said)), case
        assert set(re.findall(rf"\b{letter}\d+\b", said)) <= there - {case.number}, case
        assert all((ROOT / path).is_file() for path in re.findall(r"`(tests/[^`]+)`", said)), case


@each_page
def test_each_mark_names_a_case_and_stands_above_a_test(page: MarkedPage) -> None:
    marked = MARKED[page]
    assert len(marked) > 50
    assert [mark for mark in marked if mark.number not in {case.number for case in page.cases}] == []
    assert [mark for mark in marked if not mark.test] == []
    assert len(marked) == len(set(marked))


PLANTED = """
import pytest

pytestmark = pytest.mark.fault("F01")

@pytest.mark.fault("F02", NUMBER)
@pytest.mark.fault("F02", control=True)
@pytest.mark.attack("A02")
def test_it(): ...

@pytest.mark.fault("F03")
class TestIt:
    @pytest.mark.fault("F04")
    async def test_more(self): ...

@pytest.mark.fault("F05")
def helper(): ...
"""


def test_marks_are_found_wherever_they_stand() -> None:
    assert sorted(faults.PAGE.marks_in(PLANTED, "tests/test_new.py")) == [
        Mark("F01", ""),
        Mark("F02", "tests/test_new.py::test_it"),
        Mark("F02", "tests/test_new.py::test_it", control=True),
        Mark("F03", "tests/test_new.py::TestIt"),
        Mark("F04", "tests/test_new.py::TestIt::test_more"),
        Mark("F05", ""),
        Mark("NUMBER", "tests/test_new.py::test_it"),
    ]
    assert list(attacks.PAGE.marks_in(PLANTED, "tests/test_new.py")) == [
        Mark("A02", "tests/test_new.py::test_it")
    ]
