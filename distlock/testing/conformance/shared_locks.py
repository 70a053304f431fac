"""The conformance kit: read-write locks and semaphores, through `distlock.connect`."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, as_completed, wait

import pytest

import distlock
from distlock import clock
from distlock.testing.fixtures import ConformanceFixtures, Connect
from distlock.testing.history import HistoryRecord, check_history
from distlock.testing.waits import BRIEF, PATIENCE, engine_of, wait_for_waiters, wait_until


class SharingConformance(ConformanceFixtures):
    """Tests for backends with the capability `read`."""

    # -- exclusion -------------------------------------------------------------------------------

    def test_readers_see_nothing_half_written(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        clients = [connect(), connect()]
        left = right = 0
        torn: list[tuple[int, int]] = []
        history: list[HistoryRecord] = []

        def write(number: int) -> None:
            nonlocal left, right
            for _ in range(10):
                asked = clock.now()
                with clients[number % 2].write_lock(name) as grant:
                    granted = clock.now()
                    left += 1
                    os.sched_yield()
                    right += 1
                    ended = clock.now()
                history.append(HistoryRecord(name, f"w{number}", asked, granted, ended, grant.fence))

        def read(number: int) -> None:
            for _ in range(20):
                asked = clock.now()
                with clients[number % 2].read_lock(name) as grant:
                    granted = clock.now()
                    seen = left
                    os.sched_yield()
                    if seen != right:
                        torn.append((seen, right))
                    ended = clock.now()
                history.append(HistoryRecord(name, f"r{number}", asked, granted, ended, grant.fence, "read"))

        work = [pool.submit(write, number) for number in range(4)]
        work += [pool.submit(read, number) for number in range(8)]
        for future in work:
            future.result(PATIENCE * 3)
        assert torn == []
        assert left == 40
        assert check_history(history) == []

    def test_readers_of_two_clients_are_inside_together(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        together = threading.Barrier(4)

        def read(client: distlock.Locks) -> None:
            with client.read_lock(name):
                together.wait(PATIENCE)

        for future in [pool.submit(read, client) for client in (locks, other) * 2]:
            future.result(PATIENCE)

    def test_a_reader_and_a_writer_keep_each_other_out(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        with locks.read_lock(name):
            assert locks.read_lock(name).locked()
            assert pool.submit(locks.lock(name).acquire, timeout=BRIEF).result(PATIENCE) is None
            assert pool.submit(other.lock(name).acquire, timeout=BRIEF).result(PATIENCE) is None
        with locks.write_lock(name):
            assert pool.submit(locks.read_lock(name).acquire, timeout=BRIEF).result(PATIENCE) is None
            assert pool.submit(other.read_lock(name).acquire, timeout=0).result(PATIENCE) is None
        assert not locks.read_lock(name).locked()

    def test_a_writer_gets_in_among_readers_that_never_cease(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        """The reads overlap, so that the first client always has a reader inside."""
        enough = threading.Event()
        inside = 0

        def read() -> None:
            nonlocal inside
            while not enough.is_set():
                with locks.read_lock(name):
                    inside += 1
                    enough.wait(0.02)

        readers = [pool.submit(read) for _ in range(8)]
        try:
            wait_until(lambda: inside > 20, "the readers are under way")
            with other.write_lock(name):
                pass
            with locks.write_lock(name):
                pass
        finally:
            enough.set()
        for future in readers:
            future.result(PATIENCE)

    # -- what one caller has already -------------------------------------------------------------

    def test_who_reads_reads_again_past_a_writer_that_waits(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        with locks.read_lock(name) as outer:
            near = pool.submit(locks.write_lock(name).acquire)
            far = pool.submit(other.write_lock(name).acquire)
            wait_for_waiters(locks, 1)
            wait_for_waiters(other, 1)
            with locks.read_lock(name, timeout=0) as inner:
                assert inner.fence == outer.fence
            assert not near.done()
            assert not far.done()
        # Either client may have been queued first.
        for future in as_completed((near, far), PATIENCE):
            grant = future.result()
            assert grant is not None
            grant.release()

    def test_who_writes_reads_beside(self, locks: distlock.Locks, name: str) -> None:
        with locks.write_lock(name) as writing:
            with locks.read_lock(name, timeout=0) as reading:
                assert (reading.mode, reading.fence) == ("read", writing.fence)
            assert locks.lock(name).locked()
        assert not locks.lock(name).locked()

    def test_a_read_outlives_the_write_that_it_began_in(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        writing = locks.write_lock(name).acquire()
        reading = locks.read_lock(name).acquire()
        assert writing is not None
        assert reading is not None
        writing.release()
        assert other.write_lock(name).acquire(timeout=0) is None
        reading.check()
        reading.release()
        assert not locks.lock(name).locked()

    def test_who_reads_is_refused_at_once_when_it_would_write(self, locks: distlock.Locks, name: str) -> None:
        with locks.read_lock(name):
            for lock in (locks.lock(name), locks.write_lock(name), locks.rlock(name)):
                with pytest.raises(distlock.ConfigurationError, match="downgrade"):
                    lock.acquire(timeout=PATIENCE)
                with pytest.raises(distlock.ConfigurationError, match="downgrade"), lock:
                    pytest.fail("entered")
            assert locks.lock(f"{name}_other").acquire(timeout=0)

    # -- from writing to reading -----------------------------------------------------------------

    def test_a_downgrade_lets_readers_in_and_no_writer(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        with locks.write_lock(name) as grant:
            near = pool.submit(locks.read_lock(name).acquire)
            wait_for_waiters(locks, 1)
            far = pool.submit(other.read_lock(name).acquire)
            wait_for_waiters(other, 1)
            grant.downgrade()
            assert grant.mode == "read"
            for future in (near, far):
                reading = future.result(PATIENCE)
                assert reading is not None
                reading.release()
            grant.check()
            assert pool.submit(other.lock(name).acquire, timeout=BRIEF).result(PATIENCE) is None
            with pytest.raises(distlock.ConfigurationError, match="downgrade"):
                locks.rlock(name).acquire(timeout=PATIENCE)
        assert not locks.lock(name).locked()

    def test_only_a_write_lock_is_downgraded(self, locks: distlock.Locks, name: str) -> None:
        with locks.read_lock(name) as grant, pytest.raises(distlock.ConfigurationError, match=name):
            grant.downgrade()
        with pytest.raises((distlock.ConfigurationError, distlock.NotHeld), match=name):
            grant.downgrade()
        with locks.lock(name) as grant:
            pass
        with pytest.raises(distlock.NotHeld, match=name):
            grant.downgrade()

    # -- time ------------------------------------------------------------------------------------

    def test_a_reader_that_hangs_is_lost_alone(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        hung = locks.read_lock(name, max_hold=BRIEF).acquire()
        # The second reader begins at once, so that both share a hold.
        living = locks.read_lock(name).acquire()
        assert hung is not None
        assert living is not None
        wait_until(lambda: hung.lost, "it has read for too long")
        with pytest.raises(distlock.LockLost, match="max_hold"):
            hung.check()
        living.check()
        assert other.write_lock(name).acquire(timeout=BRIEF) is None
        living.check()
        living.release()
        # The hold has ended with the living reader; the hung one keeps nothing.
        with other.write_lock(name):
            pass
        hung.release()

    def test_a_reader_behind_a_writer_leaves_in_time_and_without_trace(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        with locks.lock(name):
            assert other.read_lock(name).acquire(timeout=BRIEF) is None
            assert other.read_lock(name).acquire(timeout=0) is None
        assert not locks.lock(name).locked()
        assert engine_of(other).queues.by_key == {}

    # -- asyncio ---------------------------------------------------------------------------------

    def test_tasks_and_threads_read_together(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        inside, most = 0, 0

        async def read() -> None:
            nonlocal inside, most
            async with locks.read_lock(name), locks.read_lock(name):
                inside += 1
                most = max(most, inside)
                while most < 5:
                    await asyncio.sleep(0.01)
                inside -= 1

        async def main() -> None:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(read() for _ in range(5)))

        with locks.read_lock(name):
            pool.submit(asyncio.run, main()).result(PATIENCE)
        assert not locks.lock(name).locked()

    def test_a_cancelled_reader_leaves_nothing_behind(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        async def main() -> None:
            async with other.lock(name):
                readers = [asyncio.create_task(locks.read_lock(name).aacquire()) for _ in range(3)]
                while engine_of(locks).queues.waiting < 3:
                    await asyncio.sleep(0.01)
                for reader in readers:
                    reader.cancel()
                await asyncio.gather(*readers, return_exceptions=True)
            async with locks.write_lock(name) as grant:
                await grant.adowngrade()

        asyncio.run(main())
        assert engine_of(locks).queues.by_key == {}


class SemaphoreConformance(ConformanceFixtures):
    """Tests for backends with the capability `permits`."""

    def test_as_many_are_inside_as_it_has_permits(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        clients = [connect(), connect()]
        mutex = threading.Lock()
        together = threading.Barrier(3)
        inside, most = 0, 0

        def take(number: int) -> None:
            nonlocal inside, most
            for turn in range(10):
                with clients[number % 2].semaphore(name, limit=3):
                    with mutex:
                        inside += 1
                        most = max(most, inside)
                    if number < 3 and turn == 0:
                        together.wait(PATIENCE)
                    os.sched_yield()
                    with mutex:
                        inside -= 1

        first = [pool.submit(take, number) for number in range(3)]
        for future in [*first, *(pool.submit(take, number) for number in range(3, 8))]:
            future.result(PATIENCE * 2)
        assert most == 3

    def test_limits_that_differ_are_logged_once_and_halt_nobody(
        self,
        locks: distlock.Locks,
        other: distlock.Locks,
        name: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        for _ in range(3):
            with (
                locks.semaphore(name, limit=2),
                other.semaphore(name, limit=3),
                locks.semaphore(name, limit=3),
            ):
                pass
        said = [one.getMessage() for one in caplog.records if "is asked for with limit=" in one.getMessage()]
        # Each client logs it once, as each process does.
        assert 1 <= len(said) <= 2
        assert all(f"{name!r}" in one and "limit=2" in one and "limit=3" in one for one in said)

    def test_several_permits_are_taken_at_once_or_none(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        with locks.semaphore(name, limit=3, permits=2):
            assert other.semaphore(name, limit=3, permits=2).acquire(timeout=BRIEF) is None
            assert locks.semaphore(name, limit=3, permits=2).acquire(timeout=0) is None
            with (
                pytest.raises(distlock.LockTimeout, match=f"semaphore '{name}'"),
                other.semaphore(name, limit=3, permits=2, timeout=BRIEF),
            ):
                pytest.fail("entered")
            with other.semaphore(name, limit=3, timeout=PATIENCE):
                assert locks.semaphore(name, limit=3).acquire(timeout=0) is None
        with other.semaphore(name, limit=3, permits=3):
            pass

    def test_a_waiter_is_granted_what_is_given_back(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        grant = locks.semaphore(name, limit=1).acquire()
        assert grant is not None
        near = pool.submit(locks.semaphore(name, limit=1).acquire)
        wait_for_waiters(locks, 1)
        far = pool.submit(other.semaphore(name, limit=1).acquire)
        wait_for_waiters(other, 1)
        waiting = {near, far}
        while waiting:
            grant.release()
            # Either waiter may have been queued first.
            granted, waiting = wait(waiting, PATIENCE, FIRST_COMPLETED)
            later = granted.pop().result(0)
            assert later is not None
            grant = later
        grant.release()
        # locked() waits until the pending release is carried out.
        assert not other.semaphore(name, limit=1).locked()
        for client in (locks, other):
            assert engine_of(client).queues.by_key == {}

    def test_it_is_no_lock_of_that_name(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        with locks.semaphore(name, limit=1), locks.lock(name, timeout=0):
            assert other.semaphore(name, limit=1).acquire(timeout=0) is None
            assert other.lock(name).acquire(timeout=0) is None

    def test_code_may_have_several_permits(self, locks: distlock.Locks, name: str) -> None:
        semaphore = locks.semaphore(name, limit=2)
        with semaphore, semaphore:
            assert semaphore.acquire(timeout=0) is None

    def test_its_grants_have_no_fence(self, locks: distlock.Locks, name: str) -> None:
        with locks.semaphore(name, limit=2) as grant:
            assert grant.mode == "permit"
            for what in ("fence", "fences", "holder_ids"):
                with pytest.raises(distlock.ConfigurationError, match=name):
                    getattr(grant, what)
            grant.check()
            with pytest.raises(distlock.ConfigurationError, match=name):
                grant.downgrade()

    @pytest.mark.parametrize(("limit", "permits"), [(0, 1), (1, 0), (2, 3), (True, 1), (1.5, 1)])
    def test_numbers_that_can_not_be_are_refused(
        self, locks: distlock.Locks, name: str, limit: int, permits: int
    ) -> None:
        with pytest.raises(distlock.ConfigurationError):
            locks.semaphore(name, limit=limit, permits=permits)

    def test_tasks_take_permits(self, locks: distlock.Locks, name: str) -> None:
        inside, most = 0, 0

        async def take() -> None:
            nonlocal inside, most
            async with locks.semaphore(name, limit=2):
                inside += 1
                most = max(most, inside)
                while most < 2:
                    await asyncio.sleep(0.01)
                inside -= 1

        async def main() -> None:
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*(take() for _ in range(6)))

        asyncio.run(main())
        assert most == 2
        assert not locks.semaphore(name, limit=2).locked()
