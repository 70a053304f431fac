"""The page of faults is made of the marks in the tests, and a fault without a test says why it has none."""

from __future__ import annotations

import re

from tests.faults import FAULTS, PAGE, Mark, filled, marks, marks_in, played_by

MARKED = list(marks())
PROMISES = (PAGE.parent / "promises.md").read_text("utf-8")


def test_the_page_is_what_would_be_written_now() -> None:
    page = PAGE.read_text("utf-8")
    assert page == filled(page, MARKED), "Run: python -m tests.faults"
    assert page.count("\n| F") == len(FAULTS)
    assert filled(page, []) != page


def test_each_fault_has_a_test_or_a_sentence_that_says_why_not() -> None:
    assert [fault.number for fault in FAULTS] == [f"F{number:02}" for number in range(1, 44)]
    assert [fault for fault in FAULTS if not (played_by(fault, MARKED) or fault.missing)] == []
    # One that has more tests than that hides the ones that say most.
    assert [fault.number for fault in FAULTS if len(played_by(fault, MARKED)) > 5] == []
    assert [fault.number for fault in FAULTS if len(played_by(fault, MARKED, control=True)) > 3] == []
    for fault in FAULTS:
        assert all(not text or text.endswith(".") for text in (fault.what, fault.must, fault.missing)), fault


def test_each_promise_and_each_fault_that_a_sentence_names_is_there() -> None:
    numbers = {fault.number for fault in FAULTS}
    for fault in FAULTS:
        said = f"{fault.must} {fault.missing}"
        assert all(f"| {promise} |" in PROMISES for promise in re.findall(r"\bG\d+\b", said)), fault
        assert set(re.findall(r"\bF\d+\b", said)) <= numbers - {fault.number}, fault
        assert all((PAGE.parents[2] / path).is_file() for path in re.findall(r"`(tests/[^`]+)`", said)), fault


def test_each_mark_names_a_fault_and_stands_above_a_test() -> None:
    assert len(MARKED) > 100
    assert [mark for mark in MARKED if mark.number not in {fault.number for fault in FAULTS}] == []
    assert [mark for mark in MARKED if not mark.test] == []
    assert len(MARKED) == len(set(MARKED))


PLANTED = """
import pytest

pytestmark = pytest.mark.fault("F01")

@pytest.mark.fault("F02", NUMBER)
@pytest.mark.fault("F02", control=True)
@pytest.mark.alone
def test_it(): ...

@pytest.mark.fault("F03")
class TestIt:
    @pytest.mark.fault("F04")
    async def test_more(self): ...

@pytest.mark.fault("F05")
def helper(): ...
"""


def test_marks_are_found_wherever_they_stand() -> None:
    assert sorted(marks_in(PLANTED, "tests/test_new.py")) == [
        Mark("F01", ""),
        Mark("F02", "tests/test_new.py::test_it"),
        Mark("F02", "tests/test_new.py::test_it", control=True),
        Mark("F03", "tests/test_new.py::TestIt"),
        Mark("F04", "tests/test_new.py::TestIt::test_more"),
        Mark("F05", ""),
        Mark("NUMBER", "tests/test_new.py::test_it"),
    ]
