"""A request is carried out late, after its own repetition or its cancel: nobody waits for its ghost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest

import distlock
from distlock import Grant
from distlock.engine import deferred_work
from distlock.errors import BackendUnavailable
from distlock.testing.waits import engine_of
from tests.backends.redis.contender import LONG, MakeContender, ask, some_key
from tests.backends.redis.proxy import Proxy
from tests.redis_server import PATIENCE, RedisServer, eventually
from tests.stored import hold_key, is_free

Connect = Callable[..., distlock.Locks]


@pytest.fixture
def near(redis_server: RedisServer) -> Iterator[distlock.Locks]:
    locks = distlock.connect(redis_server.url, ttl=LONG, timeout=PATIENCE)
    yield locks
    locks.close()


@pytest.fixture
def connect(proxy: Proxy, near: distlock.Locks) -> Iterator[Connect]:
    """A client behind the proxy, which listens already."""
    made: list[distlock.Locks] = []

    def connect(**options: float) -> distlock.Locks:
        made.append(distlock.connect(proxy.url, ttl=10 * LONG, timeout=PATIENCE, **options))
        with near.lock(warm := some_key()):
            assert made[0].lock(warm).acquire(timeout=0.01) is None
        return made[0]

    yield connect
    proxy.flow()
    proxy.deliver()
    for one in made:
        one.close()


def take(locks: distlock.Locks, name: str) -> Grant:
    grant = locks.lock(name).acquire()
    assert grant is not None
    return grant


class Shopper:
    """Takes *name*, and keeps it until it is told."""

    def __init__(self, locks: distlock.Locks, name: str, how: str) -> None:
        self.has_it, self.may_go = threading.Event(), threading.Event()
        target = {"thread": self._shop, "task": self._shop_in_task}[how]
        self._thread = threading.Thread(target=target, args=(locks, name))
        self._thread.start()

    def _shop(self, locks: distlock.Locks, name: str) -> None:
        with locks.lock(name):
            self._stay()

    def _shop_in_task(self, locks: distlock.Locks, name: str) -> None:
        async def shop() -> None:
            async with locks.lock(name):
                await asyncio.to_thread(self._stay)

        asyncio.run(shop())

    def _stay(self) -> None:
        self.has_it.set()
        self.may_go.wait(PATIENCE)

    def go(self) -> None:
        self.may_go.set()
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("how", ["thread", "task"])
def test_a_request_that_was_overtaken_by_its_repetition_leaves_no_second_place(
    redis_server: RedisServer, proxy: Proxy, near: distlock.Locks, connect: Connect, how: str
) -> None:
    # So long the others would wait for it at its second place.
    far, name = connect(ack_window=LONG), some_key()
    queue = f"{hold_key(f':{name}')}:queue"
    grant = take(near, name)
    proxy.delay_request()
    shopper = Shopper(far, name, how)
    eventually(lambda: redis_server.client.llen(queue) == 1, "the repetition is in line")
    assert proxy.lost.is_set()
    proxy.deliver()
    eventually(lambda: redis_server.client.llen(queue) == 2, "so is what it has overtaken")
    grant.release()
    assert shopper.has_it.wait(PATIENCE)
    shopper.go()
    take(near, name).release()


def test_both_places_of_who_gives_up_are_given_up(
    redis_server: RedisServer, proxy: Proxy, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(proxy.url)
    queue, mine, warm = f"{hold_key(key)}:queue", ask(key), ask()
    one.hold(warm)
    two.queue(ask(warm.key))
    one.hold(ask(key))
    proxy.delay_request()
    two.queue(mine)
    proxy.deliver()
    eventually(lambda: redis_server.client.llen(queue) == 2, "both are in line")
    assert not two.cancel(mine)
    assert redis_server.client.llen(queue) == 0


@pytest.mark.parametrize("how", ["thread", "task"])
def test_a_request_that_is_carried_out_after_its_cancel_does_not_hold_for_a_ttl(
    redis_server: RedisServer,
    proxy: Proxy,
    connect: Connect,
    how: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deferred_work, "AGAIN", LONG)
    far, name = connect(io_timeout=0.5), some_key()
    engine, hold = engine_of(far), hold_key(f":{name}")
    try_it: dict[str, Callable[[], object]] = {
        "thread": lambda: far.lock(name).acquire(timeout=0),
        "task": lambda: asyncio.run(far.lock(name).aacquire(timeout=0)),
    }
    proxy.hold(replies=False)
    with pytest.raises(BackendUnavailable):
        try_it[how]()
    eventually(lambda: not engine.cancellations, "it is cancelled, on another connection")
    assert is_free(redis_server.client.get(hold))
    proxy.flow()
    eventually(lambda: not is_free(redis_server.client.get(hold)), "it is carried out")
    # As if a second were over.
    for cancellation in engine.cancellations._pending:
        cancellation.next_try = 0.0
    engine.maintenance.wake()
    eventually(lambda: is_free(redis_server.client.get(hold)), "nobody has it")
    eventually(lambda: engine.cancellations.due(0.0) > LONG, "it is forgotten")
