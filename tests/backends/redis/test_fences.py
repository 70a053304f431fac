"""Fences grow, whatever happened to the server's data."""

from __future__ import annotations

from tests.backends.redis.contender import Contender, MakeContender, ask, some_key
from tests.redis_server import RedisServer
from tests.stored import hold_key


def fence_of(one: Contender, key: str, span: int = 1) -> int:
    mine = ask(key, ttl=10.0, span=span)
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
    counter = redis_server.client.get(f"{hold_key(key)}:fence")
    assert fence < int(counter) < 2**53


def test_fences_grow_where_a_hold_has_ended_by_itself(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    """Nothing is left of it, and its block of numbers goes farther than the clock."""
    key, one, end = some_key(), contender(redis_server.url), 0
    for _ in range(50):
        number = one.hold(ask(key, span=1_000_000)).number
        assert number >= end
        end = number + 1_000_000
        redis_server.client.delete(hold_key(key))


def test_fences_grow_while_the_clock_stands_behind_them(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    """As after a clock that was set back: what is left of a hold is ahead of it, and the counter with it."""
    key, one = some_key(), contender(redis_server.url)
    end = fence_of(one, key, span=300_000_000) + 300_000_000
    for span in (1, 64, 131_072, 64, 1):
        assert fence_of(one, key, span) >= end
        end += span
        assert int(redis_server.client.get(f"{hold_key(key)}:fence")) >= end
    redis_server.client.delete(hold_key(key))
    assert fence_of(one, key) >= end


def test_a_hold_that_was_given_back_too_late_leaves_the_next_one_as_it_is(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(redis_server.url), contender(redis_server.url)
    first, second = ask(key, ttl=10.0), ask(key, ttl=30.0)
    one.hold(first)
    redis_server.client.delete(hold_key(key))
    assert one.release(first) is False
    assert not redis_server.client.exists(hold_key(key))
    two.hold(second)
    held = redis_server.client.dump(hold_key(key))
    assert one.release(first) is False
    assert redis_server.client.dump(hold_key(key)) == held
    assert 20_000 < redis_server.client.pttl(hold_key(key)) <= 30_000
    assert two.release(second) is True


def test_what_is_left_of_a_hold_lives_for_the_rest_of_its_ttl_and_no_longer_than_half_a_minute(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(redis_server.url)
    number = one.hold(mine := ask(key, ttl=10.0)).number
    assert one.release(mine) is True
    assert redis_server.client.get(hold_key(key)) == b"%d %d" % (number, number + 1)
    assert 0 < redis_server.client.pttl(hold_key(key)) <= 10_000
    assert not one.locked(key)
    one.hold(mine := ask(key, ttl=3600.0))
    assert one.release(mine) is True
    assert 0 < redis_server.client.pttl(hold_key(key)) <= 30_000


def test_a_block_that_passes_the_counter_raises_it(
    redis_server: RedisServer, contender: MakeContender
) -> None:
    key, one = some_key(), contender(redis_server.url)
    fence_of(one, key)
    # What is left of that hold says where the next one begins, so only the counter can be behind.
    begin = fence_of(one, key, span=1_000_000)
    assert int(redis_server.client.get(f"{hold_key(key)}:fence")) >= begin + 1_000_000
    redis_server.client.delete(hold_key(key))
    assert fence_of(one, key) >= begin + 1_000_000
