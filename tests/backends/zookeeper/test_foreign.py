"""Children of a lock's node that are no contenders: every kind of lock refuses them by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.recipe.barrier import Barrier
from kazoo.recipe.counter import Counter
from kazoo.recipe.lock import Lock, ReadLock, Semaphore, WriteLock

import distlock
from distlock.backends.base import LockRequest
from distlock.testing.waits import wait_for_waiters
from tests.backends.zookeeper.contender import MakeContender, ask, permit, reader, some_key
from tests.redis_server import PATIENCE
from tests.stored import FOLDER, lock_path
from tests.zookeeper_server import CHROOT, ZooKeeperServer

RECIPES: dict[str, Callable[[KazooClient, str], Any]] = {
    "Lock": Lock,
    "ReadLock": ReadLock,
    "WriteLock": WriteLock,
    "Semaphore": lambda client, path: Semaphore(client, path, max_leases=5),
}
ASKS: dict[str, Callable[..., LockRequest]] = {
    "exclusive": ask,
    "read": reader,
    "permit": lambda key, **more: permit(key, 5, **more),
}
KINDS: dict[str, Callable[[distlock.Locks], Any]] = {
    "lock": lambda locks: locks.lock("hot"),
    "rlock": lambda locks: locks.rlock("hot"),
    "read_lock": lambda locks: locks.read_lock("hot"),
    "write_lock": lambda locks: locks.write_lock("hot"),
    "semaphore": lambda locks: locks.semaphore("hot", limit=5),
}


@pytest.fixture
def kazoo(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    client = KazooClient(f"127.0.0.1:{zookeeper_server.port}")
    client.start(timeout=PATIENCE)
    yield client
    client.stop()
    client.close()


@pytest.fixture
def key() -> str:
    return some_key()


@pytest.fixture
def path(key: str) -> str:
    return lock_path(f"{CHROOT}/{FOLDER}", key)


def refused(path: str, name: str) -> Any:
    return pytest.raises(distlock.BackendUnavailable, match=rf"zkCli\.sh deleteall {path}/{name}$")


@pytest.mark.parametrize("wait", [True, False], ids=["waiting", "trying"])
@pytest.mark.parametrize("mode", ASKS)
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_lock_of_kazoo_is_told_by_its_node(
    zookeeper_server: ZooKeeperServer,
    contender: MakeContender,
    kazoo: KazooClient,
    key: str,
    path: str,
    recipe: str,
    mode: str,
    wait: bool,
) -> None:
    theirs, one = RECIPES[recipe](kazoo, path), contender(zookeeper_server.url)
    assert theirs.acquire(timeout=PATIENCE)
    (name,) = kazoo.get_children(path)
    with refused(path, name):
        one.request(ASKS[mode](key, wait=wait))
    # Nothing of ours is left behind, and it is in nobody's way when it is gone.
    assert kazoo.get_children(path) == [name]
    for look in (one.locked, one.inspect, one.request_release):
        with refused(path, name):
            look(key)
    theirs.release()
    one.hold(ASKS[mode](key, wait=wait))


@pytest.mark.parametrize("mode", ASKS)
def test_who_waited_before_it_came_is_told_and_does_not_enter_beside_it(
    zookeeper_server: ZooKeeperServer,
    contender: MakeContender,
    kazoo: KazooClient,
    key: str,
    path: str,
    mode: str,
) -> None:
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    has, waits = (permit(key, 1), permit(key, 1)) if mode == "permit" else (ask(key), ASKS[mode](key))
    one.hold(has)
    two.queue(waits)
    theirs = Lock(kazoo, path)
    # kazoo sees none of our nodes.
    assert theirs.acquire(blocking=False)
    assert one.release(has)
    assert two.sink.wait_for_notification(key)
    with refused(path, theirs.node):
        two.request(waits)
    assert kazoo.get_children(path) == [theirs.node]


def test_who_gives_up_beside_it_leaves_nothing_behind(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, kazoo: KazooClient, key: str, path: str
) -> None:
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    theirs = Lock(kazoo, path)
    assert theirs.acquire(blocking=False)
    assert one.renew([first]) == [True], "what we have stays ours"
    assert two.renew([first]) == [True]
    assert one.release(first)
    assert not two.cancel(second)
    assert kazoo.get_children(path) == [theirs.node]


@pytest.mark.attack("A42")
@pytest.mark.parametrize("name", ["members", "lock-0000000000", "lease-0000000000", "x-1-0000000000"])
def test_any_other_child_is_told(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, key: str, path: str, name: str
) -> None:
    zookeeper_server.admin.create(f"{path}/{name}", makepath=True)
    one = contender(zookeeper_server.url)
    for mode in ASKS.values():
        with refused(path, name):
            one.request(mode(key))
    assert zookeeper_server.children(key) == [name]
    zookeeper_server.admin.delete(f"{path}/{name}")
    one.hold(ask(key))


@pytest.mark.parametrize("kind", KINDS)
def test_acquire_tells_it_at_once_whatever_is_acquired(
    zookeeper_server: ZooKeeperServer, kazoo: KazooClient, kind: str, key: str
) -> None:
    prefix = key.replace(":", "_")
    locks = distlock.connect(zookeeper_server.url, prefix=prefix, timeout=PATIENCE)
    namespace = f"{prefix}/semaphore" if kind == "semaphore" else prefix
    path = lock_path(f"{CHROOT}/{FOLDER}", f"{namespace}:hot")
    theirs = Lock(kazoo, path)
    assert theirs.acquire(timeout=PATIENCE)
    try:
        for timeout in (0, None, -1):
            with refused(path, theirs.node):
                KINDS[kind](locks).acquire(timeout=timeout)
        theirs.release()
        with KINDS[kind](locks):
            pass
    finally:
        locks.close()


def test_all_that_wait_in_a_process_are_told(
    zookeeper_server: ZooKeeperServer, kazoo: KazooClient, key: str
) -> None:
    prefix = key.replace(":", "_")
    one, two = (distlock.connect(zookeeper_server.url, prefix=prefix, timeout=PATIENCE) for _ in range(2))
    path = lock_path(f"{CHROOT}/{FOLDER}", f"{prefix}:hot")
    theirs = Lock(kazoo, path)
    try:
        with ThreadPoolExecutor(3) as pool:
            with one.lock("hot"):
                waiting = [pool.submit(two.lock("hot").acquire) for _ in range(3)]
                wait_for_waiters(two, 3)
                assert theirs.acquire(blocking=False)
            for each in waiting:
                with refused(path, theirs.node):
                    each.result(PATIENCE)
    finally:
        one.close()
        two.close()


def test_kazoo_enters_beside_a_hold_of_ours_and_its_semaphore_counts_us(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, kazoo: KazooClient, key: str, path: str
) -> None:
    one = contender(zookeeper_server.url)
    one.hold(mine := ask(key))
    for recipe in (Lock, ReadLock, WriteLock):
        theirs = recipe(kazoo, path)
        assert theirs.acquire(blocking=False)
        theirs.release()
    assert not Semaphore(kazoo, path, max_leases=1).acquire(blocking=False)
    assert one.release(mine)


def test_a_barrier_and_a_counter_of_kazoo_have_no_child_and_go_with_the_node_of_the_lock(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, kazoo: KazooClient, key: str, path: str
) -> None:
    one, count = contender(zookeeper_server.url), Counter(kazoo, path)
    Barrier(kazoo, path).create()
    count += 3
    wanted = ask(key)
    one.hold(wanted)
    assert count.value == 3
    one.release(wanted)
    one.close()
    assert not kazoo.exists(path)
