"""Functions with which tests look into a client, and wait until it has reached a state."""

from __future__ import annotations

import threading
from collections.abc import Callable

import distlock
from distlock import clock
from distlock.backends.base import LockRequest
from distlock.engine.engine import Engine
from distlock.engine.hold import NameGrant
from distlock.locks.engine_namespace import EngineNamespace

#: Seconds after which a test gives up on something that should happen soon.
PATIENCE = 20.0
#: A time-out that a test lets pass, seconds. `ConformanceFixtures` lets the lock service answer later.
BRIEF = 0.5
#: A ttl that no test outlives, seconds, so that no test passes only because a lease ended.
LONG = 60.0


def engine_of(locks: distlock.Locks) -> Engine:
    assert isinstance(locks.namespace, EngineNamespace)
    return locks.namespace.engine


def ask_of(grant: distlock.Grant) -> LockRequest:
    """Return the lock request of the grant of one name, for tests that break locks on purpose."""
    assert isinstance(grant, NameGrant)
    return grant._hold.request


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Poll until *condition* holds. Fails after `PATIENCE` seconds."""
    pause = threading.Event()
    deadline = clock.now() + PATIENCE
    while not condition():
        assert clock.now() < deadline, f"not within {PATIENCE:g} seconds: {what}"
        pause.wait(0.005)


def wait_until_queued(locks: distlock.Locks) -> None:
    """Wait until callers wait for names, and the lock service has queued a request for each of the names."""

    def is_queued() -> bool:
        queues = list(engine_of(locks).queues.by_key.values())
        return bool(queues) and all(queue.queued is not None for queue in queues)

    wait_until(is_queued, "the lock service has queued each name")


def wait_for_waiters(locks: distlock.Locks, count: int) -> None:
    """Wait until *count* callers wait for locks."""
    wait_until(lambda: engine_of(locks).queues.waiting == count, f"{count} waiters")


def latch_waiters(locks: distlock.Locks) -> int:
    return sum(len(watched.waiters) for watched in locks.namespace.latches._watched.values())


def wait_for_latch_waiters(locks: distlock.Locks, count: int) -> None:
    """Wait until *count* callers wait for latches, and the client has looked at a latch for each of them."""

    def asleep() -> bool:
        watched = list(locks.namespace.latches._watched.values())
        waiters = [waiter for latch in watched for waiter in list(latch.waiters)]
        return len(waiters) == count and all(waiter.was_looked_at for waiter in waiters)

    wait_until(asleep, f"{count} waiters")
