"""Readers and permits whose connection breaks, or whose session ends."""

from __future__ import annotations

import pytest

from distlock.backends.base import LockRequest
from tests.backends.zookeeper.contender import MakeContender, ask, permit, reader, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


def in_its_place(key: str) -> list[tuple[LockRequest, LockRequest]]:
    """Pairs of one that has it and one that waits for it."""
    return [(ask(key), reader(key)), (reader(key), ask(key)), (permit(f"{key}_p", 1), permit(f"{key}_p", 1))]


@pytest.mark.parametrize("which", range(3), ids=["reader", "writer", "permit"])
def test_whatever_waits_is_told_also_on_the_next_connection(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender, which: int
) -> None:
    one, two = contender(zookeeper_server.url), contender(proxy.url)
    has, waits = in_its_place(some_key())[which]
    one.hold(has)
    two.queue(waits)
    proxy.lose_reply()
    two.locked(has.key)
    assert proxy.lost.is_set()
    eventually(lambda: two.sink.missed, "it asks again")
    before = len(two.sink.notified_keys)
    two.queue(waits)
    assert one.release(has)
    eventually(lambda: len(two.sink.notified_keys) > before, "it is told")
    two.hold(waits)


@pytest.mark.fault("F29")
@pytest.mark.parametrize("which", range(1, 3), ids=["reader", "permit"])
def test_with_its_session_a_hold_ends_and_those_that_wait_enter(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, which: int
) -> None:
    one, two = contender(zookeeper_server.url), contender(zookeeper_server.url)
    has, waits = in_its_place(some_key())[which]
    one.hold(has)
    two.queue(waits)
    one.expire(f"127.0.0.1:{zookeeper_server.port}")
    assert two.sink.wait_for_notification(has.key)
    two.hold(waits)
    eventually(lambda: one.sink.missed, "it asks whether it has it still")
    assert one.renew([has]) == [False]
    # What it asks for again stands at the end of the line.
    one.queue(has)


def test_readers_stay_in_when_the_session_ends_of_the_writer_that_let_them_in(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url) for _ in range(3))
    one.hold(writer := ask(key))
    two.queue(mine := reader(key))
    three.queue(following := ask(key))
    assert one.downgrade(writer)
    assert two.sink.wait_for_notification(key)
    two.hold(mine)
    one.expire(f"127.0.0.1:{zookeeper_server.port}")
    eventually(lambda: len(zookeeper_server.children(key)) == 2, "the writer's node is gone")
    assert two.hold(mine).followed
    three.queue(following)
    assert one.downgrade(writer) is False
    assert two.release(mine)
    three.until_held(following)
