"""The server is away, full, closed or strange: an error that says so, in time, without secrets."""

from __future__ import annotations

import logging
import math
import socket
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import distlock
from distlock.backends.base import Acquired
from distlock.errors import BackendUnavailable
from distlock.testing.waits import engine_of
from loadtest.servers.processes import free_port
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.backends.redis.planted import plant
from tests.redis_server import RedisServer, eventually, running
from tests.small_disk import fill_until_it_refuses, free, on_disk, small_disk
from tests.stored import hold_key

SECRET = "s3cr3t-Pa55"


@pytest.fixture
def closed_server() -> Iterator[RedisServer]:
    """A server that wants a password."""
    yield from running("--requirepass", SECRET)


def whole_story(error: BaseException) -> str:
    """All that a log or an error tracker would show of *error*."""
    return "".join(traceback.format_exception(error))


def test_no_server_is_told_at_the_first_request_and_not_before(contender: MakeContender) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        one = contender(f"redis://127.0.0.1:{port}")
        with pytest.raises(BackendUnavailable, match=rf"127\.0\.0\.1:{port}.*refused.*See whether it runs"):
            one.request(ask())
        with pytest.raises(BackendUnavailable):
            one.locked("product_1")
        with pytest.raises(BackendUnavailable):
            one.renew([ask()])


