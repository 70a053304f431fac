"""The conformance kit: locks through `distlock.connect`, within one process, of one name or several."""

from __future__ import annotations

import asyncio
import math
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor, as_completed

import pytest

import distlock
from distlock import clock
from distlock.testing.fixtures import ConformanceFixtures, Connect
from distlock.testing.history import HistoryRecord, check_history
from distlock.testing.waits import BRIEF, PATIENCE, engine_of, wait_for_waiters, wait_until


class UnfairThreadConformance(ConformanceFixtures):
    """Tests for all backends, also those without a queue of processes."""

    # -- exclusion -------------------------------------------------------------------------------

    def test_one_caller_is_inside_at_a_time(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        clients = [connect(), connect()]
        rounds, callers = 40, 12
        total = 0
        history: list[HistoryRecord] = []

        def buy(number: int) -> None:
            nonlocal total
            lock = clients[number % 2].lock(name)
            for _ in range(rounds):
                asked = clock.now()
                with lock as grant:
                    granted = clock.now()
                    read = total
                    os.sched_yield()
                    total = read + 1
                    released = clock.now()
                history.append(HistoryRecord(name, str(number), asked, granted, released, grant.fence))

        for future in [pool.submit(buy, number) for number in range(callers)]:
            future.result(PATIENCE * 3)
        assert total == rounds * callers
        assert check_history(history) == []

    def test_waiters_of_one_process_are_served_in_order(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        served: list[int] = []

        def buy(number: int) -> None:
            with locks.lock(name):
                served.append(number)

        futures: list[Future[None]] = []
        with locks.lock(name):
            for number in range(20):
                futures.append(pool.submit(buy, number))
                wait_for_waiters(locks, number + 1)
        for future in futures:
            future.result(PATIENCE)
        assert served == list(range(20))

    # -- time ------------------------------------------------------------------------------------

    def test_a_wait_ends_on_time(self, locks: distlock.Locks, other: distlock.Locks, name: str) -> None:
        with locks.lock(name):
            for waiting in (locks, other):
                began = clock.now()
                assert waiting.lock(name).acquire(timeout=1.0) is None
                assert 1.0 <= clock.now() - began < 1.0 + PATIENCE / 2
        assert other.lock(name).acquire(timeout=PATIENCE) is not None

    def test_a_timed_out_with_does_not_enter(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        def wait() -> None:
            with pytest.raises(distlock.LockTimeout, match=name), other.lock(name, timeout=BRIEF):
                pytest.fail("entered without the lock")

        with locks.lock(name):
            pool.submit(wait).result(PATIENCE)

    def test_trying_once_does_not_wait(self, locks: distlock.Locks, other: distlock.Locks, name: str) -> None:
        with locks.lock(name):
            for waiting in (locks, other):
                assert waiting.lock(name).acquire(blocking=False) is None
                assert waiting.lock(name).acquire(timeout=0) is None
        # locked() waits until the pending release is carried out. Before, the other client may be refused.
        assert not locks.lock(name).locked()
        grant = other.lock(name).acquire(blocking=False)
        assert grant is not None
        grant.release()

    def test_who_timed_out_leaves_nothing_behind(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        grant = locks.lock(name).acquire()
        assert grant is not None
        assert other.lock(name).acquire(timeout=BRIEF) is None
        grant.release()
        assert not locks.lock(name).locked()
        assert engine_of(other).queues.by_key == {}

    def test_too_many_waiters_are_turned_away_at_once(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        locks = connect(max_waiters=3)
        with locks.lock(name):
            waiting = [pool.submit(locks.lock(name).acquire) for _ in range(3)]
            wait_for_waiters(locks, 3)
            with pytest.raises(distlock.TooManyWaiters, match="max_waiters=3"):
                locks.lock(name).acquire()
            with locks.lock(name + "_other"):
                pass
        # The threads may have begun to wait in another order than they were started in.
        for future in as_completed(waiting, PATIENCE):
            grant = future.result()
            assert grant is not None
            grant.release()

    # -- fences ----------------------------------------------------------------------------------

    def test_fences_grow_from_grant_to_grant(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        fences = []
        for client in (locks, locks, other, locks, other):
            with client.lock(name) as grant:
                fences.append(grant.fence)
        assert fences == sorted(set(fences))

    # -- as threading.Lock -----------------------------------------------------------------------

    def test_any_thread_may_release(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        lock = locks.lock(name)
        assert lock.acquire()
        pool.submit(lock.release).result(PATIENCE)
        grant = lock.acquire()
        assert grant is not None
        pool.submit(grant.release).result(PATIENCE)
        pool.submit(grant.release).result(PATIENCE)
        assert other.lock(name).acquire(blocking=False)

    def test_it_says_whether_it_is_locked_and_owned(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        lock, foreign = locks.lock(name), other.lock(name)
        assert not lock.locked()
        with lock:
            assert lock.locked()
            assert lock.owned()
            assert foreign.locked()
            assert not foreign.owned()
        assert not lock.locked()
        assert not lock.owned()

    def test_releasing_what_is_not_held_is_an_error(self, locks: distlock.Locks, name: str) -> None:
        with pytest.raises(distlock.NotHeld, match=name):
            locks.lock(name).release()
        with pytest.raises(RuntimeError):
            locks.rlock(name).release()

    @pytest.mark.parametrize(
        ("blocking", "timeout", "error"),
        [
            (False, 1.0, ValueError),
            (True, -2.0, ValueError),
            (True, math.nan, ValueError),
            (True, threading.TIMEOUT_MAX * 2, OverflowError),
        ],
    )
    def test_impossible_waits_are_the_errors_of_threading(
        self, locks: distlock.Locks, name: str, blocking: bool, timeout: float, error: type[Exception]
    ) -> None:
        with pytest.raises(error):
            threading.Lock().acquire(blocking, timeout)
        with pytest.raises(error):
            locks.lock(name).acquire(blocking, timeout)

    def test_no_limit_is_minus_one(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        with locks.lock(name):
            waiting = pool.submit(other.lock(name, timeout=0.01).acquire, timeout=-1)
            assert other.lock(name, timeout=BRIEF).acquire() is None
        grant = waiting.result(PATIENCE)
        assert grant is not None
        grant.release()

    # -- as threading.RLock ----------------------------------------------------------------------

    def test_its_owner_enters_a_reentrant_lock_again(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        with locks.rlock(name) as outer, locks.rlock(name) as inner:
            assert inner is outer
            assert locks.rlock(name).owned()
            assert pool.submit(locks.rlock(name).acquire, timeout=0.05).result(PATIENCE) is None
            with pytest.raises(distlock.NotHeld):
                pool.submit(locks.rlock(name).release).result(PATIENCE)
        assert not locks.rlock(name).owned()
        assert not locks.rlock(name).locked()

    def test_a_sibling_task_is_another_owner(self, locks: distlock.Locks, name: str) -> None:
        inside: list[str] = []

        async def enter(task: str) -> None:
            async with locks.rlock(name), locks.rlock(name):
                inside.append(task)
                await asyncio.sleep(0)
                inside.append(task)

        async def main() -> None:
            async with locks.rlock(name):
                children = [locks.rlock(name).aacquire(timeout=0.05) for _ in range(3)]
                assert await asyncio.gather(*children) == [None] * 3
            await asyncio.gather(*(enter(str(number)) for number in range(5)))

        asyncio.run(main())
        assert inside[::2] == inside[1::2]


class ThreadConformance(UnfairThreadConformance):
    """Tests for backends that are `fair`."""

    def test_clients_are_served_in_turns(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        """A client that always has waiters lets another client in after a bounded number of grants."""
        enough = threading.Event()
        busy = 0

        def keep_busy() -> None:
            nonlocal busy
            while not enough.is_set():
                with locks.lock(name):
                    busy += 1

        # With so many threads the wait queue is never empty by chance, which would let the other client in.
        crowd = [pool.submit(keep_busy) for _ in range(16)]
        gaps = []
        try:
            wait_until(lambda: busy > 10, "the crowd is under way")
            for _ in range(5):
                before = busy
                with other.lock(name):
                    gaps.append(busy - before)
        finally:
            enough.set()
        for future in crowd:
            future.result(PATIENCE)
        assert sorted(gaps)[2] <= 1000, f"grants to the crowd while one waited: {gaps}"


class CartConformance(ConformanceFixtures):
    """Tests for all backends: several names at once, and tasks beside threads."""

    # -- several names ---------------------------------------------------------------------------

    def test_several_names_are_all_held_or_none(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        a, b, c = (f"{name}_{letter}" for letter in "abc")
        with locks.lock(c):
            assert other.lock(c, b, a).acquire(timeout=BRIEF) is None
            for free in (a, b):
                assert not other.lock(free).locked()
        with other.lock(c, b, a, b) as grants:
            assert grants.names == (a, b, c)
            assert set(grants.fences) == {a, b, c}
            with pytest.raises(AttributeError, match="fences"):
                grants.fence  # noqa: B018

    def test_carts_in_opposite_order_do_not_deadlock(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        clients = [connect(), connect()]
        names = [f"{name}_{number}" for number in range(3)]

        def buy(number: int) -> None:
            for turn in range(10):
                order = names[turn % 3 :] + names[: turn % 3]
                with clients[number % 2].lock(*(order if number % 2 else reversed(order))):
                    pass

        with clients[0].lock(names[1]):
            # Without a common order, each of the two calls could hold a name that the other one waits for.
            futures = [pool.submit(buy, number) for number in range(2)]
            for client in clients:
                wait_for_waiters(client, 1)
        for future in futures + [pool.submit(buy, number) for number in range(8)]:
            future.result(PATIENCE * 2)

    # -- asyncio ---------------------------------------------------------------------------------

    def test_tasks_and_threads_share_a_lock(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        total = 0

        def buy() -> None:
            nonlocal total
            for _ in range(20):
                with locks.lock(name):
                    read = total
                    os.sched_yield()
                    total = read + 1

        async def order() -> None:
            nonlocal total
            for _ in range(20):
                async with locks.lock(name):
                    read = total
                    await asyncio.sleep(0)
                    total = read + 1

        async def main() -> None:
            await asyncio.gather(*(order() for _ in range(5)))

        threads = [pool.submit(buy) for _ in range(5)]
        asyncio.run(main())
        for thread in threads:
            thread.result(PATIENCE)
        assert total == 200
