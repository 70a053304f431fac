"""A signal handler raises at any moment of acquire and release: nothing may be held or waited for in vain."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import distlock
from distlock.testing.fakes import lose_grant
from distlock.testing.waits import engine_of, wait_until
from tests.core.interrupts import interrupted
from tests.flask_guard import guarded_site
from tests.redis_server import RedisServer

#: Seconds. A caller that is granted nothing for that long waits in vain.
PATIENCE = 60.0
#: A lock that nobody knows of ends after this, seconds, and the ttl.
MAX_HOLD = 1.0
TTL = 0.6

Scene = Callable[[distlock.Locks], None]


def _with(locks: distlock.Locks) -> None:
    with locks.lock("a"):
        pass


def _acquire_and_release(locks: distlock.Locks) -> None:
    lock = locks.lock("a")
    lock.acquire()
    lock.release()


def _several_names(locks: distlock.Locks) -> None:
    with locks.lock("a", "b"):
        pass


def _reentrant(locks: distlock.Locks) -> None:
    with locks.rlock("a"), locks.rlock("a", "b"):
        pass


def _of_several_locks(locks: distlock.Locks) -> None:
    with distlock.multi_lock(locks.lock("b"), locks.lock("a")):
        pass


def _read_twice(locks: distlock.Locks) -> None:
    with locks.read_lock("a"), locks.read_lock("a"):
        pass


def _downgraded(locks: distlock.Locks) -> None:
    with locks.write_lock("a") as grant, locks.read_lock("a"):
        grant.downgrade()


def _permits(locks: distlock.Locks) -> None:
    with locks.semaphore("a", limit=2, permits=2):
        pass


SCENES: dict[str, Scene] = {
    "with": _with,
    "acquire and release": _acquire_and_release,
    "several names": _several_names,
    "reentrant": _reentrant,
    "several locks": _of_several_locks,
    "read twice": _read_twice,
    "downgraded": _downgraded,
    "permits": _permits,
}


def check(engine: Any) -> None:
    """Nothing is left: no mutex, no waiter, no hold, no count."""
    assert engine.section.mutex.acquire(timeout=PATIENCE)
    engine.section.catch_up()
    engine.section.mutex.release()
    wait_until(lambda: not engine.renewer.holds and not engine.cancellations, "nothing is kept")
    assert engine.queues.by_key == {}
    assert engine.queues.waiting == 0


@pytest.mark.parametrize("scene", [*SCENES, "guard"])
def test_whoever_is_interrupted_leaves_nothing_behind(scene: str) -> None:
    play(scene, f"memory://interrupted-{scene.replace(' ', '-')}", every=1)


# The collector closes a connection that was interrupted.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_nor_does_one_on_redis(redis_server: RedisServer) -> None:
    play("with", redis_server.url, every=7)


def play(scene: str, url: str, every: int) -> None:
    if scene == "guard":
        settings = {"LOCATION": url, "TTL": TTL, "MAX_HOLD": MAX_HOLD, "TIMEOUT": PATIENCE}
        locks, call = guarded_site(lambda: None, "a", settings)
    else:
        locks = distlock.connect(url, ttl=TTL, max_hold=MAX_HOLD, timeout=PATIENCE)
        call = partial(SCENES[scene], locks)
    other = distlock.connect(url, ttl=TTL, timeout=PATIENCE)
    late: list[str] = []
    points = 0
    with other.lock("z"):
        pass
    call()
    for number in itertools.count(1, every):
        where = interrupted(call, number)
        if where is None:
            break
        points += 1
        began = time.monotonic()
        for lock in (other.lock("a"), other.lock("b"), other.semaphore("a", limit=2, permits=2)):
            grant = lock.acquire()
            assert grant is not None, f"{where}: {lock} is dead"
            grant.release()
        if time.monotonic() - began >= MAX_HOLD / 2:
            late.append(where)
        # The same thread, which may be inside something it has never left, gets it as well.
        for lock in (locks.rlock("a", "b"), locks.semaphore("a", limit=2, permits=2)):
            grant = lock.acquire()
            assert grant is not None, where
            grant.check()
            grant.release()
        locks.namespace.entered_by_owner.clear()
        assert locks.namespace.entries_mutex.acquire(timeout=PATIENCE)
        locks.namespace.entries_mutex.release()
        check(engine_of(locks))
    assert points * every > 100, f"{points} points: is anything traced?"
    # No handler can help where __exit__ has not begun: one point of each block.
    assert len(late) <= 4, late
    locks.close()
    other.close()


def test_a_release_that_is_interrupted_gives_back_its_own_grant_and_no_lost_one() -> None:
    locks = distlock.connect("memory://interrupted-release", timeout=PATIENCE)
    kept = []
    for number in itertools.count(1):
        lock = locks.lock("a")
        lost = lock.acquire()
        assert lost is not None
        lose_grant(lost, "the test takes it away")
        grant = lock.acquire()
        assert grant is not None
        where = interrupted(lock.release, number)
        if not grant.released:
            kept.append(where)
            grant.release()
        assert not lost.released
        if where is None:
            break
    assert number > 20
    # No handler can help where release() has not begun.
    assert len(kept) <= 1, kept
    locks.close()
