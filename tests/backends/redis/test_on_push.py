"""Beginning on the push, over a network that is late: at worst a body is told that it has lost the lock."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

import distlock
from distlock.testing.waits import engine_of, wait_for_waiters
from tests.backends.redis.contender import some_key
from tests.backends.redis.proxy import Proxy, proxy
from tests.redis_server import PATIENCE, RedisServer, eventually
from tests.stored import hold_key

__all__ = ["proxy"]

#: Seconds: long enough that nothing but a test's own stall outlasts half of it.
WINDOW = 4.0
PREFIX = "test"


@pytest.fixture
def far(proxy: Proxy) -> Iterator[distlock.Locks]:
    """A process behind the network."""
    locks = distlock.connect(proxy.url, prefix=PREFIX, timeout=PATIENCE, ack_window=WINDOW)
    yield locks
    proxy.flow()
    locks.close()


@pytest.fixture
def near(redis_server: RedisServer) -> Iterator[distlock.Locks]:
    locks = distlock.connect(redis_server.url, prefix=PREFIX, timeout=PATIENCE, ack_window=WINDOW)
    yield locks
    locks.close()


@pytest.fixture
def name() -> str:
    return some_key().partition(":")[2]


class Waiting:
    """A thread of *far* that waits, while *near* holds the lock."""

    def __init__(self, near: distlock.Locks, far: distlock.Locks, name: str) -> None:
        self.holder = take(near, name)
        self.granted: list[Any] = []
        self.thread = threading.Thread(target=self._wait, args=(far, name), daemon=True)
        self.thread.start()
        wait_for_waiters(far, 1)
        room = engine_of(far).queues.by_key[f"{PREFIX}:{name}"]
        eventually(lambda: bool(room.waiters) and room.waiters[0].waited, "it is queued, and sleeps")

    def _wait(self, far: distlock.Locks, name: str) -> None:
        grant = far.lock(name, on_push=True).acquire(timeout=PATIENCE)
        assert grant is not None
        self.granted.append(grant)

    def grant(self) -> Any:
        self.thread.join(PATIENCE)
        (grant,) = self.granted
        return grant


def take(locks: distlock.Locks, name: str) -> distlock.Grant:
    grant = locks.lock(name).acquire(timeout=PATIENCE)
    assert grant is not None
    return grant


def end_window(server: RedisServer, name: str) -> None:
    """As time does to a hand-off that nobody acknowledges."""
    server.client.delete(hold_key(f"{PREFIX}:{name}"))


def test_a_body_begins_on_the_push_and_a_check_confirms_it(
    near: distlock.Locks, far: distlock.Locks, name: str, redis_server: RedisServer
) -> None:
    waiting = Waiting(near, far, name)
    waiting.holder.release()
    grant = waiting.grant()
    assert not grant._hold.acknowledged
    assert 0 < grant.remaining() < WINDOW
    grant.check()
    assert grant.remaining() > WINDOW
    assert redis_server.client.pttl(hold_key(f"{PREFIX}:{name}")) > 1000 * WINDOW
    grant.release()


@pytest.mark.fault("F18")
def test_a_stall_between_the_push_and_its_confirmation_raises_before_anything_is_committed(
    near: distlock.Locks, far: distlock.Locks, name: str, proxy: Proxy, redis_server: RedisServer
) -> None:
    """The confirmation is kept back until another was inside: its number is larger, so a fence sees it."""
    waiting = Waiting(near, far, name)
    waiting.holder.release()
    grant = waiting.grant()
    proxy.hold(replies=False)
    end_window(redis_server, name)
    later = take(near, name)
    later.release()
    assert later.fence > grant.fence
    proxy.flow()
    with pytest.raises(distlock.LockLost):
        grant.check()
    # It has not become the holder again.
    take(near, name).release()


def test_a_process_does_not_count_on_a_window_that_is_longer_than_the_one_of_who_hands_over(
    redis_server: RedisServer, far: distlock.Locks, name: str
) -> None:
    hasty = distlock.connect(redis_server.url, prefix=PREFIX, timeout=PATIENCE, ack_window=WINDOW / 2)
    waiting = Waiting(hasty, far, name)
    waiting.holder.release()
    grant = waiting.grant()
    assert grant._hold.acknowledged
    grant.release()
    hasty.close()
