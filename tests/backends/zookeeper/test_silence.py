"""Servers that accept connections and say nothing, while others would serve us."""

from __future__ import annotations

import socket

import pytest

from distlock.errors import BackendUnavailable
from tests.backends.zookeeper.contender import MakeContender, ask, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


@pytest.mark.fault("F18", "F28")
def test_a_connection_that_fell_silent_is_left_however_much_there_is_to_ask(
    proxy: Proxy, contender: MakeContender
) -> None:
    one, key = contender(proxy.url, io_timeout=1.0), some_key()
    mine = ask(key)
    one.hold(mine)
    proxy.freeze()

    def served() -> bool:
        try:
            return one.renew([mine]) == [True]
        except BackendUnavailable:
            return False

    # kazoo looks for it in pauses only, and in a long session seldom.
    eventually(served, "another connection serves us")
    assert one.release(mine)


def test_there_is_time_for_another_server_where_the_first_is_silent(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},127.0.0.1:{zookeeper_server.port}"
        one = contender(f"zookeeper://{hosts}/tests", io_timeout=1.0)
        one.line().session.client.randomize_hosts = False
        mine = ask()
        one.hold(mine)
        assert one.release(mine)
