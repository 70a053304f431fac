"""The judge of the soak: each rule is broken by one short history, and kept by the one beside it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.soak.judge import excused_share, judge
from tests.soak.notes import (
    LATCH_TTL,
    Answer,
    Attempt,
    Fault,
    History,
    Kind,
    LatchCall,
    Leak,
    Notebook,
    Request,
    read,
)
from tests.soak.promises import Promises
from tests.soak.waiting import MOST_BEFORE

TTL, PATIENCE = 3.0, 2.0
PROMISES = Promises(PATIENCE, killed=TTL, stopped=TTL)
#: What a directory promises: a process that stands still keeps its locks.
IN_FILES = Promises(PATIENCE, killed=0.0, stopped=math.inf, in_files=True)
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


def noted(*attempts: Attempt, faults: list[Fault] | None = None, **more: object) -> History:
    return History(sorted(attempts, key=lambda one: one.asked), faults=faults or [], **more)


def rules(*attempts: Attempt, promises: Promises = PROMISES, **more: object) -> list[str]:
    return [one.rule for one in judge(noted(*attempts, **more), promises) if not one.admitted]


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
    again = held(1.5, 1.8, "rlock", caller="me", fence=1000)
    assert rules(outer, replace(again, depth=1)) == []
    assert rules(outer, again) == ["two at once", "fences"]
    refused = Attempt(1, "me", "n", "rlock", 1.4, refused=1.5, how="timeout", depth=1)
    assert rules(outer, refused) == ["re-entrance"]
    assert rules(replace(outer, sure=1.45), refused) == []


def test_a_hold_lasts_as_long_as_its_holder_saw_it() -> None:
    lost = held(1.0, 1.2, releasing=9.0, released=9.1, lost=True)
    stopped = [Fault("SIGSTOP", 1.3, 8.9, 1)]
    assert rules(lost, held(5.0, 6.0), faults=stopped) == []
    assert rules(replace(lost, sure=9.0, lost=False), held(5.0, 6.0), faults=stopped) == ["two at once"]


def test_what_was_lost_when_it_was_granted_is_no_hold() -> None:
    late = held(1.5, 1.5, process=2, fence=1, releasing=1.6)
    assert "two at once" in rules(held(1.0, 2.0), late)
    assert "two at once" not in rules(held(1.0, 2.0), replace(late, lost=True, lost_at_once=True))
    # It was lost later: when it was granted, it was held.
    assert "two at once" in rules(held(1.0, 2.0), replace(late, lost=True))
    assert "two at once" not in rules(held(1.0, 1.4), replace(late, lost=True), held(1.7, 2.0))


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
    killed, kill = held(1.0, 2.0, releasing=None, released=None), Fault("SIGKILL", 2.0, 2.0, 1)
    over = 2.0 + TTL + PATIENCE
    assert rules(killed, waited(1.5, over - 0.1), faults=[kill]) == []
    assert rules(killed, waited(1.5, over + 0.1), faults=[kill]) == ["forgotten"]
    # A directory keeps nothing of the dead.
    assert rules(killed, waited(1.5, 4.1), faults=[kill], promises=IN_FILES) == ["forgotten"]
    # A cart that waited when its process was killed may have had this name.
    cart = Attempt(1, "1/cart", "n", "cart", 1.0, of_several=True)
    assert rules(cart, waited(1.5, over - 0.1), faults=[kill]) == []
    assert rules(cart, waited(1.5, over + 0.1), faults=[kill]) == ["forgotten"]


def test_a_killed_process_may_have_had_the_lock_that_it_waited_for() -> None:
    dead, kill = Attempt(3, "3/1", "n", "lock", 1.0), [Fault("SIGKILL", 2.0, 2.0, 3)]
    assert rules(held(1.0, 1.5), dead, waited(1.2, 6.0), faults=kill) == []
    assert rules(held(1.0, 1.5), waited(1.2, 6.0), faults=kill) == ["forgotten"]
    # What strikes other callers of a process keeps no lock.
    forked = [Fault("fork", 2.0, 5.0, 2)]
    assert rules(held(1.0, 1.5), waited(1.2, 6.0), faults=forked) == ["forgotten"]


def test_a_process_that_stands_still_keeps_a_lock_for_its_lease() -> None:
    mine = Attempt(3, "3/1", "n", "lock", 1.0, refused=30.0, how="BackendUnavailable")
    stop = [Fault("SIGSTOP", 2.0, 20.0, 3), Fault("restart", 29.0, 30.0)]
    ended = 2.0 + TTL + 1.6
    assert rules(held(1.0, 1.5), mine, waited(1.2, ended - 0.2), faults=stop) == []
    assert rules(held(1.0, 1.5), mine, waited(1.2, ended + 0.2), faults=stop) == ["forgotten"]
    # It has the lock, loses it, and says so when it goes on.
    lost = held(1.0, 2.0, process=3, releasing=20.0, released=20.0, lost=True)
    over = 2.0 + TTL + PATIENCE
    assert rules(lost, waited(1.5, over - 0.1), faults=stop) == []
    assert rules(lost, waited(1.5, over + 0.1), faults=stop) == ["forgotten"]
    # In a directory, and whatever the lock service is, it keeps the lock until it goes on.
    assert rules(held(1.0, 1.5), mine, waited(1.2, 19.0), faults=stop, promises=IN_FILES) == []
    in_directory = [replace(one, name="second 0", kind="second") for one in (held(1.0, 1.5), mine)]
    assert rules(*in_directory, replace(waited(1.2, 19.0), name="second 0"), faults=stop) == []


def test_faults_excuse_a_free_lock_only_while_they_last() -> None:
    cuts = [Fault("all cut by RST", at, at + 0.5) for at in (2.0, 4.0, 6.0)]
    # It was free for 0.5 s, 1.5 s, and 1.5 s between them.
    assert rules(held(1.0, 1.5), waited(1.2, 4.2), faults=cuts) == []
    assert rules(held(1.0, 1.5), waited(1.2, 6.2), faults=cuts) == ["forgotten"]
    # Somebody had it meanwhile.
    assert rules(held(1.0, 1.5), held(4.0, 4.1), waited(1.2, 6.2), faults=cuts) == []
    # What is refused in a fault is not refused a free lock.
    late = waited(6.6, 6.7), waited(6.1, 6.2)
    assert rules(held(1.0, 1.5), waited(2.0, 2.1), late[0], faults=cuts) == ["refused"]
    assert rules(held(1.0, 1.5), waited(2.0, 2.1), late[1], faults=cuts) == []
    # It was free for long enough, but for too little of that without an excuse.
    once = waited(4.6, 4.7)
    assert rules(held(1.0, 1.5), waited(2.0, 2.1), once, faults=cuts) == []
    assert rules(held(1.0, 1.5), waited(2.0, 2.1), once, faults=cuts[:1]) == ["refused"]


def test_how_much_of_the_waiting_was_excused() -> None:
    cut = Fault("all cut by RST", 2.0, 3.0)
    assert excused_share(noted(waited(1.0, 4.0), waited(2.0, 5.0), faults=[cut]), PROMISES) == (4.0, 1.0)
    # Nobody waits in this fault.
    late = replace(cut, began=6.0, ended=7.0)
    assert excused_share(noted(waited(1.0, 4.0), waited(8.0, 9.0), faults=[late]), PROMISES) == (4.0, 0.0)


def crowd() -> Iterator[Attempt]:
    for number in range(MOST_BEFORE + 10):
        yield held(1.0 + number * 0.01, 1.005 + number * 0.01)


def test_nobody_is_overtaken_by_a_crowd() -> None:
    ended = 1.0 + (MOST_BEFORE + 10) * 0.01
    assert "overtaken" in rules(*crowd(), waited(0.5, ended))
    assert rules(*crowd(), waited(ended - 0.9, ended)) == []
    # A process that stands still is skipped.
    assert rules(*crowd(), waited(0.5, ended), faults=[Fault("SIGSTOP", 1.1, 2.0, 2)]) == []


def test_a_downgrade_lets_readers_in_and_no_writer() -> None:
    downgraded = held(1.0, 2.0, "write", downgraded=1.5)
    assert rules(downgraded, held(1.6, 1.8, "read")) == []
    assert rules(downgraded, held(1.4, 1.8, "read")) == ["two at once"]
    assert rules(downgraded, held(1.6, 1.8)) == ["two at once"]


def test_the_limit_of_the_last_one_to_enter_counts() -> None:
    first, late = held(1.0, 2.0, "permit", limit=3, permits=2), held(1.5, 1.8, "permit", limit=2)
    assert rules(first, late) == ["permits"]
    # Both asked at once, so the one with the larger limit may have come last.
    assert rules(first, replace(late, asked=0.9)) == []


def test_a_process_passes_the_lock_on_for_a_moment_only_while_others_wait() -> None:
    turn = [held(1.0 + number, 1.9 + number) for number in range(8)]
    assert rules(*turn, waited(1.5, 8.9)) == ["turn"]
    assert rules(*turn, waited(1.5, 8.9, process=1)) == []
    # The other process has had its turn, or has not waited for so long, or has not heard of it.
    assert rules(*turn, held(4.92, 4.95, process=2), waited(1.5, 8.9)) == []
    assert rules(*turn, waited(1.5, 5.9)) == []
    assert rules(*turn, waited(1.5, 8.9), faults=[Fault("all cut by RST", 2.0, 2.1)]) == []
    # It was killed, or these came earlier.
    assert rules(*turn, Attempt(2, "2/1", "n", "lock", 1.5)) == []
    assert rules(*(replace(one, asked=1.0) for one in turn), waited(1.5, 8.9)) == []


def test_the_fences_of_readers() -> None:
    writer, reader = held(1.0, 2.0, fence=7), held(3.0, 4.0, "read", fence=7)
    assert rules(writer, reader) == []
    assert rules(writer, replace(reader, fence=(1, 6))) == ["fences"]
    assert rules(reader, held(5.0, 6.0, "read", fence=6), held(7.0, 8.0, fence=8)) == []
    assert rules(reader, held(5.0, 6.0, fence=7)) == ["fences"]


def test_all_of_several_names_are_held() -> None:
    cart = [held(1.0, 2.0, "cart", of_several=True, name=name) for name in ("n", "m")]
    assert rules(*cart, held(1.5, 1.8, name="k")) == []
    assert rules(*cart, held(1.5, 1.8, name="m")) == ["two at once"]
    # It may have had this name while it waited for the other one.
    waits = replace(waited(1.5, 9.0), of_several=True)
    assert rules(held(1.0, 2.0), waits, waited(1.6, 8.0)) == []


def test_nobody_is_refused_a_lock_that_is_free() -> None:
    first, asks_once = held(1.0, 2.0), waited(5.0, 5.01)
    assert rules(first, waited(2.5, 2.6), asks_once) == ["refused"]
    # Nobody has asked since the end of the first hold, or the next holder came first.
    assert rules(first, asks_once) == []
    assert rules(first, waited(2.5, 2.6), asks_once, held(5.1, 5.2, asked=5.0)) == []
    assert rules(first, waited(2.5, 2.6), asks_once, held(5.1, 5.2)) == ["refused"]


@pytest.mark.parametrize(
    "why",
    [
        "The ZooKeeper server failed: no answer within 0.35 s.",
        "It opened no session within 0.35 s.",
        "The Redis server can't be used: it did not answer in time.",
        "The PostgreSQL server at 127.0.0.1:5432/shop can't be used: no answer in time. See its log.",
        # The request was not sent: that would have come too late.
        "The Redis server can't be used: no time was left.",
        "The ZooKeeper server failed: there was no time left to ask.",
    ],
)
def test_a_short_time_out_may_be_over_before_the_answer(why: str) -> None:
    short = Attempt(1, "1/task", "n", "lock", 5.0, refused=5.4, how="BackendUnavailable")
    assert rules(replace(short, why=why)) == []
    assert rules(replace(short, why="the connection broke")) == ["unavailable"]
    assert rules(replace(short, asked=3.0, why=why)) == ["unavailable"]


@pytest.mark.parametrize(
    "wrong",
    [
        Attempt(1, "1/task", "n", "lock", 5.0, refused=5.1, how="BackendUnavailable"),
        held(5.0, 5.1, lost=True),
    ],
)
def test_only_a_fault_makes_a_lock_service_unavailable_or_loses_a_lock(wrong: Attempt) -> None:
    assert rules(wrong) == ["lost" if wrong.lost else "unavailable"]
    assert rules(wrong, faults=[Fault("restart", 4.0, 4.5)]) == []
    assert rules(wrong, faults=[Fault("restart", 0.1, 0.5)]) != []
    # What strikes another process is no excuse, except where both write to files.
    assert rules(wrong, faults=[Fault("fork", 4.0, 4.5, 1)]) != []
    assert rules(wrong, faults=[Fault("EMFILE", 4.0, 4.5, 1)]) == []
    assert rules(wrong, faults=[Fault("replies cut by FIN", 4.0, 4.5, 2)]) != []
    stopped = [Fault("SIGSTOP", 4.0, 4.5, 2)]
    assert rules(wrong, faults=stopped) != []
    assert rules(wrong, faults=stopped, promises=IN_FILES) == []
    # On a busy machine, a fault is felt for longer.
    earlier = [Fault("restart", 0.1, 0.9)]
    assert rules(wrong, faults=earlier) != []
    assert rules(wrong, faults=earlier, promises=replace(PROMISES, slack=3.0)) == []


def test_what_begins_on_the_push_is_lost_after_a_short_pause() -> None:
    assert rules(held(5.0, 5.1, "push", lost=True)) == []


def test_holders_learn_that_their_release_is_requested() -> None:
    holder, request = held(1.0, 9.0, "asked", wanted=2.5), Request(2, "n", 2.0, 2.1, True)
    assert rules(holder, requests=[request]) == []
    assert rules(replace(holder, wanted=None), requests=[request]) == ["request"]
    assert rules(holder, requests=[replace(request, answer=False)]) == ["request"]
    # Nobody has requested this hold: the request concerned another one.
    assert rules(holder, requests=[replace(request, began=0.1, ended=0.2)]) == ["request"]
    # A fault may delay the news.
    stopped = [Fault("SIGSTOP", 2.0, 6.0, 1)]
    assert rules(replace(holder, wanted=None), requests=[request], faults=stopped) == []


def call(what: str, began: float, ended: float, answer: Answer, **more: Any) -> LatchCall:
    return LatchCall(1, f"1/{began}", "latch", what, began, ended, answer, **more)


def made(began: float = 1.0, **more: Any) -> LatchCall:
    return call("make", began, began + 0.1, True, total=2, **more)


@pytest.mark.parametrize(
    "calls",
    [
        [call("count", 2, 3, 1), call("count", 3, 4, 0), call("count", 4, 5, 0), call("wait", 5, 6, True)],
        [call("count", 2, 3, 1, part="a"), call("count", 3, 4, 1, part="a"), call("wait", 5, 6, False)],
        [call("count", 2, 3, 0, by=2), call("look", 3, 4, 0)],
        [call("make", 2, 3, False, total=2), call("make", 3, 4, "other count", total=3)],
        [call("delete", 2, 3, True), call("wait", 3, 4, "not found"), call("delete", 4, 5, False)],
        # Deleted, made anew with another count, and counted.
        [call("delete", 2, 3, True), call("make", 3, 4, True, total=1), call("count", 4, 5, 0)],
        # A repeated part would fit before the deletion, too, but counts after it.
        [
            call("count", 2, 3, 1, part="a"),
            call("count", 4, 9, 1, part="a"),
            call("delete", 5, 6, True),
            call("make", 6.1, 7, True, total=2),
            call("count", 9.1, 9.2, 0),
        ],
        # Side by side: each order has its own answers.
        [call("count", 2, 9, 0), call("count", 3, 4, 1), call("wait", 5, 6, False), call("wait", 7, 8, True)],
        # Nobody knows whether this was counted: later it turns out.
        [call("count", 2, math.inf, None), call("look", 3, 4, 2), call("look", 5, 6, 1)],
        [call("delete", 2, math.inf, None), call("wait", 3, 4, False), call("wait", 5, 6, "not found")],
        [call("delete", 2, math.inf, None), call("count", 3, 4, 1), call("count", 5, 6, 0)],
        # Its lifetime is over.
        [call("wait", 1.2 + LATCH_TTL, 1.3 + LATCH_TTL, "not found")],
    ],
)
def test_answers_of_latches_that_some_order_explains(calls: list[LatchCall]) -> None:
    assert rules(latches=[made(), *calls]) == []


@pytest.mark.parametrize(
    "calls",
    [
        [call("wait", 2, 3, True)],
        [call("wait", 2, 3, "not found")],
        [call("count", 2, 3, 1), call("count", 3, 4, 1)],
        [call("count", 2, 3, 1, part="a"), call("count", 3, 4, 0, part="a")],
        [call("count", 2, 3, 1), call("wait", 4, 5, True)],
        [call("count", 2, 3, 0, by=2), call("wait", 4, 5, False)],
        [call("make", 2, 3, True, total=2)],
        [call("make", 2, 3, False, total=3)],
        [call("delete", 2, 3, False)],
        [call("delete", 2, 3, True), call("delete", 4, 5, True)],
        [call("delete", 2, 3, True), call("wait", 4, 5, True)],
        # Both count, whatever comes first, and both say that they were the first.
        [call("count", 2, 9, 1), call("count", 3, 4, 1)],
        # It can't have been counted before it was called.
        [call("look", 2, 3, 1), call("count", 4, math.inf, None)],
        # It was counted, and later it was not.
        [call("count", 2, math.inf, None), call("look", 3, 4, 1), call("look", 5, 6, 2)],
    ],
)
def test_answers_of_latches_that_no_order_explains(calls: list[LatchCall]) -> None:
    assert rules(latches=[made(), *calls]) == ["latch"]


@pytest.mark.parametrize(
    "calls",
    [
        # The first attempt counted; when it was repeated, another call had counted, too.
        [call("count", 2, 5, 0), call("count", 3, 4, 0)],
        [call("delete", 2, 5, False), call("wait", 3, 4, "not found")],
        [call("delete", 2, 5, True), call("make", 2, 6, False, total=2), call("delete", 3, 4, True)],
    ],
)
def test_a_call_that_was_repeated_may_have_had_its_effect_before(calls: list[LatchCall]) -> None:
    assert rules(latches=[made(), *calls]) == ["latch"]
    assert rules(latches=[made(), *calls], faults=[Fault("replies cut", 2.1, 2.2)]) == []
    # Another task of this process got no answer in time, so the calls on their connection were repeated.
    told = "it did not answer in time"
    unanswered = replace(waited(2.0, 2.5, process=1), caller="1/task", how="BackendUnavailable", why=told)
    of_tasks = [made(), *(replace(one, caller=f"1/task {one.began}") for one in calls)]
    shared = replace(PROMISES, tasks_share=True)
    assert rules(unanswered, latches=of_tasks, promises=shared) == []
    assert rules(replace(unanswered, how="timeout", why=""), latches=of_tasks, promises=shared) == []
    assert rules(unanswered, latches=of_tasks) == ["latch"]
    assert rules(unanswered, latches=[made(), *calls], promises=shared) == ["latch"]
    assert rules(replace(unanswered, process=2), latches=of_tasks, promises=shared) == ["latch"]
    other = replace(unanswered, why="no answer within 0.35 s")
    assert rules(other, latches=of_tasks, promises=shared) == ["latch"]


def test_a_count_that_was_repeated_counts_once() -> None:
    twice = [made(), call("count", 2, 3, 1), call("look", 4, 5, 0)]
    assert rules(latches=twice, faults=[Fault("replies cut", 2.1, 2.2)]) == ["latch"]


def test_an_answer_after_lost_data_is_admitted() -> None:
    gone = [made(), call("wait", 2, 3, "not found")]
    assert rules(latches=gone) == ["latch"]
    assert rules(latches=gone, faults=[FLUSH]) == []


def test_what_is_left_behind_and_unexpected_errors() -> None:
    assert rules(leaks=[Leak(1, "3 descriptors", 20.0)]) == ["leak"]
    (leak,) = judge(noted(leaks=[Leak(1, "3 descriptors", 20.0)]), PROMISES)
    assert leak.at == 20.0
    assert rules(leftovers=["the hold dl:2:{n}"]) == ["leftover"]
    assert rules(errors=["process 1: KeyError: 'x'"]) == ["error"]


def test_a_lock_that_was_lost_at_once_is_noted_so(tmp_path: Path) -> None:
    notes = Notebook(tmp_path)
    about = {"caller": "1/thread", "names": ["n"], "kind": "lock", "permits": 1, "limit": 0, "depth": 0}
    for number, lost in enumerate((True, False)):
        notes.note_at(1.0 + number, "asked", id=f"{number}", **about)
        notes.note_at(1.1 + number, "granted", id=f"{number}", fences={}, lost=lost)
        notes.note_at(1.2 + number, "releasing", id=f"{number}", lost=True)
    at_once, later = read(tmp_path, []).attempts
    assert (at_once.lost_at_once, at_once.lost) == (True, True)
    assert (later.lost_at_once, later.lost) == (False, True)


def test_notes_are_read_while_they_are_written(tmp_path: Path) -> None:
    notes = Notebook(tmp_path)
    notes.note_at(1.0, "struck", what="EMFILE", forgets=False)
    notes.note_at(2.0, "left", what=["2 descriptors"])
    notes.note_at(3.0, "left", what=["3 descriptors"])
    (path,) = tmp_path.iterdir()
    with path.open("a") as file:
        file.write('{"at": 2.1, "event": "le')
    now, later = read(tmp_path, [], until=2.5), read(tmp_path, [])
    assert [leak.at for leak in now.leaks] == [2.0]
    assert [leak.at for leak in later.leaks] == [2.0, 3.0]
    # Its end is not known yet.
    assert [(fault.began, fault.ended) for fault in now.faults] == [(1.0, 2.0)]
