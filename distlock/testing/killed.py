"""The conformance kit: what is left of processes that are killed while they read, have permits, or wait.

For backends with the capabilities `inspect`, `read`, `permits` and `latch`, between processes of one host.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.locks import latch_waits
from distlock.testing.fixtures import PATIENCE, wait_until
from distlock.testing.latch_waiting import wait_for_waiters
from distlock.testing.process import Process
from distlock.testing.processes import ProcessFixtures


class KilledConformance(ProcessFixtures):
    """Nothing in it depends on how soon it is: what never comes back fails."""

    def test_a_killed_reader_keeps_writers_out_no_longer_than_its_lease(
        self, process: Callable[..., Process], locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        reader = process()
        with locks.read_lock(name) as grant:
            assert reader.do("read", name, PATIENCE)
            assert other.inspect(name).others == 1
            reader.kill()
            wait_until(lambda: other.inspect(name).others == 0, "the dead reader is out")
            # The one that lives reads on.
            assert other.lock(name).acquire(timeout=0) is None
            grant.check()
        assert other.lock(name).acquire(timeout=PATIENCE)

    def test_the_permits_of_a_killed_process_come_back_once(
        self, process: Callable[..., Process], locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        holder = process()
        with locks.semaphore(name, limit=3) as grant:
            assert holder.do("permits", name, 3, 2, PATIENCE)
            assert other.semaphore(name, limit=3).acquire(timeout=0) is None
            holder.kill()
            assert other.semaphore(name, limit=3, permits=2).acquire(timeout=PATIENCE)
            assert other.semaphore(name, limit=3).acquire(timeout=0) is None
            grant.check()

    def test_a_killed_waiter_of_a_latch_disturbs_nobody_and_its_count_stands(
        self,
        process: Callable[..., Process],
        locks: distlock.Locks,
        other: distlock.Locks,
        name: str,
        pool: ThreadPoolExecutor,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        # The last count wakes the one that waits here, and nothing else does.
        monkeypatch.setattr(latch_waits, "POLL", 10 * PATIENCE)
        locks.latch(name, 2).make()
        waiter = process()
        assert waiter.do("count_down", name) == 1
        waiter.do("wait_for_latch", name, PATIENCE)
        waiting = pool.submit(locks.latch(name).wait, PATIENCE)
        wait_for_waiters(locks, 1)
        waiter.kill()
        assert other.latch(name).count() == 1
        assert other.latch(name).count_down() == 0
        assert waiting.result(PATIENCE)
