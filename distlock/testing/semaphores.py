"""The conformance kit: what a user may rely on of semaphores, through `distlock.connect`."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

import pytest

import distlock
from distlock.testing.fixtures import (
    BRIEF,
    PATIENCE,
    ConformanceFixtures,
    Connect,
    engine_of,
    wait_for_waiters,
)


class SemaphoreConformance(ConformanceFixtures):
    """For backends with the capability `permits`."""

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
        # Each client says it, as a process does.
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
            # They wait, but which of them was first to ask the lock service is not known.
            granted, waiting = wait(waiting, PATIENCE, FIRST_COMPLETED)
            later = granted.pop().result(0)
            assert later is not None
            grant = later
        grant.release()
        # To ask awaits the answer to its own release.
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
