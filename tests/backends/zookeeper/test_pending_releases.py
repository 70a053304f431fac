"""Releases whose answers nobody waits for: in order, repeated where they were lost, and told."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kazoo.protocol.serialization import Delete

from tests.backends.zookeeper.contender import Contender, MakeContender, ask, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


def post(one: Contender, mine: object) -> list[bool | None]:
    told: list[bool | None] = []
    one.post(mine, told.append)  # type: ignore[arg-type]
    return told


def lose_request(proxy: Proxy) -> None:
    proxy.lose_request(Delete.type)


@pytest.mark.parametrize("lose", [lose_request, Proxy.lose_reply], ids=["request", "reply"])
def test_one_that_was_lost_is_repeated_before_what_this_process_asks_next(
    proxy: Proxy, contender: MakeContender, lose: Callable[[Proxy], None]
) -> None:
    one, mine = contender(proxy.url), ask()
    one.hold(mine)
    lose(proxy)
    post(one, mine)
    again = ask(mine.key, wait=False)
    one.hold(again)
    assert proxy.lost.is_set()


def test_one_that_was_lost_is_told_and_ends_without_being_asked_for(
    proxy: Proxy, zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(proxy.url), ask(ttl=3.0)
    one.hold(mine)
    lose_request(proxy)
    told = post(one, mine)
    eventually(lambda: one.settle(), "its answer is known to be lost")
    assert told == [None]
    eventually(lambda: not zookeeper_server.children(mine.key), "the janitor has deleted its node")


def test_what_is_asked_in_another_session_comes_after_it(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, key = contender(zookeeper_server.url), some_key()
    for ttl in (50.0, 60.0):
        one.connect(ttl)
    wire = one.line(60.0).session.client
    submit, answered = wire.submit, list[bool]()

    def looking(requests: object) -> object:
        posted = one.line(50.0).releases._posted.get(key, ())
        answered.append(all(before.answer.ready() for before in posted))
        return submit(requests)

    wire.submit = looking
    for _ in range(5):
        mine, other = ask(key, ttl=50.0), ask(key, ttl=60.0, wait=False)
        one.hold(mine)
        assert post(one, mine) == []
        one.hold(other)
        assert one.release(other)
    assert all(answered)
    assert len(answered) >= 5


def test_many_in_a_row_are_all_looked_at(zookeeper_server: ZooKeeperServer, contender: MakeContender) -> None:
    one, two, key = contender(zookeeper_server.url), contender(zookeeper_server.url), some_key()
    broken = ask(key)
    one.hold(broken)
    node = one.line().current(broken.token)
    assert node is not None
    two.connect()
    # Gone, and we have not been told.
    two.line().session.ask([Delete(node.path, -1)], two._deadline())
    told = post(one, broken)
    # Nobody settles: the release of the next hold finds the answer.
    second = ask(key)
    one.hold(second)
    post(one, second)
    assert told == [False]
