"""`acquire` says None where it would most likely wait in vain, as after a time-out. A ``with`` raises."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import distlock
from distlock.testing.waits import engine_of, wait_for_waiters

#: Seconds that nobody waits in a passing run.
TIMEOUT = 60.0


@pytest.fixture
def locks(request: pytest.FixtureRequest) -> Iterator[distlock.Locks]:
    locks = distlock.connect(
        f"memory://{request.node.name}", ttl=10_000, timeout=TIMEOUT, max_hold=10_000, max_waiters=2
    )
    yield locks
    locks.close()


@pytest.fixture
def line(locks: distlock.Locks) -> Iterator[Callable[[], None]]:
    """Somebody holds the lock, and somebody waits for it, for longer than others would. Adds one more."""
    grant = locks.lock("a").acquire()
    assert grant is not None
    waiters: list[threading.Thread] = []

    def wait() -> None:
        with locks.lock("a", timeout=-1):
            pass

    def add() -> None:
        waiters.append(threading.Thread(target=wait))
        waiters[-1].start()
        wait_for_waiters(locks, len(waiters))

    add()
    engine = engine_of(locks)
    real = engine.now
    engine.now = lambda: real() + 2 * TIMEOUT
    yield add
    grant.release()
    for waiter in waiters:
        waiter.join()


@pytest.mark.usefixtures("line")
def test_who_would_wait_in_vain_gets_none_at_once(locks: distlock.Locks) -> None:
    with pytest.raises(distlock.TooManyWaiters), locks.lock("a"):
        pass
    assert locks.lock("a").acquire() is None
    assert locks.lock("a").acquire(timeout=0.5) is None
    assert locks.lock("a", "b").acquire() is None
    assert locks.rlock("a").acquire() is None

    async def acquire() -> distlock.Grant | None:
        return await locks.lock("a").aacquire()

    assert asyncio.run(acquire()) is None
    # Nothing is left of those with several names.
    grant = locks.lock("b").acquire()
    assert grant is not None
    grant.release()


def test_a_limit_of_the_site_s_own_is_told(locks: distlock.Locks, line: Callable[[], None]) -> None:
    line()
    with pytest.raises(distlock.TooManyWaiters, match="max_waiters=2"):
        locks.lock("a").acquire()
    # Without a wait there is no line to be refused from.
    assert locks.lock("a").acquire(timeout=0) is None
