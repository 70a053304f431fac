"""A reply is lost on the way: asking again does no harm."""

from __future__ import annotations

import pytest

from distlock.backends.base import Acquired
from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.backends.redis.proxy import Proxy
from tests.redis_server import RedisServer
from tests.stored import hold_key


def test_a_lock_whose_reply_was_lost_is_ours_when_we_ask_again(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(proxy.url), contender(redis_server.url)
    first = ask(key)
    one.locked(key)
    proxy.lose_reply()
    # The connection had been used before, so the backend repeats it by itself.
    held = one.hold(first)
    assert proxy.lost.is_set()
    assert one.hold(first).number == held.number
    two.queue(ask(key))
    assert one.release(first)


def test_a_place_whose_reply_was_lost_is_one_place(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = contender(redis_server.url), contender(proxy.url), contender(redis_server.url)
    first, second, third = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    proxy.lose_reply()
    two.queue(second)
    three.queue(third)
    one.release(first)
    two.poll(second)
    two.release(second)
    three.hold(third)
    three.release(third)
    assert not three.locked(key)


def test_a_cancel_whose_reply_was_lost_cancels(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(proxy.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    proxy.lose_reply()
    assert two.cancel(second) is False
    one.release(first)
    assert not one.locked(key)


def test_a_place_is_found_at_once_where_a_poll_was_lost_on_its_way(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    """Else thousands of waiters would all have the whole queue searched, when their server is back."""
    key, one, two = some_key(), contender(redis_server.url), contender(proxy.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    before = redis_server.client.lrange(f"{hold_key(key)}:queue", 0, -1)
    redis_server.client.config_resetstat()
    proxy.lose_request()
    two.queue(second)
    assert proxy.lost.is_set()
    assert "cmdstat_lrange" not in redis_server.client.info("commandstats")
    (after,) = redis_server.client.lrange(f"{hold_key(key)}:queue", 0, -1)
    assert after.split()[0] == two.process.encode()
    assert [after] != before


def test_a_place_that_nobody_was_told_of_is_given_up(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(proxy.url, io_timeout=1.0)
    warm, first, second = ask(), ask(key), ask(key)
    one.hold(warm)
    two.queue(ask(warm.key))
    one.hold(first)
    proxy.hold(replies=True)
    with pytest.raises(BackendUnavailable):
        two.request(second)
    proxy.flow()
    queue = f"{hold_key(key)}:queue"
    assert redis_server.client.llen(queue) == 1
    assert two.cancel(second) is False
    assert redis_server.client.llen(queue) == 0


def test_a_release_whose_reply_was_lost_is_unknown_and_done_once(
    proxy: Proxy, redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = contender(proxy.url), contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    three.queue(ask(key))
    proxy.lose_reply()
    with pytest.raises(BackendUnavailable):
        one.release(first)
    # It went to the second, and the repetition did not take it back.
    assert isinstance(two.request(second), Acquired)
    assert one.release(first) is False
    assert two.renew([second]) == [True]


def test_a_renewal_whose_reply_was_lost_renews(proxy: Proxy, contender: MakeContender) -> None:
    one = contender(proxy.url)
    first = ask()
    one.hold(first)
    proxy.lose_reply()
    assert one.renew([first]) == [True]
