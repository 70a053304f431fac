"""Replies that are lost or late: no node is left of which nobody knows."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from distlock.backends.base import LockRequest
from distlock.errors import BackendUnavailable
from tests.backends.zookeeper.contender import MakeContender, ask, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


def test_a_node_whose_reply_was_lost_is_found_again(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    one, mine = contender(proxy.url), ask()
    one.connect()
    proxy.lose_reply()
    held = one.hold(mine)
    assert proxy.lost.is_set()
    assert len(zookeeper_server.children(mine.key)) == 1
    assert one.hold(mine) == held
    assert one.release(mine)
    assert not zookeeper_server.children(mine.key)


def test_a_place_in_the_line_whose_reply_was_lost_is_kept(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = contender(zookeeper_server.url), contender(proxy.url), contender(zookeeper_server.url)
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.connect()
    proxy.lose_reply()
    two.queue(second)
    assert proxy.lost.is_set()
    three.queue(third)
    assert len(zookeeper_server.children(key)) == 3
    one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_a_release_whose_reply_was_lost_has_released(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    one, mine = contender(proxy.url), ask()
    one.hold(mine)
    proxy.lose_reply()
    assert one.release(mine) is True
    assert proxy.lost.is_set()
    assert not zookeeper_server.children(mine.key)


def test_a_taking_whose_reply_was_lost_has_taken(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(proxy.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(key)
    proxy.lose_reply()
    two.hold(second)
    assert proxy.lost.is_set()
    assert two.release(second)


def test_a_node_that_was_made_too_late_is_removed(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(own_zookeeper.url, io_timeout=1.0), ask(ttl=3.0)
    one.connect(3.0)
    own_zookeeper.pause()
    with pytest.raises(BackendUnavailable, match="no answer within"):
        one.request(mine)
    own_zookeeper.resume()
    # It is made now that nobody wants it any more, and the session lives on.
    eventually(lambda: not len(one.line(3.0).leftovers), "the janitor has looked for it")
    eventually(lambda: not own_zookeeper.children(mine.key), "there is no node")
    one.hold(ask(mine.key, ttl=3.0))


def test_who_asks_again_for_what_came_too_late_gets_that_place(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(own_zookeeper.url, io_timeout=1.0), ask()
    one.connect()
    own_zookeeper.pause()
    with pytest.raises(BackendUnavailable):
        one.request(mine)
    own_zookeeper.resume()
    # A server that was stopped for a while may need more than io_timeout until it answers.
    own_zookeeper.tell("srvr")
    one.hold(mine)
    assert len(own_zookeeper.children(mine.key)) == 1


def test_a_hold_that_could_not_be_given_back_is_given_back_later(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(own_zookeeper.url, io_timeout=1.0), ask(ttl=3.0)
    one.hold(mine)
    own_zookeeper.pause()
    with pytest.raises(BackendUnavailable):
        one.release(mine)
    own_zookeeper.resume()
    eventually(lambda: not own_zookeeper.children(mine.key), "there is no node")


def test_a_hold_that_lapsed_is_a_new_ask_with_new_fences(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(zookeeper_server.url), ask(ttl=0.3)
    fence = one.hold(mine).number
    eventually(lambda: one.line(0.3).current(mine.token) is None, "nobody renewed it")
    assert one.hold(mine).number > fence
    assert len(zookeeper_server.children(mine.key)) == 1


def test_a_place_that_lapses_while_the_queue_is_read_leaves_no_second_node(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    key = some_key()
    holder, waiter = contender(zookeeper_server.url), contender(proxy.url)
    first, mine = ask(key), ask(key)
    holder.hold(first)
    waiter.queue(mine)
    line = waiter.line()
    # It would note by itself that the place has lapsed, were it not in the middle of something else.
    waiter._sessions[mine.ttl].stop()
    proxy.hold()
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(waiter.queue, mine)
        eventually(lambda: line.session.client._pending, "the queue is being read")
        line.nodes[mine.token].seen -= 2 * mine.ttl
        proxy.flow()
        asking.result()
    assert len(zookeeper_server.children(key)) == 2
    holder.release(first)
    waiter.until_held(mine)


def forget_the_reply(line: Any, mine: LockRequest) -> Any:
    """Put *line* into the state after a node was made whose reply was lost. Return the node."""
    node = line.nodes.pop(mine.token)
    line.leftovers.add(mine.token, mine.key, new=True)
    return node


def test_of_two_nodes_of_one_waiter_one_is_left(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(zookeeper_server.url), ask()
    one.hold(mine)
    line = one.line()
    node = forget_the_reply(line, mine)
    # Another attempt has made one, too.
    again = line.session.client.contender(node.parent, f"_c_{mine.token}-lock-")
    line.session.ask([again], one._deadline())
    assert len(zookeeper_server.children(mine.key)) == 2
    one.until_held(mine)
    assert one.release(mine)
    assert not zookeeper_server.children(mine.key)


def test_a_node_that_is_about_to_be_deleted_is_no_hold(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(zookeeper_server.url), ask()
    first = one.hold(mine)
    line = one.line()
    node = forget_the_reply(line, mine)
    # The deletion was sent, and nobody knows yet whether it was carried out. Then another reply was lost.
    line.leftovers._doomed.add(node.path)
    again = one.until_held(mine)
    assert again.number > first.number
    assert one.renew([mine]) == [True]
    assert len(zookeeper_server.children(mine.key)) == 1


def test_who_gives_up_an_ask_without_an_answer_leaves_no_node(
    own_zookeeper: ZooKeeperServer, contender: MakeContender
) -> None:
    one, mine = contender(own_zookeeper.url, io_timeout=1.0), ask()
    one.connect()
    own_zookeeper.pause()
    with pytest.raises(BackendUnavailable):
        one.request(mine)
    own_zookeeper.resume()
    eventually(lambda: one.locked(mine.key) is not None, "it answers again")
    assert one.cancel(mine) is False
    assert not own_zookeeper.children(mine.key)
    assert not len(one.line().leftovers)
