"""`rlock` lets its owner in again by name, and works under `threading.Condition`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.testing.waits import engine_of, wait_until


@pytest.fixture
def locks(request: pytest.FixtureRequest) -> Iterator[distlock.Locks]:
    locks = distlock.connect(f"memory://{request.node.name}", timeout=60)
    yield locks
    assert locks.namespace.entered_by_owner == {}
    locks.close()


def is_free(locks: distlock.Locks, *names: str) -> list[bool]:
    return [not locks.lock(name).locked() for name in names]


@pytest.mark.parametrize("outer", [("a",), ("b",), ("a", "b"), ("a", "b", "c")])
@pytest.mark.parametrize("inner", [("a",), ("b",), ("a", "b"), ("b", "c"), ("a", "b", "c")])
def test_only_the_names_that_are_missing_are_asked_for(
    locks: distlock.Locks, outer: tuple[str, ...], inner: tuple[str, ...]
) -> None:
    taken = {name: name in outer for name in "abc"}
    with locks.rlock(*outer) as first:
        with locks.rlock(*inner) as second:
            assert second.names == inner
            for name in {*inner} & {*outer}:
                assert second.fences[name] == first.fences[name]
            assert all(locks.lock(name).locked() for name in {*outer, *inner})
            with locks.rlock(*outer), locks.rlock(*inner) as third:
                assert third.fences == second.fences
        assert {name: locks.lock(name).locked() for name in "abc"} == taken
        first.check()
    assert is_free(locks, *"abc") == [True] * 3


def test_in_asyncio_as_well(locks: distlock.Locks) -> None:
    async def main() -> None:
        async with locks.rlock("a"), locks.rlock("a", "b"), locks.rlock("b"):
            assert locks.rlock("a", "b").owned()
            assert await asyncio.gather(locks.rlock("a", "b").aacquire(timeout=0.01)) == [None]
        assert is_free(locks, "a", "b") == [True, True]

    asyncio.run(main())


def test_releases_may_come_in_any_order(locks: distlock.Locks) -> None:
    one, both = locks.rlock("a"), locks.rlock("a", "b")
    assert one.acquire()
    assert both.acquire()
    one.release()
    assert is_free(locks, "a", "b") == [False, False]
    both.release()
    assert is_free(locks, "a", "b") == [True, True]
    assert both.acquire()
    assert one.acquire()
    both.release()
    assert is_free(locks, "a", "b") == [False, True]
    with pytest.raises(distlock.NotHeld):
        both.release()
    assert one.owned()
    one.release()


def test_a_time_out_of_the_missing_name_leaves_the_other_one(locks: distlock.Locks) -> None:
    with ThreadPoolExecutor(1) as other:
        assert other.submit(locks.lock("b").acquire).result()
        with locks.rlock("a") as grant:
            assert locks.rlock("a", "b").acquire(timeout=0.01) is None
            with pytest.raises(distlock.LockTimeout), locks.rlock("a", "b", timeout=0.01):
                pass
            grant.check()
            assert locks.rlock("a").owned()
        assert is_free(locks, "a") == [True]


def test_inside_a_lost_one_the_lock_is_taken_anew() -> None:
    locks = distlock.connect("memory://lost-rlock", ttl=0.4, max_hold=0.2, timeout=60)
    with pytest.raises(distlock.LostInside), locks.rlock("a") as outer:  # noqa: PT012
        wait_until(lambda: outer.lost, "max_hold is over")
        with locks.rlock("a", "b") as inner:
            inner.check()
            assert inner.fences["a"] > outer.fence
        assert not locks.rlock("a").owned()
    assert locks.namespace.entered_by_owner == {}
    locks.close()


# -- threading.Condition: what CPython's own tests of it ask for ----------------------------------


@pytest.fixture(params=[("a",), ("a", "b")])
def condition(request: pytest.FixtureRequest, locks: distlock.Locks) -> threading.Condition:
    return threading.Condition(locks.rlock(*request.param))  # type: ignore[arg-type]  # the protocol is private


def test_a_condition_that_is_not_acquired_can_neither_wait_nor_notify(condition: threading.Condition) -> None:
    for call in (condition.wait, condition.notify, condition.notify_all):
        with pytest.raises(RuntimeError):
            call()
    with pytest.raises(RuntimeError):
        condition.release()


def test_a_condition_wakes_as_many_as_it_is_told(condition: threading.Condition) -> None:
    waiting, woken = [0], [0]

    def wait() -> None:
        with condition:
            waiting[0] += 1
            assert condition.wait(60)
            woken[0] += 1

    with ThreadPoolExecutor(5) as pool:
        futures = [pool.submit(wait) for _ in range(5)]
        wait_until(lambda: waiting[0] == 5, "all of them have entered")
        with condition:  # all of them wait: they have let go of the lock
            condition.notify(2)
            assert woken[0] == 0
        wait_until(lambda: woken[0] == 2, "two are woken")
        with condition:
            condition.notify_all()
        for future in futures:
            future.result(60)
    assert woken[0] == 5


def test_a_wait_gives_up_every_level_and_takes_as_many_again(
    locks: distlock.Locks, condition: threading.Condition
) -> None:
    entered = threading.Event()

    def notify() -> None:
        assert entered.wait(60)
        with condition:
            condition.notify()

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(notify)
        with condition, condition, locks.rlock("a") as before:
            entered.set()
            assert condition.wait(60)
            assert locks.rlock("a").owned()
            assert before.released
            with locks.rlock("a") as after:
                assert after.fence > before.fence
        other.result(60)
    assert is_free(locks, "a", "b") == [True, True]


def test_a_wait_that_times_out_holds_the_lock_again(
    locks: distlock.Locks, condition: threading.Condition
) -> None:
    with condition:
        assert not condition.wait(0.05)
        assert locks.rlock("a").owned()
    with condition:
        assert not condition.wait_for(lambda: False, 0.05)
        assert condition.wait_for(lambda: True, 60)


def test_two_threads_pass_a_ball_to_and_fro(condition: threading.Condition) -> None:
    turns: list[int] = []

    def play(mine: int) -> None:
        for _ in range(20):
            with condition:
                assert condition.wait_for(lambda: len(turns) % 2 == mine, 60)
                turns.append(mine)
                condition.notify()

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(play, mine) for mine in (0, 1)]:
            future.result(120)
    assert turns == [0, 1] * 20


def test_a_wait_that_is_interrupted_where_it_has_just_left_tells_of_the_interrupt(
    locks: distlock.Locks, condition: threading.Condition, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = condition._release_save  # type: ignore[attr-defined]

    def save_and_interrupt() -> None:
        save()
        raise KeyboardInterrupt

    monkeypatch.setattr(condition, "_release_save", save_and_interrupt)
    # That of the standard library tells that it was released already.
    with pytest.raises(KeyboardInterrupt), condition, condition:
        condition.wait(60)
    assert is_free(locks, "a", "b") == [True, True]


def test_what_is_taken_while_another_thread_still_closes_is_its_owners(
    locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = engine_of(locks).backend
    closing, go_on, close = threading.Event(), threading.Event(), backend.close

    def slowly() -> None:
        if not closing.is_set():
            closing.set()
            assert go_on.wait(60)
        close()

    monkeypatch.setattr(backend, "close", slowly)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(locks.close)
        assert closing.wait(60)
        locks.close()
        with locks.rlock("a"):
            go_on.set()
            other.result(60)
            assert locks.rlock("a").owned()
    assert is_free(locks, "a") == [True]
