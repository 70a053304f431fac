"""The conformance kit: locks between the processes of one host, which are stopped and killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock.locks import latch_waits
from distlock.testing.fixtures import ConformanceFixtures
from distlock.testing.history import HistoryRecord, check_history
from distlock.testing.process import Process
from distlock.testing.waits import (
    BRIEF,
    LONG,
    PATIENCE,
    ask_of,
    engine_of,
    wait_for_latch_waiters,
    wait_until,
)

#: Seconds by which a busy machine may be late.
BUSY = PATIENCE / 2


class ProcessFixtures(ConformanceFixtures):
    """Fixtures for the parts of the kit that start other processes."""

    #: Seconds until the lock of a crashed process is free: the ttl, or 0 without leases.
    ttl = 2.0

    @pytest.fixture
    def process(self, url: str, options: dict[str, Any]) -> Iterator[Callable[..., Process]]:
        made: list[Process] = []

        def start(**more: Any) -> Process:
            made.append(Process(url, **{"prefix": "kit", "ttl": self.ttl, **options, **more}))
            return made[-1]

        yield start
        for one in made:
            one.finish()

    def waiting(self, name: str) -> int:
        """Return the number of processes that wait for *name*. Each backend's test class overrides this."""
        raise NotImplementedError

    def wait_for_processes(self, name: str, count: int) -> None:
        wait_until(lambda: self.waiting(name) == count, f"{count} processes wait")


class UnfairProcessConformance(ProcessFixtures):
    """Tests for all backends, also those without a queue of processes."""

    def test_one_process_is_inside_at_a_time(
        self, process: Callable[..., Process], name: str, tmp_path: Path, pool: ThreadPoolExecutor
    ) -> None:
        counter = tmp_path / "counter"
        counter.write_text("0", encoding="ascii")
        rounds, processes = 200, [process() for _ in range(3)]
        for one in processes:
            one.begin("hammer", name, rounds, str(counter))
        history = [
            HistoryRecord(
                name, str(one.pid), row["asked"], row["granted"], row["released"], tuple(row["fence"])
            )
            for one in processes
            for row in one.end(PATIENCE * 3)
        ]
        assert int(counter.read_text(encoding="ascii")) == rounds * len(processes)
        assert check_history(history) == []

    def test_the_lock_of_a_killed_process_is_free_again(
        self, process: Callable[..., Process], locks: distlock.Locks, name: str
    ) -> None:
        holder = process()
        fence = holder.do("acquire", name, PATIENCE)["fence"]
        assert locks.lock(name).acquire(blocking=False) is None
        holder.kill()
        grant = locks.lock(name).acquire(timeout=self.ttl + BUSY)
        assert grant is not None
        assert list(grant.fence) > fence

    def test_a_forked_child_holds_nothing_and_frees_nothing(
        self, process: Callable[..., Process], locks: distlock.Locks, name: str
    ) -> None:
        holder = process()
        holder.do("acquire", name, PATIENCE)
        child = holder.do("fork", name)
        try:
            assert child["lost"]
            assert not child["took"]
            assert locks.lock(name).acquire(timeout=BRIEF) is None
        finally:
            os.kill(child["child"], signal.SIGKILL)
        assert not holder.do("state")["lost"]
        holder.do("release")
        assert locks.lock(name).acquire(timeout=PATIENCE)

    def test_a_forked_child_that_lives_on_does_not_keep_the_lock_of_its_killed_parent(
        self, process: Callable[..., Process], locks: distlock.Locks, name: str
    ) -> None:
        holder = process()
        holder.do("acquire", name, PATIENCE)
        child = holder.do("fork", name)
        try:
            holder.kill()
            assert locks.lock(name).acquire(timeout=self.ttl + BUSY)
        finally:
            os.kill(child["child"], signal.SIGKILL)


