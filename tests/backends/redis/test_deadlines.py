"""However slowly the server or the way to it answers: a call ends by its deadline, and by io_timeout."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.backends.redis.proxy import Proxy
from tests.redis_server import RedisServer

PATIENCE = 10.0

#: Seconds for each byte. The shortest reply has four, a token alone 32.
DRIP = 0.5
#: What an idle connection, or one that is yet to be made, has to be told within, seconds.
SOON = 1.2


def took(call: Callable[[], Any]) -> float:
    began = time.monotonic()
    with pytest.raises(BackendUnavailable, match=r"io_timeout|speaks TLS"):
        call()
    return time.monotonic() - began


def calls(one: Contender, key: str) -> list[Callable[[], Any]]:
    return [
        lambda: one.request(ask(key)),
        lambda: one.cancel(ask(key)),
        lambda: one.release(ask(key)),
        lambda: one.renew([ask(key)]),
        lambda: one.raise_fence(ask(key), 1),
        lambda: one.locked(key),
    ]


@pytest.mark.fault("F17")
@pytest.mark.parametrize("connected", [True, False], ids=["connected", "connecting"])
def test_a_reply_that_comes_byte_by_byte_prolongs_no_call(
    proxy: Proxy, contender: MakeContender, connected: bool
) -> None:
    one = contender(proxy.url, io_timeout=SOON)
    if connected:
        one.hold(ask())
    proxy.drips = DRIP
    for call in calls(one, some_key()):
        if connected:
            proxy.drips = 0.0
            one.locked("shop:product_1")
            proxy.drips = DRIP
        # A read by itself would have come to an end: each byte is in time.
        assert took(call) < 32 * DRIP / 2


def test_the_deadline_of_a_call_is_kept_where_it_comes_before_io_timeout(
    proxy: Proxy, contender: MakeContender
) -> None:
    one = contender(proxy.url, io_timeout=PATIENCE * 6)
    proxy.drips = DRIP
    for call in (one.request, one.cancel, one.release):
        assert took(lambda call=call: call(ask(), clock.now() + SOON)) < 32 * DRIP / 2  # type: ignore[misc]


def test_a_call_with_little_time_takes_none_from_the_next_one(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    """The connection is told how long to wait when that changes, and it is the same one."""
    one = contender(redis_server.url, io_timeout=PATIENCE * 6)
    one.hold(ask())
    one.request(ask(some_key()), clock.now() + 2.0)
    redis_server.client.execute_command("CLIENT", "PAUSE", 2500)  # type: ignore[no-untyped-call]
    one.request(ask(some_key()))


def test_exchanges_with_as_much_time_each_set_no_timeout(
    redis_server: RedisServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[float] = []

    def settimeout(itself: socket.socket, seconds: float) -> None:
        told.append(seconds)
        plain(itself, seconds)

    one = contender(redis_server.url, io_timeout=PATIENCE * 6)
    one.hold(ask())
    plain = socket.socket.settimeout
    monkeypatch.setattr(socket.socket, "settimeout", settimeout)
    for _ in range(20):
        one.locked("shop:product_1")
    assert len(told) <= 1


@pytest.fixture
def locks(proxy: Proxy) -> Iterator[distlock.Locks]:
    made = distlock.connect(proxy.url, io_timeout=PATIENCE * 6)
    yield made
    proxy.drips = 0.0
    made.close()


@pytest.mark.fault("F17")
def test_acquire_ends_on_time_though_the_server_drips(proxy: Proxy, locks: distlock.Locks) -> None:
    key = some_key()
    proxy.drips = DRIP
    assert took(lambda: locks.lock(key).acquire(timeout=1)) < 32 * DRIP / 2
    # A refusal was no lasting harm.
    proxy.drips = 0.0
    with locks.lock(key, timeout=PATIENCE):
        pass


@pytest.mark.fault("F17")
def test_who_waits_for_a_holder_is_timed_out_on_time_though_the_server_drips(
    proxy: Proxy, locks: distlock.Locks, redis_server: RedisServer
) -> None:
    key = some_key()
    other = distlock.connect(redis_server.url)
    try:
        with other.lock(key):
            assert locks.lock(key).acquire(timeout=0) is None
            dripping = threading.Timer(0.5, lambda: setattr(proxy, "drips", DRIP))
            dripping.start()
            began = time.monotonic()
            assert locks.lock(key).acquire(timeout=3) is None
            assert time.monotonic() - began < 3 + 32 * DRIP / 2
            dripping.join()
    finally:
        other.close()


def test_connecting_is_over_by_the_deadline_too(contender: MakeContender) -> None:
    """Nobody accepts: the queue of the listening socket is full."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        port = deaf.getsockname()[1]
        crowd = [socket.socket() for _ in range(4)]
        try:
            for one in crowd:
                one.setblocking(False)
                one.connect_ex(("127.0.0.1", port))
            late = contender(f"redis://127.0.0.1:{port}", io_timeout=PATIENCE * 6)
            assert took(lambda: late.request(ask(), clock.now() + SOON)) < PATIENCE * 3
        finally:
            for one in crowd:
                one.close()


@pytest.mark.parametrize("scheme", ["redis://:password@", "rediss://"])
def test_a_server_that_accepts_and_says_nothing_is_left_by_the_deadline(
    scheme: str, contender: MakeContender
) -> None:
    """AUTH is not answered, nor is the handshake of TLS."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        late = contender(f"{scheme}127.0.0.1:{mute.getsockname()[1]}", io_timeout=PATIENCE * 6)
        assert took(lambda: late.request(ask(), clock.now() + SOON)) < PATIENCE * 3


@pytest.mark.fault("F40")
def test_a_name_that_is_not_resolved_in_time_is_one_look_up_and_ends_no_later(
    redis_server: RedisServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver takes no deadline."""
    honest, go_on, asked = socket.getaddrinfo, threading.Event(), []

    def slow(host: Any, *arguments: Any, **more: Any) -> Any:
        if host == "localhost" and not more.get("flags"):
            asked.append(host)
            go_on.wait(PATIENCE * 6)
        return honest(host, *arguments, **more)

    monkeypatch.setattr(socket, "getaddrinfo", slow)
    one = contender(f"redis://localhost:{redis_server.port}", io_timeout=PATIENCE * 6)
    for _ in range(3):
        assert took(lambda: one.request(ask(), clock.now() + SOON)) < PATIENCE * 3
    assert len(asked) == 1
    go_on.set()
    one.hold(ask())
