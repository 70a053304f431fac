"""Permits in a line: who is woken by one that comes back, and who is sent away."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kazoo.protocol.serialization import Delete

from distlock.backends.base import Busy
from distlock.errors import ConfigurationError
from tests.backends.zookeeper.contender import MakeContender, permit, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.backends.zookeeper.test_readers import after
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


def test_a_permit_that_comes_back_wakes_one_process_and_a_newcomer_wakes_nobody(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    out = [permit(key, 3) for _ in range(3)]
    for mine in out:
        one.hold(mine)
    waiting = [contender(zookeeper_server.url) for _ in range(4)]
    requests = [permit(key, 3) for _ in waiting]
    for who, mine in zip(waiting, requests, strict=True):
        who.queue(mine)
    assert [after(who) for who in waiting] == [0, 0, 0, 0]
    # Not the first one that was given out.
    assert one.release(out[1])
    assert waiting[0].sink.wait_for_notification(key)
    waiting[0].hold(requests[0])
    waiting[1].queue(requests[1])
    assert [after(who) for who in waiting] == [1, 0, 0, 0]
    assert one.release(out[0])
    assert waiting[1].sink.wait_for_notification(key)
    waiting[1].hold(requests[1])
    assert [after(who) for who in waiting] == [1, 1, 0, 0]


def test_permits_that_come_back_together_let_in_as_many_one_after_the_other(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(zookeeper_server.url)
    one.hold(all_of_them := permit(key, 3, permits=3))
    waiting = [contender(zookeeper_server.url) for _ in range(4)]
    requests = [permit(key, 3) for _ in waiting]
    for who, mine in zip(waiting, requests, strict=True):
        who.queue(mine)
    assert one.release(all_of_them)
    for who, mine in zip(waiting[:3], requests, strict=False):
        assert who.sink.wait_for_notification(key)
        who.hold(mine)
    waiting[3].queue(requests[3])
    assert after(waiting[3]) == 0


def test_one_that_wants_few_does_not_pass_one_that_wants_many(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(zookeeper_server.url) for _ in range(3))
    out = [permit(key, 4), permit(key, 4, permits=2)]
    for mine in out:
        one.hold(mine)
    two.queue(many := permit(key, 4, permits=3))
    three.queue(few := permit(key, 4))
    assert three.request(permit(key, 4, wait=False)) == Busy()
    assert one.release(out[0])
    two.queue(many)
    three.queue(few)
    assert one.release(out[1])
    two.until_held(many)
    three.until_held(few)


def test_different_limits_halt_nobody(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> None:
    key, one, two, three = some_key(), *(contender(zookeeper_server.url) for _ in range(3))
    out = [permit(key, 3) for _ in range(3)]
    for mine in out:
        one.hold(mine)
    two.queue(old := permit(key, 1))
    # There were room for it, but it doesn't pass.
    three.queue(new := permit(key, 9))
    for mine in out:
        two.queue(old)
        assert one.release(mine)
    two.until_held(old)
    three.until_held(new)


def test_one_that_hangs_when_its_permit_comes_is_sent_away_and_one_that_has_it_is_not(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url, ack_window=0.1) for _ in range(3))
    first, other, second, third = (permit(key, 2) for _ in range(4))
    one.hold(first)
    one.hold(other)
    two.queue(second)
    three.queue(third)
    assert one.release(first)
    three.until_held(third)
    assert one.renew([other]) == [True]
    assert len(zookeeper_server.children(key)) == 2
    two.queue(second)
    for _ in range(10):
        two.queue(second)
    assert three.renew([third]) == [True]


def test_a_permit_is_taken_for_a_thread_before_it_is_awake(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    one.hold(first := permit(key, 1))
    two.queue(second := replace(permit(key, 1), prompt=True))
    assert one.release(first)
    assert two.sink.wait_for_notification(key)
    path = two.line().nodes[second.token].path
    assert zookeeper_server.admin.exists(path).version == 1
    two.hold(second)


def test_of_several_permits_that_one_process_gives_back_each_loss_is_told(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    key, one = some_key(), contender(proxy.url)
    requests = [permit(key, 3) for _ in range(3)]
    for mine in requests:
        one.hold(mine)
    proxy.lose_request(Delete.type)
    told: list[tuple[int, bool | None]] = []
    for number, mine in enumerate(requests):
        one.post(mine, lambda answer, number=number: told.append((number, answer)))  # type: ignore[misc]
    eventually(lambda: one.settle(), "their answers are known to be lost")
    assert (0, None) in told
    eventually(lambda: not zookeeper_server.children(key), "the nodes are deleted all the same")


def test_more_permits_than_there_are_are_refused(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    with pytest.raises(ConfigurationError, match="3 permits of 2"):
        contender(zookeeper_server.url).request(permit(some_key(), 2, permits=3))
