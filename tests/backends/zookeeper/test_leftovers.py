"""Nodes that nobody wants: deleted for certain, and nobody's hold meanwhile."""

from __future__ import annotations

from kazoo.protocol.serialization import Delete

from tests.backends.zookeeper.contender import MakeContender, ask
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


def test_a_stray_whose_deletion_was_lost_is_deleted_all_the_same(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    # Its session lives on, so it would stand in the line for as long as its process runs.
    one, mine = contender(proxy.url), ask(ttl=0.3)
    one.hold(mine)
    proxy.lose_request(Delete.type)
    assert proxy.lost.wait(10)
    eventually(lambda: not zookeeper_server.children(mine.key), "there is no node")
    eventually(lambda: not len(one.line(0.3).leftovers), "nothing is left to do")


def test_a_hold_that_was_given_up_is_not_renewed_by_its_node(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(zookeeper_server.url), ask(ttl=0.3)
    one.hold(mine)
    janitor = one._sessions[0.3]
    line = janitor.contenders
    # The janitor is between giving it up and deleting its node.
    janitor.stop()
    eventually(lambda: line.current(mine.token) is None, "nobody renewed it")
    line.give_up()
    assert zookeeper_server.children(mine.key)
    assert one.renew([mine]) == [False]
