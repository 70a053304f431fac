"""Keys of somebody else in our place, and ours that would stay for ever: told by name, not waited for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

import distlock
from distlock.backends.base import Acquired, Queued
from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import LONG, MakeContender, ask, some_key
from tests.redis_server import RedisServer
from tests.stored import hold_key

#: The least lifetime that a hold of unknown ttl gets back, seconds: see ``restore_lifetime.lua``.
LONGEST_TTL = 600.0

Put = Callable[[Redis, str], Any]

FOREIGN: dict[str, Put] = {
    "a string": lambda client, key: client.set(key, "theirs"),
    "a string with a lifetime": lambda client, key: client.set(key, "theirs", px=60_000),
    "like a hold, for ever": lambda client, key: client.set(key, "5 6 - theirs"),
    "an empty string": lambda client, key: client.set(key, ""),
    "a list": lambda client, key: client.rpush(key, "theirs"),
    "a hash": lambda client, key: client.hset(key, "their", "s"),
    "a set": lambda client, key: client.sadd(key, "theirs"),
    "a sorted set": lambda client, key: client.zadd(key, {"theirs": 1}),
    "a stream": lambda client, key: client.xadd(key, {"their": "s"}),
}


@pytest.mark.attack("A42")
@pytest.mark.parametrize("what", FOREIGN)
@pytest.mark.parametrize("wait", [True, False], ids=["waiting", "trying"])
def test_something_in_the_place_of_a_hold_is_told_with_the_line_to_run(
    redis_server: RedisServer, contender: MakeContender, what: str, wait: bool
) -> None:
    key, one = some_key(), contender(redis_server.url)
    client, place = redis_server.client, hold_key(key)
    FOREIGN[what](client, place)
    kept = client.dump(place)
    mine = ask(key, wait=wait)
    with pytest.raises(BackendUnavailable) as told:
        one.request(mine)
    assert f"redis-cli -n 0 DEL '{place}'." in str(told.value)
    # It is left alone, whatever is asked, and a batch of renewals does not stumble over it.
    other = ask()
    one.hold(other)
    assert one.renew([other, mine, other]) == [True, False, True]
    assert not one.cancel(mine)
    assert not one.release(mine)
    assert one.raise_fence(mine, 1) is None
    assert client.dump(place) == kept
    client.delete(place)
    one.hold(mine)


@pytest.mark.parametrize("part", ["queue", "fence"])
def test_something_in_the_place_of_another_key_is_told_with_the_line_to_run(
    redis_server: RedisServer, contender: MakeContender, part: str
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    client, place = redis_server.client, f"{hold_key(key)}:{part}"
    one.hold(first := ask(key))
    client.delete(place)
    client.set(place, "theirs") if part == "fence" else client.sadd(place, "theirs")
    if part == "fence":
        one.release(first)
        # For a moment what is left of the hold will do instead.
        client.delete(hold_key(key))
    with pytest.raises(BackendUnavailable) as told:
        two.request(ask(key))
    assert f"redis-cli -n 0 DEL '{place}'." in str(told.value)
    client.delete(place)
    one.cancel(first)
    one.release(first)
    two.hold(ask(key))


def test_who_is_in_line_keeps_its_place_behind_a_counter_of_somebody_else(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    client, hold = redis_server.client, hold_key(key)
    one.hold(ask(key))
    second, third = ask(key), ask(key)
    two.queue(second)
    three.queue(third)
    client.set(f"{hold}:fence", "theirs")
    client.delete(hold)
    with pytest.raises(BackendUnavailable, match="redis-cli -n 0 DEL"):
        three.request(third)
    client.delete(f"{hold}:fence")
    three.queue(third)
    assert two.sink.wait_for_notification(key)
    two.hold(second)


def test_acquire_tells_it_at_once(redis_server: RedisServer) -> None:
    locks = distlock.connect(redis_server.url, timeout=LONG)
    name = some_key()
    redis_server.client.set(place := hold_key(f":{name}"), "theirs")
    try:
        for timeout in (0, None, -1):
            with pytest.raises(distlock.BackendUnavailable, match="redis-cli -n 0 DEL"):
                locks.lock(name).acquire(timeout=timeout)
        redis_server.client.delete(place)
        with locks.lock(name):
            pass
    finally:
        locks.close()


@pytest.mark.parametrize("wait", [True, False], ids=["waiting", "trying"])
def test_a_hold_whose_lifetime_was_taken_away_is_told_and_ends_by_itself(
    redis_server: RedisServer, contender: MakeContender, wait: bool
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    client, place = redis_server.client, hold_key(key)
    first, second = ask(key, ttl=2 * LONG), ask(key, wait=wait)
    one.hold(first)
    client.persist(place)
    with pytest.raises(BackendUnavailable) as told:
        two.request(second)
    assert f"redis-cli -n 0 DEL '{place}'." in str(told.value)
    # Not the ttl of who asks: it may be over before the holder renews.
    assert 2 * LONG * 1000 < client.pttl(place) <= LONGEST_TTL * 1000
    # A holder that lives has lost nothing.
    assert not isinstance(two.request(second), Acquired)
    assert one.renew([first]) == [True]
    assert one.release(first)


def test_renewal_gives_a_hold_its_lifetime_back(redis_server: RedisServer, contender: MakeContender) -> None:
    one = contender(redis_server.url)
    for again in (lambda: one.renew([mine]), lambda: one.request(mine), lambda: one.cancel(mine)):
        one.hold(mine := ask())
        redis_server.client.persist(hold_key(mine.key))
        assert again()
        assert redis_server.client.pttl(hold_key(mine.key)) > 0
        one.release(mine)


def test_a_queue_that_would_stay_for_ever_is_cleared(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(redis_server.url)
    client, queue = redis_server.client, f"{hold_key(key)}:queue"
    client.rpush(queue, *(f"gone_{number}" for number in range(200)))
    assert client.ttl(queue) == -1
    mine = ask(key)
    answer = one.request(mine)
    assert isinstance(answer, (Acquired, Queued))
    one.poll(mine)
    assert client.exists(queue) == 0
