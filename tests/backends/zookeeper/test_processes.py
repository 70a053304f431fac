"""Stopped, forked and closed: what a process believes, and what it leaves behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator

import pytest

import distlock
from distlock.testing.conformance.closing import opened
from distlock.testing.process import Process
from distlock.testing.waits import engine_of
from tests.backends.zookeeper.contender import MakeContender, ask, some_key
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer

TTL = 1.0


@pytest.fixture
def process(zookeeper_server: ZooKeeperServer) -> Iterator[Callable[[], Process]]:
    made: list[Process] = []

    def start() -> Process:
        made.append(Process(zookeeper_server.url, prefix="stop", ttl=TTL))
        return made[-1]

    yield start
    for one in made:
        one.finish()


@pytest.fixture
def locks(zookeeper_server: ZooKeeperServer) -> Iterator[distlock.Locks]:
    made = distlock.connect(zookeeper_server.url, prefix="stop", ttl=TTL, timeout=20)
    yield made
    made.close()


@pytest.mark.fault("F03")
def test_a_stopped_holder_wakes_up_without_the_lock(
    process: Callable[[], Process], locks: distlock.Locks
) -> None:
    holder = process()
    fence = holder.do("acquire", "product_1", 10.0)["fence"]
    holder.stop()
    grant = locks.lock("product_1").acquire()
    assert grant is not None
    assert list(grant.fence) > fence
    holder.go_on()
    # It is the first thing that it is asked, so nothing that it asks a server can have told it.
    assert holder.do("state")["lost"]
    holder.do("release")
    # And it can lock again, in a new session.
    grant.release()
    assert holder.do("acquire", "product_1", 10.0)["fence"] > list(grant.fence)


@pytest.mark.parametrize("hangs", [False, True], ids=["killed", "stopped"])
def test_a_reader_that_is_gone_costs_writers_its_session_and_no_other_reader_anything(
    process: Callable[[], Process], locks: distlock.Locks, zookeeper_server: ZooKeeperServer, hangs: bool
) -> None:
    gone, other = process(), distlock.connect(zookeeper_server.url, prefix="stop", ttl=60)
    assert gone.do("read", "catalogue", 10.0)
    with other.read_lock("catalogue") as grant:
        end(gone, hangs)
        eventually(lambda: len(zookeeper_server.children("stop:catalogue")) == 1, "its session ended")
        assert locks.write_lock("catalogue").acquire(timeout=0) is None
        assert not grant.lost
    assert locks.write_lock("catalogue").acquire() is not None
    other.close()
    assert not hangs or learns_of_its_loss(gone)


@pytest.mark.parametrize("hangs", [False, True], ids=["killed", "stopped"])
def test_the_permits_of_a_process_that_is_gone_come_back_with_the_end_of_its_session(
    process: Callable[[], Process], locks: distlock.Locks, hangs: bool
) -> None:
    gone = process()
    assert gone.do("permits", "gateway", 3, 2, 10.0)
    end(gone, hangs)
    assert locks.semaphore("gateway", limit=3, permits=3).acquire() is not None
    assert not hangs or learns_of_its_loss(gone)


def end(process: Process, hangs: bool) -> None:
    if hangs:
        process.stop()
    else:
        process.kill()


def learns_of_its_loss(process: Process) -> bool:
    process.go_on()
    return bool(process.do("state")["lost"])


@pytest.mark.fault("F04")
def test_a_stopped_waiter_whose_session_ended_is_no_ghost(
    process: Callable[[], Process], locks: distlock.Locks, zookeeper_server: ZooKeeperServer
) -> None:
    waiter, watches = process(), zookeeper_server.watches()
    with locks.lock("product_2"):
        waiter.begin("acquire", "product_2", 20.0)
        # Stopped within a request it might find that the service did not answer in time.
        eventually(lambda: zookeeper_server.watches() > watches, "it waits")
        waiter.stop()
        eventually(lambda: len(zookeeper_server.children("stop:product_2")) == 1, "its session ended")
        waiter.go_on()
        eventually(lambda: len(zookeeper_server.children("stop:product_2")) == 2, "it waits again")
    assert waiter.end()["fence"]
    assert len(zookeeper_server.children("stop:product_2")) == 1


@pytest.mark.fault("F07")
def test_a_forked_child_has_a_session_of_its_own_and_leaves_the_parents_alone(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, first, second = contender(zookeeper_server.url), ask(), ask()
    one.hold(first)
    session = one.line().session.id
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        seen = "nothing"
        try:
            one.after_fork()
            held = one.renew([first]), type(one.request(ask(first.key, wait=False))).__name__
            one.hold(second)
            own = one.line().session.id != session
            one.close()
            seen = f"{held} {own}"
        finally:
            os.write(writer, seen.encode())
            os._exit(0)
    os.close(writer)
    with open(reader, encoding="utf-8") as file:
        assert file.read() == "([True], 'Busy') True"
    os.waitpid(child, 0)
    assert one.line().session.id == session
    assert one.renew([first]) == [True]
    assert len(zookeeper_server.children(first.key)) == 1
    assert one.release(first)


def test_a_client_that_was_closed_while_the_server_hung_begins_nothing_anew(
    own_zookeeper: ZooKeeperServer,
) -> None:
    threads = set(threading.enumerate())
    locks = distlock.connect(own_zookeeper.url, ttl=3.0, io_timeout=1.0)
    assert locks.lock("product_1").acquire() is not None
    own_zookeeper.pause()
    locks.close()
    own_zookeeper.resume()
    # The keeper has not given the lock back. Its session ends, and the lock with it.
    cancellations = engine_of(locks).cancellations
    eventually(lambda: not cancellations, "the maintenance thread is done")
    eventually(lambda: not own_zookeeper.children(":product_1"), "the lock is free")
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert left <= {"distlock-maintenance"}


def test_a_closed_client_leaves_no_thread_no_descriptor_no_session_and_no_node(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    def sessions() -> int:
        return zookeeper_server.tell("dump").count("0x")

    gc.collect()
    open_before, before, prefix = opened(), sessions(), some_key()
    for number in range(5):
        one = contender(zookeeper_server.url)
        for ttl in (10.0, 20.0):
            mine = ask(f"{prefix}_{number}", ttl=ttl)
            one.request(mine)
        one.close()
    gc.collect()
    assert opened() - open_before == set()
    assert sessions() <= before
    encoded = prefix.replace(":", "%3A")
    eventually(lambda: not any(encoded in name for name in zookeeper_server.locks()), "its nodes are gone")
