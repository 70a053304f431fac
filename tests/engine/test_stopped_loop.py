"""An event loop that is stopped, and neither goes on nor is closed, does not hold up others for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import distlock
from distlock.testing.waits import engine_of, wait_until
from tests.core.test_interrupts import check
from tests.redis_server import RedisServer

#: Seconds that a passing run never needs.
CEILING = 60.0
PATIENCE = 1.0


@pytest.fixture(params=["memory", "redis"])
def url(request: pytest.FixtureRequest) -> str:
    if request.param == "memory":
        return "memory://stopped-loop"
    server: RedisServer = request.getfixturevalue("redis_server")
    return server.url


@pytest.fixture
def connect(url: str) -> Iterator[Callable[[], distlock.Locks]]:
    made: list[distlock.Locks] = []

    def connect() -> distlock.Locks:
        made.append(distlock.connect(url, prefix="stopped", ttl=CEILING, timeout=CEILING))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def waiting(
    loop: asyncio.AbstractEventLoop, locks: distlock.Locks, count: int = 1
) -> asyncio.Task[distlock.Grant | None]:
    """A task of *loop*, which is stopped while the task waits for the lock."""

    async def until_it_waits() -> None:
        engine = engine_of(locks)
        while not any(one.waited for room in engine.queues.by_key.values() for one in room.waiters):
            await asyncio.sleep(0.001)

    task = loop.create_task(locks.lock("a").aacquire(timeout=PATIENCE))
    loop.run_until_complete(asyncio.wait_for(until_it_waits(), CEILING))
    return task


def behind(locks: distlock.Locks) -> Callable[[], distlock.Grant | None]:
    """Somebody else waits in another thread. What comes of it."""
    grants: list[distlock.Grant | None] = []
    thread = threading.Thread(target=lambda: grants.append(locks.lock("a").acquire(timeout=CEILING / 2)))
    thread.start()
    wait_until(lambda: engine_of(locks).queues.waiting == 2, "it waits behind the task")

    def result() -> distlock.Grant | None:
        thread.join(CEILING)
        return grants[0]

    return result


@pytest.mark.parametrize("elsewhere", [True, False], ids=["leads", "granted"])
def test_those_behind_it_go_on(
    connect: Callable[[], distlock.Locks], loop: asyncio.AbstractEventLoop, elsewhere: bool
) -> None:
    locks = connect()
    held = (connect() if elsewhere else locks).lock("a").acquire()
    assert held is not None
    task = waiting(loop, locks)
    result = behind(locks)
    held.release()
    grant = result()
    assert grant is not None, "it waited in vain"
    assert loop.run_until_complete(task) is None, "a time-out"
    grant.check()
    grant.release()
    check(engine_of(locks))


def test_a_with_of_it_is_timed_out(
    connect: Callable[[], distlock.Locks], loop: asyncio.AbstractEventLoop
) -> None:
    locks, other = connect(), connect()
    held = other.lock("a").acquire()
    assert held is not None

    async def enter() -> None:
        async with locks.lock("a", timeout=PATIENCE):
            pytest.fail("It entered.")

    task = loop.create_task(enter())
    loop.run_until_complete(asyncio.sleep(0))
    wait_until(lambda: engine_of(locks).queues.waiting == 1, "it asks")
    wait_until(lambda: engine_of(locks).queues.waiting == 0, "it is passed over")
    held.release()
    with pytest.raises(distlock.LockTimeout):
        loop.run_until_complete(task)
    check(engine_of(locks))
