"""Latches on a real server: its clock, connections that break, and what is left behind."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest
from kazoo.protocol.serialization import Delete, SetData, Transaction

import distlock
from distlock.backends.zookeeper.latches import ZooKeeperLatches
from distlock.backends.zookeeper.nodes import FOLDER
from distlock.backends.zookeeper.session import ZooKeeperSession
from distlock.errors import BackendUnavailable
from distlock.locks import latch_waits
from distlock.names import encode
from distlock.testing.conformance.latches import watch_looks
from distlock.testing.conformance.protocol_latches import LatchContender
from distlock.testing.protocol_fixtures import Contender as Client
from distlock.testing.waits import PATIENCE, wait_for_latch_waiters, wait_until
from tests.backends.zookeeper.contender import MakeContender
from tests.backends.zookeeper.proxy import Proxy
from tests.zookeeper_server import CHROOT, ZooKeeperServer

LATCHES = f"{CHROOT}/{FOLDER}/%latches"


def some_key() -> str:
    return f"test/latch:import_{secrets.token_hex(4)}"


@pytest.fixture
def latches(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> LatchContender:
    return LatchContender(Client(contender(zookeeper_server.url)))


def test_those_that_wait_are_woken_when_their_connection_is_back(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latch_waits, "POLL", 10 * PATIENCE)
    name = secrets.token_hex(4)
    with (
        closing(distlock.connect(proxy.url, timeout=PATIENCE)) as locks,
        closing(distlock.connect(zookeeper_server.url, timeout=PATIENCE)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.latch(name, 1).make()
        waiting = pool.submit(locks.latch(name).wait)
        wait_for_latch_waiters(locks, 1)
        proxy.part()
        other.latch(name).count_down()
        assert not waiting.done()
        proxy.join()
        assert waiting.result(PATIENCE)


def test_a_count_wakes_nobody_but_the_last(
    zookeeper_server: ZooKeeperServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latch_waits, "POLL", 10 * PATIENCE)
    name = secrets.token_hex(4)
    with (
        closing(distlock.connect(zookeeper_server.url, timeout=PATIENCE)) as locks,
        closing(distlock.connect(zookeeper_server.url, timeout=PATIENCE)) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.latch(name, 21).make()
        waiting = pool.submit(locks.latch(name).wait)
        wait_for_latch_waiters(locks, 1)
        looks = watch_looks(locks, monkeypatch)
        for _ in range(20):
            other.latch(name).count_down()
        assert looks == []
        other.latch(name).count_down()
        assert waiting.result(PATIENCE)


def lose_reply(proxy: Proxy) -> None:
    proxy.lose_reply()


def lose_count(proxy: Proxy) -> None:
    proxy.lose_request(Transaction.type)


def lose_making(proxy: Proxy) -> None:
    proxy.lose_request(Transaction.type)


def after_the_read(monkeypatch: pytest.MonkeyPatch, proxy: Proxy, lose: Callable[[Proxy], None]) -> None:
    """*lose* the first write that follows from what was read, or its reply."""
    read, begun = ZooKeeperLatches._get, []

    def reading(*arguments: Any) -> Any:
        found = yield from read(*arguments)
        if not begun:
            begun.append(True)
            lose(proxy)
        return found

    monkeypatch.setattr(ZooKeeperLatches, "_get", reading)


@pytest.mark.parametrize("lose", [lose_reply, lose_count])
def test_what_is_lost_on_the_way_counts_once(
    proxy: Proxy,
    contender: MakeContender,
    latches: LatchContender,
    lose: Callable[[Proxy], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, one = some_key(), LatchContender(Client(contender(proxy.url)))
    latches.make(key, 3)
    assert one.left(key) == 3
    after_the_read(monkeypatch, proxy, lose)
    assert one.count(key) == 2
    assert proxy.lost.is_set()
    assert latches.left(key) == 2


@pytest.mark.parametrize("lose", [lose_reply, lose_making])
def test_what_is_lost_on_the_way_is_made_once(
    proxy: Proxy,
    contender: MakeContender,
    latches: LatchContender,
    lose: Callable[[Proxy], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, key = LatchContender(Client(contender(proxy.url))), some_key()
    latches.make(some_key(), 1)
    assert one.look(key) is None
    monkeypatch.setattr(ZooKeeperLatches, "_sweep", lambda *_: iter(()))
    after_the_read(monkeypatch, proxy, lose)
    assert one.latches.make_latch(key, 3, 60.0, "first").maker == "first"
    assert proxy.lost.is_set()
    assert latches.left(key) == 3


@pytest.mark.parametrize("counts", [0, 1])
@pytest.mark.parametrize("what", ["count", "delete"])
def test_what_is_written_late_changes_no_later_latch_of_its_name(
    zookeeper_server: ZooKeeperServer,
    contender: MakeContender,
    latches: LatchContender,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    counts: int,
) -> None:
    """A process is stopped between its read and its write, and the next node has the same version."""
    key, one, lives = some_key(), LatchContender(Client(contender(zookeeper_server.url))), [""]

    def begin() -> None:
        lives.append(latches.make(key, 3).life)
        for _ in range(counts):
            latches.count(key)

    def exchanging(self: ZooKeeperSession, requests: Any, *more: Any) -> Any:
        if self is session and isinstance(requests[-1], SetData | Delete | Transaction):
            monkeypatch.undo()
            assert latches.latches.delete_latch(key, lives[-1])
            begin()
        return (yield from exchange(self, requests, *more))

    begin()
    assert one.left(key) == 3 - counts
    backend: Any = one.latches
    session, exchange = backend._any_contenders().session, ZooKeeperSession.exchanging
    monkeypatch.setattr(ZooKeeperSession, "exchanging", exchanging)
    if what == "count":
        assert one.latches.count_latch_down(key, 1, "late", lives[1]) is None
    else:
        assert not one.latches.delete_latch(key, lives[1])
    assert len(lives) == 3
    state = latches.look(key)
    assert state is not None
    assert (state.life, state.left) == (lives[2], 3 - counts)


def test_nothing_is_left_of_a_latch_that_was_deleted(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = LatchContender(Client(contender(own_zookeeper.url))), some_key()
    for count in (False, True):
        one.make(key, 1)
        if count:
            one.count(key)
        assert one.latches.delete_latch(key)
        assert own_zookeeper.admin.get_children(LATCHES) == []


def test_it_outlives_the_sessions_of_all(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, latches: LatchContender
) -> None:
    key, maker = some_key(), contender(zookeeper_server.url)
    maker.make_latch(key, 2, 60.0, "maker")
    maker.count_latch_down(key, 1, "part")
    maker.close()
    assert latches.left(key) == 1


def test_those_that_are_over_are_swept_by_the_next_that_is_made(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one = LatchContender(Client(contender(own_zookeeper.url)))
    keys = [some_key() for _ in range(5)]
    for key in keys:
        one.make(key, 1, ttl=1.5)
    one.count(keys[0])
    one.make(alive := some_key(), 1)
    for key in keys:
        one.wait_until_gone(key)
    assert set(own_zookeeper.admin.get_children(LATCHES)) == {encode(key) for key in [*keys, alive]}
    one.make(last := some_key(), 1)
    assert set(own_zookeeper.admin.get_children(LATCHES)) == {encode(alive), encode(last)}


def test_one_that_was_made_anew_since_it_was_found_to_be_over_is_not_swept(
    own_zookeeper: ZooKeeperServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its node has the same version as that of the one before it."""
    one, two = (LatchContender(Client(contender(own_zookeeper.url))) for _ in range(2))
    one.make(key := some_key(), 1, ttl=1.5)
    one.wait_until_gone(key)
    read = ZooKeeperLatches._get

    def reading(*arguments: Any) -> Any:
        found = yield from read(*arguments)
        monkeypatch.undo()
        # This deletes the one that is over.
        two.make(some_key(), 1)
        two.make(key, 3)
        return found

    monkeypatch.setattr(ZooKeeperLatches, "_get", reading)
    one.make(some_key(), 1)
    assert two.left(key) == 3


