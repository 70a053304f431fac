"""Stopped, forked and closed: what a process believes, and what it leaves behind."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable, Iterator

import pytest

import distlock
from distlock.testing.fixtures import engine_of
from distlock.testing.process import Process
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
    keeper = engine_of(locks).keeper
    eventually(lambda: not keeper.retired, "the keeper is done")
    eventually(lambda: not own_zookeeper.children(":product_1"), "the lock is free")
    left = {thread.name for thread in set(threading.enumerate()) - threads}
    assert left <= {"distlock-keeper"}


def test_a_closed_client_leaves_no_thread_no_descriptor_no_session_and_no_node(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    def sessions() -> int:
        return zookeeper_server.tell("dump").count("0x")

    gc.collect()
    threads, files = threading.active_count(), len(os.listdir("/proc/self/fd"))
    before, prefix = sessions(), some_key()
    for number in range(5):
        one = contender(zookeeper_server.url)
        for ttl in (10.0, 20.0):
            mine = ask(f"{prefix}_{number}", ttl=ttl)
            one.request(mine)
        one.close()
    gc.collect()
    assert threading.active_count() == threads
    assert len(os.listdir("/proc/self/fd")) == files
    assert sessions() <= before
    encoded = prefix.replace(":", "%3A")
    eventually(lambda: not any(encoded in name for name in zookeeper_server.locks()), "its nodes are gone")
