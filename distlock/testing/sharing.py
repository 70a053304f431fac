"""The conformance kit: what a user may rely on of locks that readers share, through `distlock.connect`."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor, as_completed

import pytest

import distlock
from distlock import clock
from distlock.testing.fixtures import (
    BRIEF,
    PATIENCE,
    ConformanceFixtures,
    Connect,
    engine_of,
    wait_for_waiters,
    wait_until,
)
from distlock.testing.history import Record, check_history


class SharingConformance(ConformanceFixtures):
    """For backends with the capability `read`."""

    # -- exclusion -------------------------------------------------------------------------------

    def test_readers_see_nothing_half_written(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        clients = [connect(), connect()]
        left = right = 0
        torn: list[tuple[int, int]] = []
        history: list[Record] = []

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
                history.append(Record(name, f"w{number}", asked, granted, ended, grant.fence))

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
                history.append(Record(name, f"r{number}", asked, granted, ended, grant.fence, "read"))

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
        """Readers whose reads overlap, so that the process always has one inside."""
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
        # Either may have asked first.
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
        # In the same moment, so that both share a hold.
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
        # Only the hung process could renew what it still has.
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
