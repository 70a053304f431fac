from __future__ import annotations

from distlock.testing.history import HistoryRecord, check_history


def record(
    caller: str, asked: float, granted: float, released: float | None, fence: int, name: str = "a"
) -> HistoryRecord:
    return HistoryRecord(name, caller, asked, granted, released, (1, fence))


GOOD = [
    record("x", 0, 1, 2, 1),
    record("y", 0, 2, 3, 2),
    record("x", 2, 4, None, 7),
    record("y", 0, 1, 9, 1, name="b"),
]


def test_a_good_history_is_good() -> None:
    assert check_history(GOOD) == []
    assert check_history(reversed(GOOD)) == []
    assert check_history([]) == []


def test_two_inside_at_once_are_seen() -> None:
    (wrong,) = check_history([record("x", 0, 1, 5, 1), record("y", 0, 2, 3, 2)])
    assert "y was let in at 2.000000, while x was inside since 1.000000" in wrong


def test_a_long_stay_is_remembered_behind_a_short_one() -> None:
    history = [record("x", 0, 1, 9, 1), record("y", 0, 2, 3, 2), record("z", 0, 4, 5, 3)]
    assert len(check_history(history)) == 2
    assert check_history(history, disjoint=False) == []


def test_nobody_is_let_in_after_one_who_never_left() -> None:
    assert check_history([record("x", 0, 1, None, 1), record("y", 0, 50, 51, 2)])


def test_one_fence_for_two_grants_is_seen() -> None:
    (wrong,) = check_history([record("x", 0, 1, 2, 5), record("y", 0, 3, 4, 5)], disjoint=False)[:1]
    assert "x and y both have fence (1, 5)" in wrong


def test_a_fence_that_goes_backwards_is_seen() -> None:
    (wrong,) = check_history([record("x", 0, 1, 2, 5), record("y", 3, 4, 5, 4)])
    assert "y asked after x had fence (1, 5), and got (1, 4)" in wrong


def test_grants_that_were_asked_for_at_once_may_come_in_any_order() -> None:
    assert check_history([record("x", 0, 3, 4, 1), record("y", 0, 1, 2, 2)]) == []


def test_a_later_era_is_larger() -> None:
    old = HistoryRecord("a", "x", 0, 1, 2, (1, 900))
    assert check_history([old, HistoryRecord("a", "y", 3, 4, 5, (2, 1))]) == []
