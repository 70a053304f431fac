"""Sessions that end, connections that break, servers that restart: what each believes, and since when."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

import distlock
from distlock import clock
from distlock.backends.base import Acquired
from distlock.testing.waits import engine_of, wait_for_waiters
from tests.backends.zookeeper.contender import Contender, MakeContender, ask, some_key, take_over
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.small_disk import fill, small_disk
from tests.zookeeper_server import ZooKeeperServer, running


def end_session(server: ZooKeeperServer, one: Contender) -> None:
    before = one.line().session.id
    one.expire(f"127.0.0.1:{server.port}")
    eventually(lambda: one.line().session.id not in (None, before), "it has a new session")


@pytest.mark.fault("F29")
def test_a_hold_of_an_ended_session_is_not_ours(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second = ask(key), ask(key)
    fence = one.hold(first).number
    end_session(zookeeper_server, one)
    assert one.sink.missed
    assert one.renew([first]) == [False]
    assert two.hold(second).number > fence
    assert one.release(first) is False
    assert two.renew([second]) == [True]


def test_the_same_token_in_a_new_session_is_a_new_ask(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    end_session(zookeeper_server, one)
    one.queue(first)
    two.hold(second)


@pytest.mark.fault("F29")
def test_a_waiter_whose_session_ended_stands_in_line_again(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    end_session(zookeeper_server, two)
    two.queue(second)
    assert len(zookeeper_server.children(key)) == 2
    one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_a_waiter_whose_connection_broke_watches_again(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(proxy.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    proxy.part()
    proxy.join()
    eventually(lambda: two.sink.missed, "it is told to look again")
    two.queue(second)
    assert len(zookeeper_server.children(key)) == 2
    one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


@pytest.mark.fault("F28")
def test_a_holder_is_told_before_the_lock_is_anybody_elses(
    zookeeper_server: ZooKeeperServer, proxy: Proxy
) -> None:
    told: list[float] = []
    ours = distlock.connect(
        proxy.url,
        prefix="apart",
        ttl=3.0,
        io_timeout=1.0,
        on_lost=lambda grant, why: told.append(clock.now()),
    )
    theirs = distlock.connect(zookeeper_server.url, prefix="apart", ttl=3.0, timeout=30)
    try:
        grant = ours.lock("product_1").acquire()
        assert grant is not None
        proxy.part()
        second = theirs.lock("product_1").acquire()
        assert second is not None
        at = clock.now()
        assert told
        assert told[0] < at
        assert grant.lost
        with pytest.raises(distlock.LockLost):
            grant.check()
        assert second.fence > grant.fence
        proxy.join()
        grant.release()
        second.check()
    finally:
        ours.close()
        theirs.close()


@pytest.mark.fault("F29")
def test_a_holder_whose_session_another_client_closes_is_told_and_the_next_one_is_in(
    zookeeper_server: ZooKeeperServer,
) -> None:
    lost = threading.Event()
    ours = distlock.connect(
        zookeeper_server.url, prefix="stolen", ttl=60.0, on_lost=lambda grant, why: lost.set()
    )
    theirs = distlock.connect(zookeeper_server.url, prefix="stolen", ttl=60.0, timeout=30)
    with closing(ours), closing(theirs), ThreadPoolExecutor(1) as pool:
        grant = ours.lock("product_1").acquire()
        assert grant is not None
        waits = pool.submit(theirs.lock("product_1").acquire)
        wait_for_waiters(theirs, 1)
        backend: Any = engine_of(ours).backend
        take_over(backend._contenders(60.0).session.client, f"127.0.0.1:{zookeeper_server.port}")
        # A renewal would be due in twenty seconds.
        assert lost.wait(10)
        with pytest.raises(distlock.LockLost):
            grant.check()
        second = waits.result(30)
        assert second is not None
        assert second.fence > grant.fence


@pytest.mark.fault("F29", control=True)
def test_the_lock_of_kazoo_counts_as_held_when_another_client_has_it(
    zookeeper_server: ZooKeeperServer,
) -> None:
    hosts = f"127.0.0.1:{zookeeper_server.port}"
    one, two = (KazooClient(hosts, timeout=10.0) for _ in range(2))
    for client in (one, two):
        client.start()
    try:
        first, second = (client.Lock("/kazoo_stolen/product_1") for client in (one, two))
        assert first.acquire(timeout=30)
        take_over(KazooSession(one), hosts)
        eventually(lambda: one.connected, "it has a new session")
        assert second.acquire(timeout=30)
        assert first.is_acquired
    finally:
        for client in (one, two):
            client.stop()
            client.close()


class KazooSession:
    """The session of a client of kazoo, as `take_over` looks at it."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    @property
    def client_id(self) -> tuple[int, bytes] | None:
        return self._client.client_id

    @property
    def session_id(self) -> int:
        return self._client.client_id[0] if self._client.client_id else 0


