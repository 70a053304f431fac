"""What tests of event loops share: clients with idle connections, and what tasks and threads do there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distlock
from distlock import Grant
from distlock.engine import sans_io
from distlock.testing.waits import engine_of
from tests.backend_class import backend_class
from tests.core.test_interrupts import check
from tests.redis_server import PATIENCE, RedisServer, eventually
from tests.stored import hold_key, owner_in

RedisBackend = backend_class("redis://localhost")

Connect = Callable[..., distlock.Locks]


@pytest.fixture
def connect() -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(url: str, **settings: Any) -> distlock.Locks:
        locks = distlock.connect(url, **{"prefix": "test", "ttl": 60, "timeout": PATIENCE, **settings})
        made.append(locks)
        # The first calls of a process connect, and find out whether the server has the scripts.
        with locks.lock("warm_up"):
            pass
        # So that nobody but tasks uses connections.
        eventually(lambda: not engine_of(locks).replies.any, "its answers are read")
        return locks

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def hops(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What threads were asked to do for tasks."""
    hops: list[str] = []
    begin = sans_io._begin_in_thread

    def noted(call: Any) -> Any:
        hops.append(call.function.__name__)
        return begin(call)

    monkeypatch.setattr(sans_io, "_begin_in_thread", noted)
    return hops


def pool_of(locks: distlock.Locks) -> Any:
    backend = engine_of(locks).backend
    assert isinstance(backend, RedisBackend)
    return backend._pool


def settled(locks: distlock.Locks) -> None:
    """Nothing is left of what tasks did: no hold, no waiter, no connection that is not in its place."""
    check(engine_of(locks))
    pool = pool_of(locks)
    eventually(lambda: len(pool._idle) == len(pool._all), "all connections are idle")
    eventually(lambda: not any(one.pending for one in list(pool._idle)), "all answers are read")


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


def held_by(server: RedisServer, name: str) -> str | None:
    """The token that holds *name* on the server."""
    return owner_in(server.client.get(hold_key(f"test:{name}")))


def queued(server: RedisServer, name: str) -> int:
    return server.client.llen(f"{hold_key(f'test:{name}')}:queue")


def is_calling(locks: distlock.Locks) -> bool:
    """Whether a connection is in use."""
    return len(pool_of(locks)._idle) < len(pool_of(locks)._all)


def pipeline_of(locks: distlock.Locks) -> Any:
    backend = engine_of(locks).backend
    assert isinstance(backend, RedisBackend)
    return backend._tasks.pipeline()
