"""The page of all locks, where the lock service tells little."""

from __future__ import annotations

from distlock.operate import Party
from distlock.web.operate.pages import Line


def test_a_time_that_nobody_knows_is_not_shown_as_none() -> None:
    line = Line("product_1", holder=Party("7 of MySQL"), waiting=1, first=Party("8 of MySQL"))
    assert (line.held_for, line.waits) == ("", "1")
