"""The page on which lock service to take says what each one declares."""

from __future__ import annotations

import re

import pytest

import distlock
from tests.backend_class import EXAMPLES, backend_class
from tests.docs.blocks import ROOT

PAGE = (ROOT / "docs/explanation/which.md").read_text("utf-8")
ROWS = re.findall(r"^\| `([\w+]+)` \| (yes|no) \| (yes|no) \| (yes|see|no) \|$", PAGE, re.MULTILINE)
#: Of one process; and others' spellings, for TLS and a socket.
NOT_THERE = {"memory", "unix", "rediss", "rediss+cluster", "rediss+sentinel", "redlocks", "zookeepers"}


def test_each_scheme_has_an_example() -> None:
    with pytest.raises(distlock.ConfigurationError) as told:
        distlock.connect("nowhere://")
    assert set(re.findall(r"([\w+]+)://", str(told.value).partition("Known are")[2])) == EXAMPLES.keys()


def test_each_has_its_row() -> None:
    assert {scheme for scheme, *_ in ROWS} == EXAMPLES.keys() - NOT_THERE
    failures = set(re.findall(r"^\| \[`([\w+]+)://`\]", PAGE, re.MULTILINE))
    assert failures == EXAMPLES.keys() - NOT_THERE


@pytest.mark.parametrize(("scheme", "fair", "family", "seen"), ROWS)
def test_it_can_what_its_row_says(scheme: str, fair: str, family: str, seen: str) -> None:
    can = backend_class(EXAMPLES[scheme]).capabilities
    assert can.fair == (fair == "yes")
    assert {can.read, can.permits, can.latch} == {family == "yes"}
    assert can.inspect == (seen != "no")
    assert {can.breaks, can.notify} == {seen == "yes"}
    assert can.fence