class ProcessConformance(UnfairProcessConformance):
    """Tests for backends that are `fair`."""

    def test_a_released_lock_goes_to_the_process_that_asked_first(
        self, process: Callable[..., Process], locks: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        first = process()
        with locks.lock(name):
            first.begin("acquire", name, PATIENCE)
            self.wait_for_processes(name, 1)
            second = pool.submit(locks.lock(name).acquire)
        fence = first.end()["fence"]
        assert not second.done()
        first.do("release")
        grant = second.result(PATIENCE)
        assert grant is not None
        assert list(grant.fence) > fence

    def test_a_killed_waiter_does_not_keep_the_others_waiting(
        self, process: Callable[..., Process], locks: distlock.Locks, name: str
    ) -> None:
        with locks.lock(name):
            # With so long a ttl, the test can't pass because a lease ended.
            waiters = [process(ttl=LONG) for _ in range(2)]
            for number, waiter in enumerate(waiters):
                waiter.begin("acquire", name, PATIENCE)
                self.wait_for_processes(name, number + 1)
            waiters[0].kill()
        assert waiters[1].end(patience=LONG / 2)["fence"]


class UnfairProcessLeaseConformance(ProcessFixtures):
    """Tests for backends with the capability `lease`: a stopped process does not keep a lock."""

    def test_a_stopped_holder_learns_that_it_lost_the_lock(
        self, process: Callable[..., Process], locks: distlock.Locks, name: str
    ) -> None:
        holder = process()
        fence = holder.do("acquire", name, PATIENCE)["fence"]
        holder.stop()
        grant = locks.lock(name).acquire(timeout=self.ttl + BUSY)
        assert grant is not None
        holder.go_on()
        assert holder.do("state")["lost"]
        holder.do("release")
        assert not grant.lost
        assert engine_of(locks).backend.renew([ask_of(grant)]) == [True]
        assert list(grant.fence) > fence


class ProcessLeaseConformance(UnfairProcessLeaseConformance):
    """Tests for backends with the capability `lease` that are `fair`."""

    def test_a_stopped_waiter_costs_the_others_little(
        self, process: Callable[..., Process], locks: distlock.Locks, name: str
    ) -> None:
        # With so long a ttl, the test can't pass because a lease ended.
        stopped, waiter = process(ttl=LONG), process(ttl=LONG)
        with locks.lock(name):
            stopped.begin("acquire", name, PATIENCE)
            self.wait_for_processes(name, 1)
            # On ZooKeeper, a waiter that first looks after the release would see the stopped process hold the
            # lock.
            waiter.do("begin_to_acquire", name, PATIENCE)
            stopped.stop()
        waiter.begin("end_acquire")
        assert waiter.end(patience=LONG / 2)["fence"]
        waiter.do("release")
        stopped.go_on()
        assert stopped.end()["fence"]


class KilledConformance(ProcessFixtures):
    """Tests for backends with the capabilities `inspect`, `read`, `permits` and `latch`.

    No test depends on speed: each fails only if a killed process keeps what it held for far longer than its
    ttl.
    """

    def test_a_killed_reader_keeps_writers_out_no_longer_than_its_lease(
        self, process: Callable[..., Process], locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        reader = process()
        with locks.read_lock(name) as grant:
            assert reader.do("read", name, PATIENCE)
            assert other.inspect(name).others == 1
            reader.kill()
            wait_until(lambda: other.inspect(name).others == 0, "the dead reader is out")
            # The living reader still keeps writers out.
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
        # The waiter in this process does not poll, so only the last count wakes it.
        monkeypatch.setattr(latch_waits, "POLL", 10 * PATIENCE)
        locks.latch(name, 2).make()
        waiter = process()
        assert waiter.do("count_down", name) == 1
        waiter.do("wait_for_latch", name, PATIENCE)
        waiting = pool.submit(locks.latch(name).wait, PATIENCE)
        wait_for_latch_waiters(locks, 1)
        waiter.kill()
        assert other.latch(name).count() == 1
        assert other.latch(name).count_down() == 0
        assert waiting.result(PATIENCE)