def test_a_restart_of_the_server_takes_no_lock_away(own_zookeeper: ZooKeeperServer) -> None:
    one = distlock.connect(own_zookeeper.url, prefix="restart", ttl=90, timeout=85, io_timeout=80)
    two = distlock.connect(own_zookeeper.url, prefix="restart", ttl=90, timeout=85, io_timeout=80)
    try:
        with ThreadPoolExecutor(1) as pool:
            first = one.lock("product_1").acquire()
            assert first is not None
            waiting = pool.submit(two.lock("product_1").acquire)
            wait_for_waiters(two, 1)
            eventually(lambda: len(own_zookeeper.children("restart:product_1")) == 2, "it stands in line")
            own_zookeeper.restart()
            first.check()
            assert not waiting.done()
            first.release()
            second = waiting.result(100)
            assert second is not None
            assert second.fence > first.fence
    finally:
        one.close()
        two.close()


def test_fences_grow_through_restarts(own_zookeeper: ZooKeeperServer, contender: MakeContender) -> None:
    one, key, fences = contender(own_zookeeper.url, io_timeout=30.0), some_key(), []
    for _ in range(3):
        mine = ask(key)
        fences.append(one.hold(mine).number)
        assert one.release(mine)
        own_zookeeper.restart()
    assert all(later - earlier >= 64 for earlier, later in itertools.pairwise(fences))


def test_a_server_that_lost_its_data_is_used_again(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(own_zookeeper.url, io_timeout=5.0), ask(ttl=3.0)
    one.hold(mine)
    own_zookeeper.forget()

    def served() -> bool:
        try:
            return isinstance(one.request(second), Acquired)
        except distlock.BackendUnavailable:
            return False

    # It refuses a client that has seen more than it knows, until we begin anew.
    second = ask(ttl=3.0)
    eventually(served, "it serves us again")
    assert one.release(mine) is False


@pytest.mark.fault("F30")
def test_a_server_whose_disk_is_full_grants_nothing_and_has_kept_what_is_held(
    tmp_path: Path, contender: MakeContender
) -> None:
    with small_disk(tmp_path) as disk, contextmanager(running)(dataLogDir=disk) as server:
        one, mine = contender(server.url, io_timeout=2.0), ask()
        fence = one.hold(mine).number
        filler = fill(disk)

        def refused() -> bool:
            try:
                return not one.request(ask())
            except distlock.BackendUnavailable:
                return True

        # Until then its log has a little room.
        eventually(refused, "nothing is granted any more")
        assert refused()
        filler.unlink()
        server.restart()
        eventually(lambda: not refused(), "it grants locks again")
        assert one.renew([mine]) == [True]
        assert one.release(mine)
        assert one.hold(ask(mine.key)).number > fence


def test_there_is_a_session_for_each_ttl_and_not_for_any_number_of_them(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one = contender(zookeeper_server.url)
    for ttl in range(3, 11):
        one.hold(ask(ttl=float(ttl)))
    assert one.line(3.0).session.client.session_timeout == pytest.approx(3.9)
    with pytest.raises(distlock.ConfigurationError, match="8 different ttls"):
        one.request(ask(ttl=11.0))


def test_a_ttl_that_the_server_does_not_grant_is_refused(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one = contender(zookeeper_server.url)
    with pytest.raises(distlock.ConfigurationError, match="maxSessionTimeout"):
        one.request(ask(ttl=1000.0))
    # It would be granted 120 s: enough for the ttl, and not for what a dying server may take along.
    with pytest.raises(distlock.ConfigurationError, match="maxSessionTimeout"):
        one.request(ask(ttl=110.0))
    one.hold(ask())


def test_a_client_can_be_closed_in_mid_wait_and_used_again(zookeeper_server: ZooKeeperServer) -> None:
    locks = distlock.connect(zookeeper_server.url, prefix="again", timeout=20)
    other = distlock.connect(zookeeper_server.url, prefix="again", timeout=20)
    failed = threading.Event()

    def wait() -> None:
        with pytest.raises(distlock.BackendUnavailable):
            other.lock("product_1").acquire()
        failed.set()

    try:
        with locks.lock("product_1"):
            thread = threading.Thread(target=wait)
            thread.start()
            wait_for_waiters(other, 1)
            eventually(lambda: len(zookeeper_server.children("again:product_1")) == 2, "it stands in line")
            other.close()
            thread.join(20)
            assert failed.is_set()
            eventually(lambda: len(zookeeper_server.children("again:product_1")) == 1, "it left the line")
        with other.lock("product_1") as grant:
            grant.check()
        assert engine_of(other).queues.by_key == {}
    finally:
        locks.close()
        other.close()
