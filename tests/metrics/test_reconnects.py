"""A connection that takes the place of a broken one is counted, once for each that broke, by both kinds."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

import pytest
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

import distlock
from distlock import clock, metrics
from distlock.backends.redis import RedisBackend
from distlock.backends.redis.connection import RedisConnection
from distlock.backends.zookeeper import ZooKeeperBackend
from distlock.testing.waits import engine_of, wait_for_waiters
from tests.metrics.telemetry import points
from tests.metrics.test_prometheus import value
from tests.redis_server import RedisServer, eventually
from tests.zookeeper_server import ZooKeeperServer

PATIENCE = 60
TTL = 20.0

Count = Callable[[], float]


def connected(url: str, kind: str) -> distlock.Locks:
    return distlock.connect(
        url, ttl=TTL, timeout=PATIENCE, io_timeout=0.5, listener=metrics.listener(kind, url)
    )


@pytest.fixture(params=metrics.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    word: str = request.param
    return word


@pytest.fixture
def count(kind: str, own_server: RedisServer, reader: InMemoryMetricReader) -> Count:
    """How many there were with the server of the test."""
    if kind == "prometheus":
        return lambda: value("distlock_reconnects_total", alias=own_server.url)
    return lambda: sum(point.value for point in points(reader, own_server.url).get("distlock.reconnects", []))


def served(locks: distlock.Locks) -> bool:
    try:
        with locks.lock("product_1"):
            return True
    except distlock.BackendUnavailable:
        return False


def test_requests_to_redis(own_server: RedisServer, kind: str, count: Count) -> None:
    locks = connected(own_server.url, kind)
    assert served(locks)
    assert count() == 0
    own_server.client.client_kill_filter(_type="normal", skipme=True)
    assert served(locks)
    assert count() == 1
    # One that is made because the other is busy takes nobody's place.
    backend = engine_of(locks).backend
    assert isinstance(backend, RedisBackend)
    busy: list[RedisConnection] = []

    def taken() -> bool:
        # The keeper has it now and then, to read what a release was answered.
        busy.extend(filter(None, [backend._pool.lend()]))
        return bool(busy)

    eventually(taken, "one is idle")
    assert served(locks)
    backend._pool.give_back(*busy)
    assert count() == 1
    own_server.kill()
    assert [served(locks) for _ in range(3)] == [False] * 3
    assert count() == 1
    own_server.start()
    eventually(lambda: served(locks), "it is back")
    assert served(locks)
    assert count() == 2
    locks.close()
    assert served(locks)
    assert count() == 2
    locks.close()


def test_a_connection_that_breaks_with_a_release_on_its_way(own_server: RedisServer) -> None:
    locks = connected(own_server.url, "prometheus")
    # The first one is awaited: it brings the script.
    assert served(locks)
    grant = locks.lock("product_2").acquire()
    assert grant is not None
    own_server.pause()
    # It is sent, and nobody waits for the answer.
    grant.release()
    own_server.kill()
    backend = engine_of(locks).backend
    assert isinstance(backend, RedisBackend)
    # As the keeper does now and then.
    backend._releases.settle(clock.now() + 1.0)
    own_server.start()
    eventually(lambda: served(locks), "another connection serves")
    assert value("distlock_reconnects_total", alias=own_server.url) == 1
    locks.close()


def test_the_subscription_to_redis(own_server: RedisServer) -> None:
    holder = distlock.connect(own_server.url)
    locks = connected(own_server.url, "prometheus")

    def total() -> float:
        return value("distlock_reconnects_total", alias=own_server.url)

    with holder.lock("product_1"):
        waiter = threading.Thread(target=served, args=[locks])
        waiter.start()
        wait_for_waiters(locks, 1)
        subscribed = "a waiter hears"
        eventually(lambda: own_server.client.pubsub_channels(), subscribed)
        for number in (1, 2):
            own_server.client.client_kill_filter(_type="pubsub", skipme=True)
            eventually(lambda number=number: total() == number, "it is counted")
            eventually(lambda: own_server.client.pubsub_channels(), subscribed)
    waiter.join(PATIENCE)
    assert total() == 2
    for one in (holder, locks):
        one.close()


def test_the_session_with_zookeeper(own_zookeeper: ZooKeeperServer) -> None:
    locks = connected(own_zookeeper.url, "prometheus")

    def total() -> float:
        return value("distlock_reconnects_total", alias=own_zookeeper.url)

    assert served(locks)
    assert total() == 0
    backend = engine_of(locks).backend
    assert isinstance(backend, ZooKeeperBackend)
    session = backend._contenders(TTL).session
    session.client.cut()
    eventually(lambda: total() == 1, "it is counted")
    assert served(locks)
    own_zookeeper.kill()
    # It has been away for so long that nothing comes of its session any more.
    eventually(lambda: not session.connected, "it has noticed")
    session._away_since = -math.inf
    assert not served(locks)
    own_zookeeper.start()
    eventually(lambda: served(locks), "another session serves")
    assert backend._contenders(TTL).session is not session
    assert total() == 2
    locks.close()