@pytest.mark.fault("F11")
def test_a_server_that_hangs_is_told_within_io_timeout_and_serves_again_afterwards(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(own_server.url, io_timeout=1.0)
    first = ask(key)
    one.hold(first)
    own_server.pause()
    for call in (lambda: one.request(ask(key)), lambda: one.renew([first]), lambda: one.locked(key)):
        began = time.monotonic()
        with pytest.raises(BackendUnavailable, match="io_timeout"):
            call()
        # A busy machine is late.
        assert 0.9 < time.monotonic() - began < 6.0
    own_server.resume()
    assert one.renew([first]) == [True]
    assert one.release(first)


@pytest.mark.fault("F09")
def test_a_restarted_server_is_used_as_if_nothing_had_been(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    own_server.restart()
    # It kept nothing: the holder is told, and the waiter gets the lock.
    assert one.renew([first]) == [False]
    two.hold(second)
    eventually(lambda: own_server.client.pubsub_channels(), "they listen again")
    assert one.release(first) is False
    assert two.release(second) is True


def test_a_server_that_forgot_its_scripts_is_taught_again(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    first, second = ask(key), ask(key)
    own_server.client.script_flush()
    one.hold(first)
    own_server.client.script_flush()
    two.queue(second)
    own_server.client.script_flush()
    assert one.renew([first, second, first]) == [True, False, True]
    own_server.client.script_flush()
    assert one.release(first)
    own_server.client.script_flush()
    assert two.cancel(second) is True


@pytest.mark.fault("F13")
def test_a_full_server_refuses_locks_and_takes_them_back(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(own_server.url), contender(own_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    own_server.client.config_set("maxmemory", 1)
    other = some_key()
    with pytest.raises(BackendUnavailable, match="maxmemory"):
        one.request(ask(other))
    with pytest.raises(BackendUnavailable, match="maxmemory"):
        one.request(ask(key))
    assert own_server.client.keys(hold_key(other) + "*") == []
    # What is held can be renewed, handed off, acknowledged, cancelled and released.
    assert one.renew([first]) == [True]
    assert one.release(first) is True
    assert two.sink.wait_for_notification(key)
    assert isinstance(two.request(second), Acquired)
    assert two.cancel(second) is True
    assert two.release(second) is True
    own_server.client.config_set("maxmemory", 0)
    one.hold(ask(other))


@pytest.mark.fault("F13", control=True)
def test_a_renewal_that_writes_the_hold_is_refused_by_a_full_server(
    own_server: RedisServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "ARenewalWritesTheHold")
    one, first = contender(own_server.url), ask()
    one.hold(first)
    assert one.renew([first]) == [True]
    own_server.client.config_set("maxmemory", 1)
    with pytest.raises(BackendUnavailable, match="maxmemory"):
        one.renew([first])


@pytest.mark.fault("F13")
def test_who_waits_keeps_its_place_while_the_server_is_full(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three, late = (contender(own_server.url) for _ in range(4))
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    own_server.client.config_set("maxmemory", 1)
    for _ in range(3):
        two.queue(second)
        three.queue(third)
    # A waiter that is new is refused, and leaves nothing.
    with pytest.raises(BackendUnavailable, match="maxmemory"):
        late.request(ask(key))
    assert own_server.client.llen(f"{hold_key(key)}:queue") == 2
    assert one.release(first) is True
    assert two.sink.wait_for_notification(key)
    two.hold(second)
    three.queue(third)
    # A holder that dies costs its ttl: the hold ends by itself, and who asks is next.
    own_server.client.pexpire(hold_key(key), 1)
    assert three.poll(third)
    assert three.release(third) is True
    assert not three.locked(key)
    assert 0 < own_server.client.pttl(hold_key(key)) <= 30_000
    assert own_server.client.exists(f"{hold_key(key)}:queue") == 0


@pytest.mark.fault("F13")
def test_a_lock_is_waited_for_and_had_in_a_server_that_filled_up_meanwhile(own_server: RedisServer) -> None:
    holder, waiter = (distlock.connect(own_server.url, timeout=60) for _ in range(2))
    ended: list[object] = []

    def wait() -> None:
        try:
            with waiter.lock("product_1") as grant:
                ended.append(grant)
        except distlock.LockError as error:
            ended.append(error)

    thread = threading.Thread(target=wait)
    try:
        with holder.lock("product_1"):
            thread.start()
            queue = f"{hold_key(':product_1')}:queue"
            eventually(lambda: own_server.client.llen(queue), "it is in the queue")
            own_server.client.config_set("maxmemory", 1)

            def polls() -> int:
                told = own_server.client.info("commandstats")
                return int(told["cmdstat_lpos"]["calls"]) if "cmdstat_lpos" in told else 0

            before = polls()
            eventually(lambda: polls() > before + 2, "it has asked again, more than once", 30)
            assert ended == []
        thread.join(60)
        assert [type(one).__name__ for one in ended] == ["NameGrant"]
    finally:
        thread.join(60)
        holder.close()
        waiter.close()


@pytest.mark.fault("F15")
def test_a_server_whose_disk_is_full_refuses_locks_and_holders_are_told(tmp_path: Path) -> None:
    with small_disk(tmp_path) as disk, contextmanager(running)(*on_disk(disk)) as server:
        one, two = (distlock.connect(server.url, ttl=2) for _ in range(2))
        try:
            held, given_back = (one.lock(name).acquire() for name in ("product_1", "product_2"))
            assert held
            assert given_back
            filler = fill_until_it_refuses(server, disk)
            with pytest.raises(BackendUnavailable, match=r"MISCONF.*free its disk"):
                two.lock("product_3").acquire()
            given_back.release()
            # Nothing renews the other one, and its holder knows.
            eventually(lambda: held.lost, "the hold is lost")
            free(server, filler)
            for name in ("product_1", "product_2", "product_3"):
                with two.lock(name, timeout=30):
                    pass
        finally:
            one.close()
            two.close()


@pytest.mark.attack("A37")
@pytest.mark.fault("F19")
def test_a_wrong_password_is_told_without_the_password(
    closed_server: RedisServer, contender: MakeContender
) -> None:
    place = f"127.0.0.1:{closed_server.port}"
    wrong = contender(f"redis://:{SECRET}-wrong@{place}/0")
    with pytest.raises(BackendUnavailable, match="Check the user and the password") as told:
        wrong.request(ask())
    assert SECRET not in whole_story(told.value)
    assert SECRET not in repr(wrong) + repr(wrong._address) + repr(vars(wrong))
    with pytest.raises(BackendUnavailable, match="Put the password before the host of the URL"):
        contender(f"redis://{place}/0").request(ask())
    contender(f"redis://:{SECRET}@{place}/0").hold(ask())


def test_a_secret_that_the_server_quotes_is_not_shown(contender: MakeContender) -> None:
    servers = running("--rename-command", "AUTH", "")
    server = next(servers)
    try:
        one = contender(f"redis://:{SECRET}@127.0.0.1:{server.port}/0")
        with pytest.raises(BackendUnavailable, match=r"unknown command 'AUTH'\. ") as told:
            one.request(ask())
        assert SECRET not in whole_story(told.value)
    finally:
        servers.close()


def test_a_replica_is_refused(own_server: RedisServer, contender: MakeContender) -> None:
    one = contender(own_server.url)
    own_server.client.replicaof("127.0.0.1", free_port())
    with pytest.raises(BackendUnavailable, match="put the primary in the URL"):
        one.request(ask())
    own_server.client.replicaof("NO", "ONE")
    one.hold(ask())


@pytest.mark.fault("F14")
def test_a_server_that_may_evict_locks_is_warned_about_once(
    own_server: RedisServer, contender: MakeContender, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "distlock"):
        contender(own_server.url).hold(ask())
        assert caplog.text == ""
        own_server.client.config_set("maxmemory-policy", "volatile-lru")
        one = contender(own_server.url)
        one.hold(ask())
        own_server.client.client_kill_filter(_type="normal", skipme=True)
        one.hold(ask())
    assert caplog.text.count("maxmemory-policy volatile-lru") == 1


@pytest.fixture
def strict_server() -> Iterator[RedisServer]:
    """A server that does not know a command, as a sentinel knows none of ours."""
    yield from running("--rename-command", "EVALSHA", "")


def test_a_server_that_does_not_know_a_command_may_be_a_sentinel(
    strict_server: RedisServer, contender: MakeContender
) -> None:
    with pytest.raises(BackendUnavailable, match=r"unknown command 'EVALSHA'\. If it is a sentinel.*forbids"):
        contender(strict_server.url).request(ask())


def test_a_client_that_was_closed_while_the_server_hung_leaves_no_connection(own_server: RedisServer) -> None:
    def connections() -> list[str]:
        return [one["id"] for one in own_server.client.client_list() if one["name"] == "closed"]

    key = some_key()
    locks = distlock.connect(own_server.url, io_timeout=0.5, client_name="closed")
    with distlock.connect(own_server.url).lock(key):
        assert locks.lock(key).acquire(timeout=0) is None
        own_server.pause()
        with pytest.raises(BackendUnavailable):
            locks.lock(key).acquire(timeout=5)
        locks.close()
        engine = engine_of(locks)
        # The server gets the request with the next packets, and then what cancels it.
        own_server.resume()
        eventually(lambda: engine.cancellations.due(0.0) == math.inf, "the request is cancelled")
        eventually(lambda: not connections(), "no connection is left")
