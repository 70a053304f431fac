"""The judge of the soak: each rule is broken by one short history, and kept by the one beside it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.soak.judge import MOST_BEFORE, judge
from tests.soak.notes import Attempt, Fault, History, Kind, LatchCall

TTL, PATIENCE = 3.0, 2.0
FLUSH = Fault("FLUSHALL", 1.2, 1.3, forgets=True)


def held(
    began: float,
    ended: float,
    kind: Kind = "lock",
    process: int = 1,
    fence: int | None = None,
    **more: object,
) -> Attempt:
    """A hold that was asked for, granted, and released in order."""
    number = int(began * 1000) if fence is None else fence
    attempt = Attempt(process, f"{process}/{began}", "n", kind, began - 0.01, fence=(1, number))
    attempt.granted, attempt.sure, attempt.releasing, attempt.released = began, ended, ended, ended + 0.01
    return replace(attempt, **more)


def waited(asked: float, ended: float, process: int = 2) -> Attempt:
    return Attempt(process, f"{process}/{asked}", "n", "lock", asked, refused=ended, how="timeout")


def rules(*attempts: Attempt, faults: list[Fault] | None = None, **more: object) -> list[str]:
    history = History(sorted(attempts, key=lambda one: one.asked), faults=faults or [], **more)
    return [one.rule for one in judge(history, TTL, PATIENCE) if not one.admitted]


@pytest.mark.parametrize(
    ("first", "second", "wrong"),
    [
        ("lock", "lock", True),
        ("lock", "read", True),
        ("read", "write", True),
        ("write", "rlock", True),
        ("read", "read", False),
    ],
)
def test_two_at_once(first: Kind, second: Kind, wrong: bool) -> None:
    both = held(1.0, 2.0, first), held(1.5, 2.5, second)
    assert ("two at once" in rules(*both)) == wrong
    assert rules(held(1.0, 1.4, first), both[1]) == []


def test_an_owner_may_enter_its_rlock_again() -> None:
    outer = held(1.0, 2.0, "rlock", caller="me")
    assert rules(outer, held(1.5, 1.8, "rlock", caller="me", fence=1000)) == []


def test_a_hold_lasts_as_long_as_its_holder_saw_it() -> None:
    lost = held(1.0, 1.2, releasing=9.0, released=9.1, lost=True)
    assert rules(lost, held(5.0, 6.0)) == []
    assert rules(replace(lost, sure=9.0, lost=False), held(5.0, 6.0)) == ["two at once"]


def test_an_overlap_after_lost_data_is_admitted() -> None:
    both = held(1.0, 2.0), held(1.5, 2.5)
    assert rules(*both, faults=[FLUSH]) == []
    assert rules(*both, faults=[replace(FLUSH, began=0.2, ended=0.3)]) == ["two at once"]


@pytest.mark.parametrize(("permits", "wrong"), [(1, False), (2, True)])
def test_permits(permits: int, wrong: bool) -> None:
    both = held(1.0, 2.0, "permit", limit=3, permits=2), held(1.5, 2.5, "permit", limit=3, permits=permits)
    assert rules(*both) == ["permits"] * wrong


def test_fences_grow() -> None:
    assert rules(held(1.0, 2.0, fence=7), held(3.0, 4.0, fence=8)) == []
    assert rules(held(1.0, 2.0, fence=7), held(3.0, 4.0, fence=7)) == ["fences"]
    assert rules(held(1.0, 2.0, fence=7), held(3.0, 4.0, "write", fence=6)) == ["fences"]


def test_nobody_waits_for_a_free_lock() -> None:
    assert rules(held(1.0, 2.0), waited(1.5, 5.0)) == ["forgotten"]
    assert rules(held(1.0, 4.0), waited(1.5, 5.0)) == []


def test_the_lock_of_a_killed_holder_is_free_when_its_lease_is_over() -> None:
    killed = held(1.0, 2.0, releasing=None, released=None)
    assert rules(killed, waited(1.5, 2.0 + 1.5 * TTL + 1)) == []
    assert rules(killed, waited(1.5, 2.0 + 1.5 * TTL + PATIENCE + 1)) == ["forgotten"]


def test_a_killed_process_may_have_had_the_lock_that_it_waited_for() -> None:
    dead, kill = Attempt(3, "3/1", "n", "lock", 1.0), [Fault("SIGKILL", 2.0, 2.0, 3)]
    assert rules(held(1.0, 1.5), dead, waited(1.2, 6.0), faults=kill) == []
    assert rules(held(1.0, 1.5), waited(1.2, 6.0), faults=kill) == ["forgotten"]


def crowd() -> Iterator[Attempt]:
    for number in range(MOST_BEFORE + 10):
        yield held(1.0 + number * 0.01, 1.005 + number * 0.01)


def test_nobody_is_overtaken_by_a_crowd() -> None:
    ended = 1.0 + (MOST_BEFORE + 10) * 0.01
    assert rules(*crowd(), waited(0.5, ended)) == ["overtaken"]
    assert rules(*crowd(), waited(ended - 0.9, ended)) == []
    # A process that stands still is skipped.
    assert rules(*crowd(), waited(0.5, ended), faults=[Fault("SIGSTOP", 1.1, 2.0, 2)]) == []


def test_latches_open_when_all_parts_are_counted() -> None:
    counts = [LatchCall("1", "latch", at, part, 2) for at, part in ((1.0, "a"), (1.1, "a"), (1.2, "b"))]
    early, late = (LatchCall("2", "latch", at, None, 2) for at in (1.15, 1.25))
    assert rules(latches=[*counts, late]) == []
    assert rules(latches=[*counts, early]) == ["latch"]


def test_what_is_left_behind_and_unexpected_errors() -> None:
    assert rules(left={1: ["3 descriptors"]}) == ["leak"]
    assert rules(errors=["process 1: KeyError: 'x'"]) == ["error"]
    gone = ["process 1: LatchNotFound: …"]
    assert rules(errors=gone) == ["error"]
    assert rules(errors=gone, faults=[FLUSH]) == []
