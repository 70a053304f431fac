"""Three servers: what a lock goes through when the leader dies, and when a majority is gone."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from kazoo.client import KazooClient

import distlock
from distlock import clock
from distlock.errors import BackendUnavailable
from loadtest.servers.processes import free_port
from tests.backends.zookeeper.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import eventually
from tests.zookeeper_server import CHROOT, SILENT, ZooKeeperServer

#: Seconds that a passing run never needs.
PATIENCE = 60.0


class Ensemble:
    def __init__(self, **settings: object) -> None:
        ports = [(free_port(), free_port()) for _ in range(3)]
        peers = {f"server.{number}": f"127.0.0.1:{a}:{b}" for number, (a, b) in enumerate(ports, 1)}
        settings = {"initLimit": 20, "syncLimit": 5, **settings, **peers}
        self.servers = [ZooKeeperServer(**settings) for _ in ports]
        for number, server in enumerate(self.servers, 1):
            (server.folder / "data").mkdir()
            (server.folder / "data" / "myid").write_text(str(number), encoding="ascii")

    @property
    def url(self) -> str:
        return f"zookeeper://{','.join(f'127.0.0.1:{server.port}' for server in self.servers)}{CHROOT}"

    def start(self) -> None:
        for server in self.servers:
            server.launch()
        for server in self.servers:
            server.wait()

    def leader(self) -> ZooKeeperServer:
        return next(server for server in self.servers if "Mode: leader" in server.tell("srvr"))

    def follower(self) -> ZooKeeperServer:
        return next(server for server in self.servers if "Mode: follower" in server.tell("srvr"))

    def forget(self, *servers: ZooKeeperServer) -> None:
        """Kill *servers*, or all, and start them without what they have saved."""
        chosen = servers or tuple(self.servers)
        for server in chosen:
            server.end()
            shutil.rmtree(server.folder / "data" / "version-2")
            server.launch()
        for server in chosen:
            server.wait()

    def close(self) -> None:
        for server in self.servers:
            # A client that looks at one that stands still would wait for it.
            server.resume()
            server.close()


def started(**settings: object) -> Iterator[Ensemble]:
    made = Ensemble(**settings)
    try:
        made.start()
        yield made
    finally:
        made.close()


@pytest.fixture
def ensemble() -> Iterator[Ensemble]:
    yield from started()


@pytest.fixture
def slow_ensemble() -> Iterator[Ensemble]:
    """Its followers tell their leader of their clients every quarter of a second."""
    yield from started(tickTime=500)


def still_held(one: Contender, mine: object) -> bool:
    try:
        return one.renew([mine]) == [True]  # type: ignore[list-item]
    except BackendUnavailable:
        return False


@pytest.mark.fault("F26")
def test_a_lock_and_its_line_survive_their_leader_and_fences_go_on(
    ensemble: Ensemble, contender: MakeContender
) -> None:
    key, one, two = (
        some_key(),
        contender(ensemble.url, io_timeout=10.0),
        contender(ensemble.url, io_timeout=10.0),
    )
    first, second, third = ask(key), ask(key), ask(key)
    fence = one.hold(first).number
    two.queue(second)
    ensemble.leader().kill()
    eventually(lambda: still_held(one, first), "the others have elected a leader", patience=20)
    assert one.release(first)
    later = two.until_held(second).number
    assert later > fence
    assert two.release(second)
    # The epoch is above the numbers: what is made under the new leader has larger fences than all before.
    assert one.hold(third).number >> 42 > fence >> 42


@pytest.mark.fault("F27")
def test_without_a_majority_nothing_is_granted_and_nothing_renewed(
    ensemble: Ensemble, contender: MakeContender
) -> None:
    one, mine = contender(ensemble.url, io_timeout=2.0), ask()
    one.hold(mine)
    survivor = ensemble.leader()
    for server in ensemble.servers:
        if server is not survivor:
            server.kill()
    with pytest.raises(BackendUnavailable):
        one.renew([mine])
    with pytest.raises(BackendUnavailable):
        one.request(ask())


@contextmanager
def without_a_majority(ensemble: Ensemble) -> Iterator[None]:
    """Kill two of the three, and start them again in the end."""
    killed = [server for server in ensemble.servers if server is not ensemble.leader()]
    for server in killed:
        server.end()
    yield
    for server in killed:
        server.launch()
    for server in killed:
        server.wait()


@pytest.mark.fault("F27")
def test_a_holder_is_told_that_the_majority_is_gone_and_has_the_lock_again_when_it_is_back(
    ensemble: Ensemble,
) -> None:
    lost = threading.Event()
    locks = distlock.connect(
        ensemble.url, prefix="t", ttl=3.0, timeout=PATIENCE, on_lost=lambda *_: lost.set()
    )
    with closing(locks):
        grant = locks.lock("product_1").acquire()
        assert grant is not None
        with without_a_majority(ensemble):
            assert lost.wait(PATIENCE)
            assert grant.lost
            with pytest.raises(BackendUnavailable):
                locks.lock("product_2").acquire()
        eventually(lambda: has_again(locks, grant.fence), "the lock is granted again", patience=PATIENCE)


def has_again(locks: distlock.Locks, fence: distlock.Fence) -> bool:
    try:
        with locks.lock("product_1") as later:
            return later.fence > fence
    except BackendUnavailable:
        return False


@pytest.mark.fault("F27", control=True)
def test_the_lock_of_kazoo_tells_its_holder_nothing(ensemble: Ensemble) -> None:
    hosts = ",".join(f"127.0.0.1:{server.port}" for server in ensemble.servers)
    client, told = KazooClient(hosts, timeout=1.0, logger=SILENT), threading.Event()
    client.start()
    try:
        lock = client.Lock("/kazoo/product_1")
        assert lock.acquire(timeout=PATIENCE)
        client.add_listener(lambda state: told.set())
        with without_a_majority(ensemble):
            assert told.wait(PATIENCE)
            # Much longer than its session, and its lock says what it said before.
            ends = clock.now() + 3.0
            eventually(lambda: clock.now() > ends, "three sessions are over")
            assert lock.is_acquired
            assert not client.connected
    finally:
        client.stop()
        client.close()


@pytest.mark.fault("F28")
def test_a_session_outlives_what_was_renewed_even_if_the_server_that_confirmed_it_dies_with_it(
    slow_ensemble: Ensemble, contender: MakeContender
) -> None:
    # The holder reaches this follower only. It falls silent before it has told the leader of the renewal.
    follower, leader = slow_ensemble.follower(), slow_ensemble.leader()
    one, mine = contender(follower.url), ask(ttl=5.0)
    one.hold(mine)
    quiet = clock.now() + mine.ttl / 3
    eventually(lambda: clock.now() > quiet, "the next renewal is due")
    sent = clock.now()
    assert one.renew([mine]) == [True]
    follower.pause()
    # Its holder calls it over a fiftieth of the ttl earlier.
    ends = sent + 0.98 * mine.ttl
    while clock.now() < ends:
        assert leader.children(mine.key), f"gone {ends - clock.now():.2f} s before its holder knows"
        threading.Event().wait(0.02)
    eventually(lambda: not leader.children(mine.key), "its session has ended")
    follower.resume()
