"""Which waiter is next, when the lock is given back, runs out or is given up."""

from __future__ import annotations

import threading
from itertools import pairwise

from distlock.backends.base import Busy
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.redis_server import RedisServer, eventually
from tests.stored import hold_key


def end_lease(server: RedisServer, key: str) -> None:
    """The time of the holder of *key* is over, and not before all others have asked."""
    assert server.client.pexpire(hold_key(key), 1)
    eventually(lambda: not server.client.exists(hold_key(key)), "the lease ended")


def test_the_lock_goes_round_in_the_order_of_the_asks(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    requests = [(contender(redis_server.url), ask(key)) for _ in range(6)]
    requests[0][0].hold(requests[0][1])
    for one, mine in requests[1:]:
        one.queue(mine)
    for (one, mine), (following, its) in pairwise(requests):
        assert one.release(mine)
        assert following.sink.wait_for_notification(key)
        following.hold(its)


def test_a_hand_over_tells_its_process_and_no_other(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    first = ask(key)
    one.hold(first)
    two.queue(ask(key))
    three.queue(ask(key))
    one.release(first)
    assert two.sink.wait_for_notification(key)
    assert three.sink.notified_keys == []


def test_a_hint_names_the_lock_as_the_engine_does(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key() + "}{ \u00e9 \U0001f600 * \r\n"
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(key)


def test_who_polls_a_free_lock_hands_it_to_the_one_before_him(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    second, third = ask(key), ask(key)
    one.hold(ask(key))
    two.queue(second)
    three.queue(third)
    end_lease(redis_server, key)
    three.queue(third)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_who_does_not_wait_does_not_pass_who_does(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    second = ask(key)
    one.hold(ask(key))
    two.queue(second)
    end_lease(redis_server, key)
    assert three.request(ask(key, wait=False)) == Busy()
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_a_cancel_that_races_with_a_hand_over_is_decided_by_the_server(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    one, two = contender(redis_server.url), contender(redis_server.url)
    kept = 0
    for _ in range(200):
        key = some_key()
        first, second = ask(key), ask(key)
        one.hold(first)
        two.queue(second)
        start = threading.Barrier(2)

        def release() -> None:
            start.wait()  # noqa: B023 - it is joined before the next round
            one.release(first)  # noqa: B023

        thread = threading.Thread(target=release)
        thread.start()
        start.wait()
        ours = two.cancel(second)
        thread.join()
        # Either it is ours and nobody else's, or it is free: never in between.
        assert two.locked(key) is ours
        assert two.release(second) is ours
        kept += ours
    assert not two.locked(key), kept


def test_who_gives_up_a_free_lock_hands_it_to_the_next(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(redis_server.url) for _ in range(3))
    second, third = ask(key), ask(key)
    one.hold(ask(key))
    two.queue(second)
    three.queue(third)
    end_lease(redis_server, key)
    assert two.cancel(second) is False
    assert three.sink.wait_for_notification(key)
    three.hold(third)


def test_a_late_cancel_does_not_take_its_successor_along(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, given_up, second = ask(key), ask(key), ask(key)
    one.hold(first)
    two.queue(given_up)
    two.queue(second)
    assert two.cancel(given_up) is False
    one.release(first)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_who_takes_what_he_was_handed_has_it_for_its_ttl(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key), ask(key, ttl=30.0)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert redis_server.client.pttl(hold_key(key)) <= 500
    two.hold(second)
    assert redis_server.client.pttl(hold_key(key)) > 20_000


def test_who_asks_often_has_one_place(redis_server: RedisServer, contender: MakeContender) -> None:
    key = some_key()
    one, two = contender(redis_server.url), contender(redis_server.url)
    second = ask(key)
    one.hold(ask(key))
    for _ in range(5):
        two.queue(second)
    assert redis_server.client.llen(f"{hold_key(key)}:queue") == 1
