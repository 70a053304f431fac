"""The conformance kit: lost replies, lost locks, and callers that are cancelled or hang."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.testing.fixtures import ConformanceFixtures, Connect, Faulty
from distlock.testing.waits import BRIEF, LONG, PATIENCE, ask_of, engine_of, wait_until


def make_faulty(locks: distlock.Locks) -> Faulty:
    return Faulty(engine_of(locks).backend)


class TroubleConformance(ConformanceFixtures):
    """Tests for all backends."""

    # -- lost replies ----------------------------------------------------------------------------

    def test_a_lock_whose_reply_was_lost_is_not_held_by_a_ghost(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        make_faulty(locks).lose_replies["request"] = 1
        with pytest.raises(distlock.BackendUnavailable):
            locks.lock(name).acquire()
        assert other.lock(name).acquire(timeout=PATIENCE)

    def test_a_release_whose_reply_was_lost_releases(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        make_faulty(locks).lose_replies["release"] = 1
        with locks.lock(name):
            pass
        assert other.lock(name).acquire(timeout=PATIENCE)

    def test_a_place_in_the_queue_whose_reply_was_lost_is_given_up(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        faulty = make_faulty(locks)
        with other.lock(name):
            faulty.lose_replies["request"] = 1
            with pytest.raises(distlock.BackendUnavailable):
                locks.lock(name).acquire()
        wait_until(lambda: not other.lock(name).locked(), "nobody holds it")

    def test_a_waiter_who_cannot_cancel_is_out_of_the_queue_all_the_same(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        faulty = make_faulty(locks)
        with other.lock(name):
            faulty.lose_replies["cancel"] = 1
            with pytest.raises(distlock.BackendUnavailable):
                locks.lock(name).acquire(timeout=BRIEF)
        wait_until(lambda: not other.lock(name).locked(), "nobody holds it")

    def test_the_others_are_told_too_when_the_service_fails(
        self, locks: distlock.Locks, other: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        faulty = make_faulty(locks)
        with other.lock(name):
            waiting = [pool.submit(locks.lock(name).acquire) for _ in range(5)]
            wait_until(lambda: engine_of(locks).queues.waiting == 5, "5 waiters")
            faulty.lose_replies["request"] = 1
            engine_of(locks).sink.missed_notifications()
            for future in waiting:
                with pytest.raises(distlock.BackendUnavailable):
                    future.result(PATIENCE)
        assert locks.lock(name).acquire(timeout=PATIENCE)

    # -- cancelled tasks -------------------------------------------------------------------------

    def test_a_cancelled_waiter_leaves_nothing_behind(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        async def main() -> None:
            task = asyncio.ensure_future(locks.lock(name).aacquire())
            while engine_of(locks).queues.waiting == 0:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        with other.lock(name):
            asyncio.run(main())
            assert engine_of(locks).queues.by_key == {}
        wait_until(lambda: not other.lock(name).locked(), "nobody holds it")

    def test_who_is_cancelled_while_it_is_granted_passes_the_lock_on(
        self, locks: distlock.Locks, name: str
    ) -> None:
        async def main() -> None:
            for _ in range(20):
                grant = await locks.lock(name).aacquire()
                assert grant is not None
                tasks = [asyncio.ensure_future(locks.lock(name).aacquire()) for _ in range(3)]
                while engine_of(locks).queues.waiting < 3:
                    await asyncio.sleep(0)
                await grant.arelease()
                tasks[0].cancel()
                results = await asyncio.gather(*tasks[:1], return_exceptions=True)
                if not isinstance(results[0], BaseException) and results[0] is not None:
                    await results[0].arelease()
                for task in tasks[1:]:
                    passed = await task
                    assert passed is not None
                    await passed.arelease()

        asyncio.run(main())
        wait_until(lambda: not locks.lock(name).locked(), "nobody holds it")

    # -- loss ------------------------------------------------------------------------------------

    def test_a_holder_is_told_that_its_lock_was_lost(self, connect: Connect, name: str) -> None:
        told: list[tuple[Any, str]] = []
        locks = connect(ttl=1.0, on_lost=lambda grant, why: told.append((grant, why)))
        grant = locks.lock(name).acquire()
        assert grant is not None
        grant.check()
        # Release the hold behind the holder's back, as an operator who breaks it does.
        engine_of(locks).backend.release(ask_of(grant))
        engine_of(locks).sink.missed_notifications()
        if engine_of(locks).backend.capabilities.lease:
            wait_until(lambda: bool(told), "on_lost was called")
            assert told[0][0] is grant
            assert grant.lost
            with pytest.raises(distlock.LockLost, match=name):
                grant.check()
        grant.release()
        assert told[0][0] is grant

    def test_a_hung_holder_does_not_keep_the_lock(
        self, connect: Connect, other: distlock.Locks, name: str
    ) -> None:
        told: SimpleQueue[str] = SimpleQueue()
        locks = connect(ttl=0.6, max_hold=0.5, on_lost=lambda grant, why: told.put(why))
        grant = locks.lock(name).acquire()
        assert grant is not None
        second = other.lock(name).acquire(timeout=PATIENCE)
        assert second is not None
        # A busy machine may miss a renewal, too, but max_hold has to end this hold.
        assert "max_hold" in told.get(timeout=PATIENCE)
        assert grant.lost
        assert second.fence > grant.fence
        grant.release()
        assert not second.lost

    def test_a_busy_holder_keeps_the_lock_longer_than_its_ttl(
        self, connect: Connect, other: distlock.Locks, name: str
    ) -> None:
        locks = connect(ttl=1.2)
        grant = locks.lock(name).acquire()
        assert grant is not None
        assert other.lock(name).acquire(timeout=2.4) is None
        grant.check()
        grant.release()

    # -- back to baseline ------------------------------------------------------------------------

    #: How many names are locked. The test class of a slow backend may lower this, and says why.
    names = 100_000
    #: The ttl of these locks, seconds. What a lock service keeps for the fences of a name may last as long.
    ttl_of_names = LONG
    #: After this many names, all connections and threads that stay are open.
    first_names = 1

    def residue(self) -> int:
        """Return the number of keys, files or nodes on the lock service. Test classes may override this."""
        return 0

    def test_many_names_leave_nothing_behind(self, connect: Connect) -> None:
        locks = connect(ttl=self.ttl_of_names)
        for number in range(self.first_names):
            with locks.lock(f"first_{number}"):
                pass
        gc.collect()
        files, threads, residue = len(os.listdir("/proc/self/fd")), threading.active_count(), self.residue()
        for number in range(self.names):
            with locks.lock(f"many_{number}"):
                pass
        assert engine_of(locks).queues.by_key == {}
        assert engine_of(locks).queues.waiting == 0
        assert not engine_of(locks).renewer.holds
        # If a reply came too late on a busy machine, the maintenance thread repeats the release.
        wait_until(lambda: not engine_of(locks).cancellations, "nothing is to be given back")
        # Other code in this process may have files open for a moment.
        wait_until(lambda: len(os.listdir("/proc/self/fd")) <= files, "no more files are open than before")
        wait_until(lambda: threading.active_count() <= threads, "no more threads run than before")
        assert self.residue() <= residue

    def test_a_closed_client_leaves_no_thread(self, connect: Connect, name: str) -> None:
        before = set(threading.enumerate())
        began = clock.now()
        locks, other = connect(), connect()
        with locks.lock(name):
            assert other.lock(name).acquire(timeout=BRIEF) is None
        locks.close()
        other.close()
        assert not set(threading.enumerate()) - before
        assert clock.now() - began < PATIENCE
