"""What tests of event loops share: clients that are connected, and how far a call of a task has come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distlock
from distlock import Grant
from distlock.testing.waits import engine_of
from tests.backend_class import backend_class
from tests.backends.zookeeper.contender import LONG
from tests.core.test_interrupts import check
from tests.redis_server import PATIENCE, eventually

ZooKeeperBackend = backend_class("zookeeper://localhost")

Connect = Callable[..., distlock.Locks]


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(url: str, **settings: Any) -> distlock.Locks:
        usual = {"prefix": "tasks", "ttl": LONG, "timeout": PATIENCE, "io_timeout": PATIENCE}
        locks = distlock.connect(url, **{**usual, **settings})
        made.append(locks)
        # The first call connects.
        with locks.lock("warm_up"):
            pass
        return locks

    yield connect
    for one in made:
        one.close()


def backend_of(locks: distlock.Locks) -> ZooKeeperBackend:
    backend = engine_of(locks).backend
    assert isinstance(backend, ZooKeeperBackend)
    return backend


def line_of(locks: distlock.Locks) -> Any:
    return backend_of(locks)._contenders(LONG)


def is_calling(locks: distlock.Locks) -> bool:
    """Whether a call of a task is under way."""
    return bool(backend_of(locks)._under_way)


def settled(locks: distlock.Locks) -> None:
    """Nothing is left of what tasks did: no hold, no waiter, no node, no call."""
    check(engine_of(locks))
    eventually(lambda: not line_of(locks).nodes and not len(line_of(locks).leftovers), "it has no node")
    assert not is_calling(locks)


async def taken(locks: distlock.Locks, name: str) -> Grant:
    grant = await locks.lock(name).aacquire()
    assert grant is not None
    return grant


async def until(condition: Callable[[], object], what: str) -> None:
    """`eventually`, while the event loop runs."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)
    assert condition(), what
