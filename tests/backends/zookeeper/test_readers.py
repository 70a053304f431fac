"""Readers in a line: what wakes them and whom they wake, which are sent away, and a writer that reads on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from kazoo.protocol.serialization import Exists, GetChildren, SetData

from distlock.backends.base import READ, Busy
from tests.backends.zookeeper.contender import Contender, MakeContender, ask, reader, some_key
from tests.backends.zookeeper.proxy import Proxy
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer


def after(one: Contender) -> int:
    """How many notifications it has had when all that happened before this is told."""
    one.locked("test:nobody")
    return len(one.sink.notified_keys)


def test_the_end_of_a_writer_wakes_the_readers_up_to_the_next_writer_and_nobody_else(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    first, *others = (contender(zookeeper_server.url) for _ in range(6))
    asks = [ask(key), reader(key), reader(key), ask(key), reader(key)]
    first.hold(mine := ask(key))
    for one, theirs in zip(others, asks, strict=True):
        one.queue(theirs)
    writer, one, two, following, late = others
    assert first.release(mine)
    assert writer.sink.wait_for_notification(key)
    writer.hold(asks[0])
    assert [after(each) for each in others] == [1, 0, 0, 0, 0], "to acknowledge wakes no reader"
    assert writer.release(asks[0])
    for each, theirs in ((one, asks[1]), (two, asks[2])):
        assert each.sink.wait_for_notification(key)
        assert each.hold(theirs).followed
    assert [after(each) for each in others] == [1, 1, 1, 0, 0]
    assert one.release(asks[1])
    assert following.queue(asks[3])
    assert two.release(asks[2])
    following.until_held(asks[3])
    assert after(late) == 0
    assert following.release(asks[3])
    assert late.sink.wait_for_notification(key)
    assert not late.hold(asks[4]).followed


def test_a_waiting_reader_leaves_no_watch_behind(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    watches = zookeeper_server.watches()
    for _ in range(5):
        first, second = ask(key), reader(key)
        one.hold(first)
        two.queue(second)
        two.queue(second)
        assert zookeeper_server.watches() == watches + 1
        one.release(first)
        assert two.sink.wait_for_notification(key)
        two.hold(second)
        assert two.release(second)
    assert zookeeper_server.watches() == watches
    assert not any(two.line().session.client._data_watchers.values())


@pytest.mark.parametrize("hanging", [1, 2])
def test_readers_that_hang_when_they_are_let_in_are_sent_away_by_the_writer_behind_them(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, hanging: int
) -> None:
    key = some_key()
    one, two, three, four = (contender(zookeeper_server.url, ack_window=0.1) for _ in range(4))
    first, second, third, fourth = ask(key), reader(key), reader(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    four.queue(fourth)
    one.release(first)
    if hanging == 1:
        three.hold(third)
    eventually(
        lambda: bool(four.request(fourth)) and len(zookeeper_server.children(key)) == 3 - hanging,
        "those that hang are sent away",
    )
    if hanging == 1:
        # The other one has said that it reads.
        for _ in range(20):
            assert four.queue(fourth).poll > 0.5
        assert three.renew([third]) == [True]
        assert three.release(third)
    four.until_held(fourth)


def test_those_that_have_said_that_they_read_are_not_asked_about_again(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, writer = ask(key), ask(key)
    readers = [reader(key) for _ in range(3)]
    one.hold(first)
    for mine in readers:
        one.queue(mine)
    two.queue(writer)
    one.release(first)
    for mine in readers:
        one.hold(mine)
    two.queue(writer)
    sent, submit = list[Any](), two.line().session.client.submit
    monkeypatch.setattr(two.line().session.client, "submit", lambda some: sent.extend(some) or submit(some))
    two.queue(writer)
    # The line, and one look at the first.
    assert [type(request) for request in sent if request.path != "/"] == [GetChildren, Exists]


def test_a_reader_says_that_it_reads_when_it_does_and_when_its_waiter_is_awake(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, writer = ask(key), ask(key)
    one.hold(first)
    one.queue(writer)
    # What was asked for it before it is awake would not tell whether others wait by then.
    two.queue(mine := replace(reader(key), prompt=True))
    path = two.line().nodes[mine.token].path
    assert one.cancel(writer) is False
    assert two.sink.wait_for_notification(key)
    two.queue(mine)
    assert zookeeper_server.admin.exists(path).version == 0, "there was another writer before it"
    one.release(first)
    eventually(lambda: len(two.sink.notified_keys) == 2, "it is told")
    two.locked(key)
    assert zookeeper_server.admin.exists(path).version == 0
    two.hold(mine)
    assert zookeeper_server.admin.exists(path).version == 1


def test_readers_that_found_the_lock_free_or_read_are_not_sent_away(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url, ack_window=0.02) for _ in range(3))
    first, second, third = reader(key), reader(key), ask(key)
    one.hold(first)
    two.hold(second)
    for _ in range(20):
        assert three.queue(third).poll > 0.5
    assert one.renew([first]) == two.renew([second]) == [True]
    # They need no write for it.
    paths = [who.line().nodes[mine.token].path for who, mine in ((one, first), (two, second))]
    assert [zookeeper_server.admin.exists(path).version for path in paths] == [0, 0]


# -- a writer that reads on -----------------------------------------------------------------------


def test_a_writer_that_reads_on_lets_in_the_readers_and_not_the_writer_that_is_next(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three, four = (contender(zookeeper_server.url) for _ in range(4))
    first, second, third, fourth = ask(key), reader(key), ask(key), reader(key)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    four.queue(fourth)
    assert one.downgrade(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)
    assert one.hold(replace(first, mode=READ)).followed
    three.queue(third)
    four.queue(fourth)
    assert (after(three), after(four)) == (0, 0)
    assert one.release(replace(first, mode=READ))
    three.queue(third)
    assert two.release(second)
    three.until_held(third)


def test_the_writer_right_behind_one_that_reads_on_is_not_told_that_it_is_first(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second = ask(key), replace(ask(key), prompt=True)
    one.hold(first)
    two.queue(second)
    assert one.downgrade(first)
    two.queue(second)
    assert after(two) == 0
    assert one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_a_reader_that_comes_behind_one_that_reads_on_enters_also_where_it_does_not_wait(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three, four = (contender(zookeeper_server.url) for _ in range(4))
    first = ask(key)
    one.hold(first)
    assert two.request(reader(key, wait=False)) == Busy()
    assert one.downgrade(first)
    two.hold(second := reader(key, wait=False))
    three.hold(third := reader(key))
    assert four.request(ask(key, wait=False)) == Busy()
    # They hold it whatever becomes of the first, and stay in when they ask again.
    assert one.release(first)
    assert not two.hold(second).followed
    assert not three.hold(third).followed
    assert two.renew([second]) == [True]


def test_one_that_reads_on_has_the_last_of_its_numbers_and_later_holds_have_larger_ones(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url) for _ in range(3))
    first, second, third = ask(key, span=1000), ask(key), reader(key)
    base = one.hold(first).number
    # It stands in line before the other turns into a reader.
    two.queue(second)
    assert one.downgrade(first)
    reading = one.hold(replace(first, mode=READ)).number
    assert base + 999 <= reading < base + 1024
    sight = three.inspect(key)
    assert sight.number == reading
    assert one.release(first)
    assert two.until_held(second).number > reading
    assert two.release(second)
    assert three.hold(third).number > reading


def test_a_reader_that_asks_or_gives_up_in_the_moment_that_it_is_let_in_has_it(
    zookeeper_server: ZooKeeperServer, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url) for _ in range(3))
    first, second, third = ask(key), reader(key), reader(key)
    one.hold(first)
    # They are told too late.
    for who in (two, three):
        monkeypatch.setattr(who.line()._waiters, "changed", lambda *_: None)
    two.queue(second)
    three.queue(third)
    assert three.cancel(third) is False
    three.queue(third)
    assert one.downgrade(first)
    assert two.cancel(second) is True
    assert two.release(second)
    three.hold(third)


def test_turning_twice_is_turning_once_and_what_is_lost_can_not_be_turned(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first = ask(key)
    one.hold(first)
    two.queue(second := ask(key))
    assert two.downgrade(second) is False, "it only waits"
    assert one.downgrade(first)
    assert one.downgrade(first)
    assert one.break_hold(key, two.inspect(key).number)
    assert one.downgrade(first) is False
    assert one.downgrade(ask(key)) is False
    two.until_held(second)


def test_turning_whose_reply_or_request_was_lost_is_repeated(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, contender: MakeContender
) -> None:
    for lose in (proxy.lose_reply, lambda: proxy.lose_request(SetData.type)):
        key, one, two = some_key(), contender(proxy.url), contender(zookeeper_server.url)
        one.hold(first := ask(key))
        two.queue(second := reader(key))
        lose()
        assert one.downgrade(first)
        assert proxy.lost.is_set()
        assert two.sink.wait_for_notification(key)
        two.hold(second)
        assert one.renew([replace(first, mode=READ)]) == [True]


# -- what an operator sees ------------------------------------------------------------------------


def test_each_reader_can_be_broken_and_the_others_read_on(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second, third = reader(key), reader(key), ask(key)
    one.hold(first)
    number = two.hold(second).number
    one.queue(third)
    sight = one.inspect(key)
    assert sight.waiting == 1, "it reads, and doesn't wait"
    assert one.break_hold(key, number)
    assert not one.break_hold(key, number)
    assert two.renew([second]) == [False]
    assert one.renew([first]) == [True]
