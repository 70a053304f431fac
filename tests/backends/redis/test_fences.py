"""Fences grow, whatever happened to the server's data."""

from __future__ import annotations

from distlock.backends.redis.scripts import hold_key
from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import RedisServer


def fence_of(one: Contender, key: str, span: int = 1) -> int:
    mine = ask(key, span=span)
    fence = one.hold(mine).number
    assert one.release(mine)
    return fence


def test_blocks_of_fences_never_overlap(redis_server: RedisServer, contender: MakeContender) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    end = 0
    for number in range(200):
        span = 1 + 10_000 * (number % 3)
        fence = fence_of((one, two)[number % 2], key, span)
        assert fence >= end
        end = fence + span


def test_fences_grow_through_flushall(own_server: RedisServer, contender: MakeContender) -> None:
    key, one = some_key(), contender(own_server.url)
    before = fence_of(one, key, span=64)
    own_server.client.flushall()
    assert fence_of(one, key) >= before + 64


def test_fences_grow_through_a_crash_that_lost_the_data(
    own_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(own_server.url)
    before = fence_of(one, key, span=64)
    own_server.restart()
    assert own_server.client.dbsize() == 0
    assert fence_of(one, key) >= before + 64


def test_a_counter_ahead_of_the_clock_is_kept_until_the_clock_has_passed_it(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    """As after a clock that was an hour fast, and was set right."""
    key, one = some_key(), contender(redis_server.url)
    counter = f"{hold_key(key)}:fence"
    ahead = redis_server.client.time()[0] * 1_000_000 + 3_600_000_000
    redis_server.client.set(counter, ahead)
    assert fence_of(one, key) == ahead
    assert redis_server.client.pttl(counter) >= 3_600_000
    assert fence_of(one, key) == ahead + 1


def test_fences_are_whole_numbers_that_a_double_can_hold(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(redis_server.url)
    fence = fence_of(one, key)
    assert 10**15 < fence < 2**53
    assert redis_server.client.get(f"{hold_key(key)}:fence") == b"%d" % (fence + 1)
