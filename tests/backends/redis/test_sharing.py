"""What several have at once, in the keys of the server: readers, and permits."""

from __future__ import annotations

import pytest

from distlock.errors import BackendUnavailable
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.backends.redis.sharing import PAIRS, Make, keys, permit, read, sharing
from tests.redis_server import RedisServer
from tests.stored import hold_key


def test_all_keys_have_an_end(own_server: RedisServer, contender: MakeContender) -> None:
    one, two = contender(own_server.url), contender(own_server.url)
    for number in range(200):
        for share, outside in PAIRS.values():
            key = some_key()
            mine = share(key)
            one.hold(mine)
            two.hold(share(key))
            if number % 3 == 0:
                one.queue(outside(key))
            if number % 2 == 0:
                one.release(mine)
    pipeline = own_server.client.pipeline(transaction=False)
    found = list(own_server.client.scan_iter(count=1000))
    for key in found:
        pipeline.pttl(key)
    ends = pipeline.execute()
    assert len(found) > 800
    assert -1 not in ends
    assert max(ends) <= 61_000


@sharing
def test_the_keys_live_as_long_as_the_longest_lease(
    redis_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one = some_key(), contender(redis_server.url)
    place, client = hold_key(key), redis_server.client
    short, long = share(key), share(key)
    short.ttl, long.ttl = 20.0, 50.0
    one.hold(long)
    one.hold(short)
    for name in (place, f"{place}:holders"):
        assert 40_000 < client.pttl(name) <= 50_000
    assert one.renew([short]) == [True]
    assert 40_000 < client.pttl(place) <= 50_000
    # What is left is the short one, and nobody has to wait longer for it.
    assert one.release(long)
    for name in (place, f"{place}:holders"):
        assert 10_000 < client.pttl(name) <= 20_000


@sharing
def test_nothing_but_numbers_is_left_of_them(
    redis_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    first, second, third = share(key), share(key), outside(key)
    one.hold(first)
    two.hold(second)
    three.queue(third)
    assert one.release(first)
    assert two.release(second)
    three.hold(third)
    assert three.release(third)
    last = share(key)
    one.hold(last)
    assert one.release(last)
    # What was said of the limit ends within a minute.
    assert keys(redis_server, key) <= {"", ":limit"}
    assert redis_server.client.pttl(f"{hold_key(key)}:limit") <= 60_000
    assert not one.locked(key)
    # That of readers says that it is free, and ends by itself.
    assert (redis_server.client.get(hold_key(key)) or b"1 2").replace(b" ", b"").isdigit()
    assert redis_server.client.pttl(hold_key(key)) <= 30_000


def test_who_names_a_limit_again_keeps_it_known(redis_server: RedisServer, contender: MakeContender) -> None:
    """Else one that names another limit a minute after the first is told of no other."""
    key, one = some_key(), contender(redis_server.url)
    limit = f"{hold_key(key)}:limit"
    one.hold(permit(key))
    redis_server.client.pexpire(limit, 5_000)
    one.hold(permit(key))
    assert redis_server.client.pttl(limit) > 50_000


@sharing
def test_those_that_died_are_forgotten_while_others_live(
    redis_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one = some_key(), contender(redis_server.url)
    dead, alive, other = share(key), share(key), share(key)
    one.hold(dead)
    if share is read:
        one.hold(alive)
    holders = f"{hold_key(key)}:holders"
    for member in redis_server.client.zrange(holders, 0, -1):
        if member.endswith(dead.token.encode()):
            redis_server.client.zadd(holders, {member: 1})
    one.hold(other)
    assert one.renew([dead]) == [False]
    assert one.release(dead) is False
    assert one.release(other)
    left = {member.split()[1].decode() for member in redis_server.client.zrange(holders, 0, -1)}
    assert left == ({alive.token} if share is read else set())


@sharing
def test_a_hold_that_an_operator_deleted_is_lost_for_all(
    redis_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    """With the line that errors name. The set is left behind, and is not taken for that of the next hold."""
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    lost, first, then = share(key), outside(key), share(key)
    one.hold(lost)
    redis_server.client.delete(hold_key(key))
    two.hold(first)
    assert two.release(first)
    two.hold(then)
    assert one.renew([lost]) == [False]
    assert one.release(lost) is False
    assert two.release(then)
    two.hold(outside(key))


@sharing
def test_something_in_the_place_of_the_set_is_told_with_the_line_to_run(
    redis_server: RedisServer, contender: MakeContender, share: Make, outside: Make
) -> None:
    key, one = some_key(), contender(redis_server.url)
    one.hold(first := share(key))
    place = f"{hold_key(key)}:holders"
    redis_server.client.delete(place)
    redis_server.client.set(place, "theirs")
    with pytest.raises(BackendUnavailable) as told:
        one.request(share(key))
    assert f"redis-cli -n 0 DEL '{place}'." in str(told.value)
    redis_server.client.delete(place)
    assert one.renew([first]) == [False]


def test_a_lock_in_the_place_of_a_semaphore_is_told(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(redis_server.url)
    one.hold(ask(key))
    with pytest.raises(BackendUnavailable, match="distlock did not write"):
        one.request(permit(key))


def test_a_version_without_readers_hands_over_to_one_as_to_a_writer(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two, three = some_key(), *(contender(redis_server.url) for _ in range(3))
    place, client = hold_key(key), redis_server.client
    one.hold(ask(key))
    two.queue(reader := read(key))
    three.queue(other := read(key))
    # What its scripts make of the entry: five words, the third a number of which they reserve none.
    process, asks_by, span, poll, token = client.lpop(f"{place}:queue").decode().split()
    assert (process, span, token) == (two.process, "0", reader.token)
    assert asks_by.isdigit()
    number = int(client.get(place).split()[1])
    client.set(place, f"{number} {number} + {token}", px=500)
    client.publish(f"dl:2:ch:{process}", f"{poll} {number} 500 {key}")
    assert two.sink.wait_for_notification(key)
    assert two.sink.hand_offs == []
    assert two.hold(reader).number == number
    assert two.renew([reader]) == [True]
    assert client.pttl(place) > 10_000
    three.queue(other)
    assert two.cancel(reader) is True
    assert two.release(reader)
    assert three.sink.wait_for_notification(key)
    three.hold(other)