def test_one_that_opened_under_a_process_that_died_is_said_to_be_open_by_the_next(
    zookeeper_server: ZooKeeperServer,
    latches: LatchContender,
    contender: MakeContender,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key, other = some_key(), LatchContender(Client(contender(zookeeper_server.url)))
    latches.make(key, 1)
    other.look(key, watch=True)
    with monkeypatch.context() as dying:
        dying.setattr(ZooKeeperLatches, "_say_that_it_is_open", lambda *_: iter(()))
        assert latches.count(key) == 0
    assert latches.count(key) == 0
    assert other.sink.wait_for_notification(key)


def test_what_is_no_latch_is_named(zookeeper_server: ZooKeeperServer, latches: LatchContender) -> None:
    key = some_key()
    latches.make(key, 1)
    path = f"{LATCHES}/{encode(key)}"
    zookeeper_server.admin.set(path, b"nonsense")
    with pytest.raises(BackendUnavailable, match=f"{path} that distlock did not write.*Delete that node"):
        latches.look(key)


def test_what_is_no_latch_bars_no_other(own_zookeeper: ZooKeeperServer, contender: MakeContender) -> None:
    one, odd = LatchContender(Client(contender(own_zookeeper.url))), some_key()
    one.make(odd, 1)
    own_zookeeper.admin.set(f"{LATCHES}/{encode(odd)}", b"nonsense")
    one.make(key := some_key(), 1)
    assert one.count(key) == 0


def test_a_wait_that_is_over_leaves_one_watch_at_the_most(
    own_zookeeper: ZooKeeperServer,
) -> None:
    with closing(distlock.connect(own_zookeeper.url, timeout=PATIENCE)) as locks:
        locks.latch("import", 1).make()
        for _ in range(5):
            assert not locks.latch("import").wait(0.05)
        assert own_zookeeper.watches() <= 1
        locks.latch("import").count_down()
        wait_until(lambda: not own_zookeeper.watches(), "no watch is left")
