"""The clock of the server jumps, or goes too fast: fences grow, and leases end by the server's clock."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import distlock
from tests.backends.redis.contender import MakeContender, ask, some_key
from tests.backends.redis.planted import plant
from tests.backends.redis.test_data_loss import TURNS, Play, plays, writers
from tests.redis_server import eventually
from tests.shifted_clock import HOUR, ShiftedRedis, shifted_server
from tests.stored import hold_key

__all__ = ["shifted_server"]

Jump = Callable[[ShiftedRedis], None]


def forward(server: ShiftedRedis) -> None:
    server.set_clock(HOUR)
    assert 0.9 * HOUR < server.ahead() < 1.1 * HOUR


def back(server: ShiftedRedis) -> None:
    server.set_clock(-HOUR)
    assert -1.1 * HOUR < server.ahead() < -0.9 * HOUR


def faster(server: ShiftedRedis) -> None:
    server.set_clock(0, pace=2.0)


@pytest.mark.fault("F16")
@plays
def test_numbers_grow_whatever_the_clock_does(
    shifted_server: ShiftedRedis, contender: MakeContender, play: Play
) -> None:
    key, one, two = some_key(), contender(shifted_server.url), contender(shifted_server.url)
    before = play(one, two, key)
    for jump in (forward, back, faster, back, forward, back):
        jump(shifted_server)
        # What is left of the hold before, to which a clock that was set back gives another hour.
        shifted_server.client.delete(hold_key(key), f"{hold_key(key)}:holders")
        number = play(one, two, key)
        assert number > before
        before = max(number, *(play(one, two, key) for _ in range(TURNS // 10)))


@pytest.mark.fault("F16", control=True)
def test_numbers_that_are_the_clock_fall_back_with_it(
    shifted_server: ShiftedRedis, contender: MakeContender, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, "NumbersAreTheClock")
    key, one, two = some_key(), contender(shifted_server.url), contender(shifted_server.url)
    before = writers(one, two, key)
    back(shifted_server)
    assert writers(one, two, key) < before


def test_a_clock_that_jumps_ahead_ends_a_hold_and_its_holder_is_told(
    shifted_server: ShiftedRedis, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(shifted_server.url), contender(shifted_server.url)
    first = ask(key)
    before = one.hold(first).number
    forward(shifted_server)
    assert two.hold(ask(key)).number > before
    assert one.renew([first]) == [False]


@pytest.mark.fault("F16")
def test_a_clock_that_jumps_back_keeps_the_lock_of_a_dead_holder_until_it_is_right_again(
    shifted_server: ShiftedRedis, contender: MakeContender
) -> None:
    key, other = some_key(), some_key()
    one, two = contender(shifted_server.url), contender(shifted_server.url)
    for dead in (key, other):
        one.hold(ask(dead, ttl=0.5))
    back(shifted_server)
    second = ask(key)
    two.queue(second)
    assert shifted_server.client.pttl(hold_key(key)) > 0.9 * HOUR * 1000
    # An operator may end it before that.
    number = int(shifted_server.client.get(hold_key(other)).split()[0])
    assert two.break_hold(other, number)
    two.hold(ask(other))
    shifted_server.set_clock(0)
    two.poll(second)


@pytest.mark.fault("F16")
def test_a_holder_that_lives_keeps_its_lock_where_the_clock_goes_twice_as_fast(
    shifted_server: ShiftedRedis, contender: MakeContender
) -> None:
    key, other, ttl = "product_1", some_key(), 12.0
    locks = distlock.connect(shifted_server.url, ttl=ttl)
    shifted_server.set_clock(0, pace=2.0)
    try:
        with locks.lock(key) as grant:
            # One that is not renewed ends after half of its time.
            one = contender(shifted_server.url)
            one.hold(ask(other, ttl=ttl))
            eventually(lambda: shifted_server.ahead() > 0.6 * ttl, "a lease is over by the server's clock")
            assert not one.locked(other)
            grant.check()
            one.queue(ask(f":{key}"))
    finally:
        locks.close()
