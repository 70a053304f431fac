"""The conformance kit: latches through `distlock.connect`, within one process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.backends.latches import Latches, LatchState
from distlock.errors import BackendUnavailable
from distlock.locks import latch_waits
from distlock.testing.fixtures import ConformanceFixtures, Connect, Faulty
from distlock.testing.waits import (
    BRIEF,
    PATIENCE,
    engine_of,
    latch_waiters,
    wait_for_latch_waiters,
    wait_until,
)


class LatchConformance(ConformanceFixtures):
    """Tests for backends with the capability `latch`."""

    #: The most threads that all waiters of a process may need.
    threads = 3

    @pytest.fixture
    def no_poll(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Stop the polls of waiters, so that only a notification wakes them."""
        monkeypatch.setattr(latch_waits, "POLL", 10 * PATIENCE)

    # -- making and counting ---------------------------------------------------------------------

    def test_who_made_it_is_told(self, locks: distlock.Locks, other: distlock.Locks, name: str) -> None:
        assert locks.latch(name, 2).make()
        assert not other.latch(name, 2).make()
        assert other.latch(name).count() == 2
        assert locks.latch(name).count_down() == 1
        assert not locks.latch(name, 2).make()
        assert locks.latch(name).count() == 1

    def test_another_count_is_an_error(self, locks: distlock.Locks, other: distlock.Locks, name: str) -> None:
        locks.latch(name, 2).make()
        for call in (other.latch(name, 3).make, other.latch(name, 3).count_down, other.latch(name, 3).count):
            with pytest.raises(distlock.ConfigurationError, match=f"{name}' was made with a count of 2"):
                call()

    def test_one_that_is_not_there_is_never_open(self, locks: distlock.Locks, name: str) -> None:
        latch = locks.latch(name)
        for call in (latch.wait, lambda: latch.wait(0), latch.count_down, latch.count):
            with pytest.raises(distlock.LatchNotFound, match=name):
                call()

    def test_a_lock_of_the_same_name_is_something_else(self, locks: distlock.Locks, name: str) -> None:
        locks.latch(name, 1).make()
        with locks.lock(name):
            assert locks.latch(name).count_down() == 0
        assert not locks.lock(name).locked()
        assert locks.latch(name).wait(0)

    def test_a_count_whose_reply_was_lost_counts_once(self, locks: distlock.Locks, name: str) -> None:
        faulty = Faulty(engine_of(locks).backend)
        locks.latch(name, 10).make()
        faulty.lose_replies["count_latch_down"] = 2
        assert locks.latch(name).count_down() == 9

    def test_who_made_it_is_told_although_the_reply_was_lost(self, locks: distlock.Locks, name: str) -> None:
        Faulty(engine_of(locks).backend).lose_replies["make_latch"] = 2
        assert locks.latch(name, 10).make()

    def test_a_part_may_be_counted_again_by_anybody(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        locks.latch(name, 2).make()
        assert locks.latch(name).count_down(part="orders") == 1
        assert other.latch(name).count_down(part="orders") == 1
        assert other.latch(name).count_down(part="products") == 0

    # -- rounds ----------------------------------------------------------------------------------

    @pytest.mark.parametrize("part", [None, "orders"])
    @pytest.mark.parametrize("ended", ["deleted", "over", "over and made by nobody"])
    def test_a_count_whose_reply_was_lost_stays_out_of_the_next_round(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, ended: str, part: str | None
    ) -> None:
        ttl = PATIENCE if ended == "deleted" else 1.0
        latch = locks.latch(name)
        other.latch(name, 1, ttl=ttl).make()

        def next_round() -> None:
            assert other.latch(name).count() == 0, "it was counted"
            if ended == "deleted":
                assert other.latch(name).delete()
            else:
                wait_until(lambda: is_gone(other, name), "its ttl is over")
            if ended != "over and made by nobody":
                assert other.latch(name, 1, ttl=PATIENCE).make()

        faulty = Faulty(engine_of(locks).backend)
        faulty.lose_replies["count_latch_down"] = 1
        faulty.meanwhile["count_latch_down"] = next_round
        with pytest.raises(distlock.LatchNotFound, match=name):
            latch.count_down(part=part)
        if ended != "over and made by nobody":
            assert other.latch(name).count() == 1
            # A later call is about the next round, even through the same object.
            assert latch.count_down(part=part) == 0

    def test_a_task_s_count_whose_reply_was_lost_stays_out_of_the_next_round(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        other.latch(name, 1).make()
        faulty = Faulty(engine_of(locks).backend)
        faulty.lose_replies["count_latch_down"] = 1
        faulty.meanwhile["count_latch_down"] = lambda: next_of(other, name)

        async def main() -> None:
            with pytest.raises(distlock.LatchNotFound, match=name):
                await locks.latch(name).acount_down()
            assert await locks.latch(name).acount() == 1

        asyncio.run(main())

    def test_a_look_whose_reply_was_lost_is_of_no_round(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        other.latch(name, 2).make()
        faulty = Faulty(engine_of(locks).backend)
        faulty.lose_replies["look_at_latches"] = 1
        faulty.meanwhile["look_at_latches"] = lambda: next_of(other, name, 2)
        assert locks.latch(name).count_down() == 1

    def test_to_delete_one_whose_reply_was_lost_spares_the_next_round(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        other.latch(name, 1).make()
        faulty = Faulty(engine_of(locks).backend)
        faulty.lose_replies["delete_latch"] = 1
        faulty.meanwhile["delete_latch"] = lambda: other.latch(name, 1).make()
        locks.latch(name).delete()
        assert other.latch(name).count() == 1

    def test_of_two_that_delete_it_at_once_one_has_done_it(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        for _ in range(10):
            locks.latch(name, 1).make()
            together = threading.Barrier(2)

            def delete(one: distlock.Locks, together: threading.Barrier = together) -> bool:
                together.wait(PATIENCE)
                return one.latch(name).delete()

            assert sorted(pool.map(delete, (locks, other))) == [False, True]

    def test_one_that_is_made_twice_has_two_lives(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        faulty = Faulty(engine_of(locks).backend)
        faulty.lose_replies["make_latch"] = 1
        lives: list[str] = []

        def end() -> None:
            lives.append(life_of(other, name))
            assert other.latch(name).delete()

        faulty.meanwhile["make_latch"] = end
        assert locks.latch(name, 1).make()
        lives.append(life_of(other, name))
        assert len(set(lives)) == 2

    # -- waiting ---------------------------------------------------------------------------------

    def test_who_waits_is_woken_by_the_last_count(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor, no_poll: None
    ) -> None:
        locks.latch(name, 2).make()
        waiting = [pool.submit(locks.latch(name).wait, PATIENCE) for _ in range(3)]
        wait_for_latch_waiters(locks, 3)
        other.latch(name).count_down()
        assert not any(each.done() for each in waiting)
        other.latch(name).count_down()
        assert [each.result(PATIENCE) for each in waiting] == [True] * 3
        assert latch_waiters(locks) == 0

    def test_who_comes_late_passes(self, locks: distlock.Locks, other: distlock.Locks, name: str) -> None:
        locks.latch(name, 1).make()
        locks.latch(name).count_down()
        for late in (locks, other):
            assert late.latch(name).wait()
            assert late.latch(name).wait(0)

    def test_a_wait_in_vain_ends_on_time(
        self, locks: distlock.Locks, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        # The client accepts answers that come long after the timeout.
        monkeypatch.setattr(latch_waits, "REPLY_GRACE", 2 * PATIENCE)
        locks.latch(name, 1).make()
        began = clock.now()
        assert not locks.latch(name).wait(BRIEF)
        assert BRIEF <= clock.now() - began < PATIENCE
        backend: Any = engine_of(locks).backend
        look, pause = backend.look_at_latches, threading.Event()
        # The answer comes after the timeout.
        monkeypatch.setattr(backend, "look_at_latches", lambda *those: (pause.wait(0.1), look(*those))[1])
        assert not locks.latch(name).wait(0.001)
        assert clock.now() - began < PATIENCE
        assert not locks.latch(name).wait(0)
        assert latch_waiters(locks) == 0

    def test_who_waits_for_one_that_ends_is_told(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        locks.latch(name, 1, ttl=1.0).make()
        waiting = [pool.submit(locks.latch(name).wait, seconds) for seconds in (PATIENCE, -1)]
        for each in waiting:
            with pytest.raises(distlock.LatchNotFound, match=name):
                each.result(PATIENCE)

    def test_who_waits_for_one_that_is_deleted_is_told(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor, no_poll: None
    ) -> None:
        locks.latch(name, 1).make()
        waiting = pool.submit(locks.latch(name).wait, PATIENCE)
        wait_for_latch_waiters(locks, 1)
        assert other.latch(name).delete()
        with pytest.raises(distlock.LatchNotFound, match=name):
            waiting.result(PATIENCE)
        for each in (locks, other):
            assert not each.latch(name).delete()
        assert locks.latch(name, 2).make(), "the next round may have its name"

    def test_who_waits_for_one_does_not_pass_with_the_next_of_its_name(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        latch = locks.latch(name, 1)
        latch.make()
        waiting = pool.submit(latch.wait, PATIENCE)
        wait_for_latch_waiters(locks, 1)
        backend: Any = engine_of(locks).backend
        look, made = backend.look_at_latches, threading.Event()

        def late(keys: Sequence[str], watch: bool, *more: Any) -> Any:
            # Only a waiter's look is delayed: delete() and count_down() look without a watch.
            return (not watch or made.wait(PATIENCE)) and look(keys, watch, *more)

        monkeypatch.setattr(backend, "look_at_latches", late)
        assert (latch.delete(), latch.make(), latch.count_down()) == (True, True, 0)
        made.set()
        with pytest.raises(distlock.LatchNotFound, match=name):
            waiting.result(PATIENCE)

    def test_to_delete_one_may_be_repeated(self, locks: distlock.Locks, name: str) -> None:
        locks.latch(name, 1).make()
        Faulty(engine_of(locks).backend).lose_replies["delete_latch"] = 2
        locks.latch(name).delete()
        with pytest.raises(distlock.LatchNotFound):
            locks.latch(name).count()

    def test_who_waits_is_woken_after_a_reconnect(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor, no_poll: None
    ) -> None:
        locks.latch(name, 1).make()
        waiting = pool.submit(locks.latch(name).wait, PATIENCE)
        wait_for_latch_waiters(locks, 1)
        sink, waits = engine_of(locks).sink, engine_of(locks).sink.latch_waits
        # Lose the notification, as a broken connection does.
        sink.latch_waits = None
        other.latch(name).count_down()
        pause = threading.Event()
        pause.wait(BRIEF)
        assert not waiting.done()
        sink.latch_waits = waits
        sink.missed_notifications()
        assert waiting.result(PATIENCE)

    def test_who_waits_outlasts_a_service_that_is_away_for_a_moment(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        faulty = Faulty(engine_of(locks).backend)
        locks.latch(name, 1).make()
        waiting = pool.submit(locks.latch(name).wait, PATIENCE)
        wait_for_latch_waiters(locks, 1)
        faulty.lose_replies["look_at_latches"] = 3
        engine_of(locks).sink.missed_notifications()
        wait_until(lambda: not faulty.lose_replies["look_at_latches"], "it was away")
        assert not waiting.done()
        other.latch(name).count_down()
        assert waiting.result(PATIENCE)

    def test_where_nobody_can_tell_a_wait_is_no_mere_time_out(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        faulty = Faulty(engine_of(locks).backend)
        locks.latch(name, 1).make()
        # All further answers are lost, so there is none to wait for.
        monkeypatch.setattr(latch_waits, "REPLY_GRACE", BRIEF)
        waiting = pool.submit(locks.latch(name).wait, 4 * BRIEF)
        wait_for_latch_waiters(locks, 1)
        faulty.lose_replies["look_at_latches"] = 1000
        engine_of(locks).sink.missed_notifications()
        with pytest.raises(BackendUnavailable):
            waiting.result(PATIENCE)
        with pytest.raises(BackendUnavailable):
            locks.latch(name).wait(BRIEF)

    # -- many ------------------------------------------------------------------------------------

    def test_many_waiters_cost_one_thread_and_few_looks(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        names = [f"{name}_{number}" for number in range(20)]
        for each in names:
            other.latch(each, 1).make()
        looks = watch_looks(locks, monkeypatch)

        async def main() -> None:
            assert not await locks.latch(names[0]).await_(0)
            before = set(threading.enumerate())
            tasks = [asyncio.create_task(locks.latch(each).await_()) for each in names for _ in range(50)]
            while latch_waiters(locks) < len(tasks):
                await asyncio.sleep(0)
            assert len(set(threading.enumerate()) - before) <= self.threads
            await asyncio.gather(*(other.latch(each).acount_down() for each in names))
            assert await asyncio.gather(*tasks) == [True] * len(tasks)

        asyncio.run(main())
        # The client looks at each latch when its first waiter comes, and when it opens.
        assert len(looks) < 100

    def test_a_cancelled_task_leaves_nothing_behind(self, locks: distlock.Locks, name: str) -> None:
        async def main() -> None:
            await locks.latch(name, 1).amake()
            task = asyncio.create_task(locks.latch(name).await_())
            while not latch_waiters(locks):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert latch_waiters(locks) == 0
            assert await locks.latch(name).acount() == 1

        asyncio.run(main())

    def test_a_closed_client_waits_for_nothing_and_leaves_no_thread(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        locks = connect()
        locks.latch(name, 1).make()
        waiting = pool.submit(locks.latch(name).wait, PATIENCE)
        wait_for_latch_waiters(locks, 1)
        locks.close()
        with pytest.raises(BackendUnavailable, match="closed"):
            waiting.result(PATIENCE)
        assert "distlock-latches" not in {thread.name for thread in threading.enumerate()}
        # A closed client connects again.
        assert not locks.latch(name).wait(0)

    def test_nobody_waits_and_no_thread_is_left(
        self, locks: distlock.Locks, name: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(latch_waits, "LINGER", 0.05)
        locks.latch(name, 1).make()
        assert not locks.latch(name).wait(BRIEF)
        wait_until(
            lambda: "distlock-latches" not in {thread.name for thread in threading.enumerate()},
            "the thread has ended",
        )
        locks.latch(name).count_down()
        assert locks.latch(name).wait(PATIENCE)


def next_of(locks: distlock.Locks, name: str, count: int = 1) -> None:
    """Begin the next round: delete the latch *name*, and make another one."""
    assert locks.latch(name).delete()
    assert locks.latch(name, count).make()


def is_gone(locks: distlock.Locks, name: str) -> bool:
    try:
        locks.latch(name).count()
    except distlock.LatchNotFound:
        return True
    return False


def life_of(locks: distlock.Locks, name: str) -> str:
    backend: Any = engine_of(locks).backend
    (state,) = backend.look_at_latches([locks.latch(name)._key])
    assert state is not None
    life: str = state.life
    return life


def watch_looks(locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Return a list that records the keys of each request for the state of latches."""
    backend: Any = engine_of(locks).backend
    assert isinstance(backend, Latches)
    look, looks = backend.look_at_latches, []

    def watched(keys: Sequence[str], *more: Any, **words: Any) -> Sequence[LatchState | None]:
        looks.append(keys)
        return look(keys, *more, **words)

    monkeypatch.setattr(backend, "look_at_latches", watched)
    return looks
