"""Numbers grow from majority to majority, also where the servers count differently."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from distlock.backends.base import Acquired, LockRequest, Queued
from distlock.testing.protocol_fixtures import Contender, ask
from tests.backend_class import backend_class
from tests.redis_server import RedisServer
from tests.shifted_clock import HOUR, ShiftedRedis
from tests.topologies.redlock.contender import MakeContender
from tests.topologies.redlock.five import Five, started

RedisBackend = backend_class("redis://localhost")
RedlockBackend = backend_class("redlock://a,b,c")

#: How far one server counts ahead of the others: its clock is hours ahead, or was.
AHEAD = 10_000_000_000


class NotWrittenBack(RedlockBackend):
    """The majority that grants does not hear of the number."""

    def _agree(self, mine: LockRequest, numbers: Mapping[Any, int], deadline: float) -> int | None:
        return max(numbers.values())


def count_ahead(url: str, key: str, number: int = 0) -> int:
    """Returns the number that it has come to: *number*, if one is given."""
    server = RedisBackend(url)
    mine = ask(key)
    held = server.request(mine)
    assert isinstance(held, Acquired)
    raised = server.raise_fence(mine, number or held.number + AHEAD)
    assert raised is not None
    assert server.release(mine)
    server.close()
    return raised.number - 1


def counts_ahead(server: RedisServer, key: str) -> None:
    count_ahead(server.url, key)


def has_a_clock_ahead(server: RedisServer, key: str) -> None:
    assert isinstance(server, ShiftedRedis)
    server.set_clock(3 * HOUR)


class LeftMeanwhile(RedlockBackend):
    """The servers in *leaving* go away when the majority has granted, and before it has agreed."""

    leaving: Sequence[RedisServer] = ()

    def _agree(self, mine: LockRequest, numbers: Mapping[Any, int], deadline: float) -> int | None:
        for server in self.leaving:
            server.kill()
        return super()._agree(mine, numbers, deadline)


def numbers_before_and_after_a_kill(
    five: Five, one: Contender, key: str, get_ahead: Callable[[RedisServer, str], object] = counts_ahead
) -> tuple[int, int]:
    """The majority with the server that is ahead, and one without it."""
    for server in five[3:]:
        server.kill()
    get_ahead(five[0], key)
    first, second = ask(key), ask(key)
    before = one.held(first).number
    assert one.backend.release(first)
    for server in five[3:]:
        server.start()
    five[0].kill()
    return before, one.until_held(second).number


def test_they_grow_when_the_server_that_counts_ahead_is_killed(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    before, after = numbers_before_and_after_a_kill(own_five, contender(own_five.url), key)
    assert before < after


def test_without_the_write_back_they_would_not(own_five: Five, contender: MakeContender, key: str) -> None:
    one = contender(own_five.url, NotWrittenBack)
    before, after = numbers_before_and_after_a_kill(own_five, one, key)
    assert before > after + AHEAD / 2


@pytest.mark.fault("F25")
def test_they_grow_when_the_server_whose_clock_is_ahead_is_killed(contender: MakeContender, key: str) -> None:
    with started(shifted=1) as five:
        before, after = numbers_before_and_after_a_kill(five, contender(five.url), key, has_a_clock_ahead)
        assert before < after


@pytest.mark.fault("F25", control=True)
def test_without_the_write_back_they_would_fall_back_to_the_clocks_that_are_right(
    contender: MakeContender, key: str
) -> None:
    with started(shifted=1) as five:
        one = contender(five.url, NotWrittenBack)
        before, after = numbers_before_and_after_a_kill(five, one, key, has_a_clock_ahead)
        assert before > after + AHEAD / 2


@pytest.mark.fault("F25")
@pytest.mark.parametrize("wrong", [1, 3], ids=["one clock", "three clocks"])
def test_a_clock_that_jumps_costs_no_lock_and_where_three_do_the_later_fence_is_larger(
    contender: MakeContender, key: str, wrong: int
) -> None:
    with started(shifted=wrong) as five:
        one, two = contender(five.url), contender(five.url)
        first, second = ask(key), ask(key)
        before = one.held(first).number
        for server in five[:wrong]:
            has_a_clock_ahead(server, key)
        if wrong == 1:
            assert isinstance(two.backend.request(second), Queued)
            assert one.backend.renew([first]) == [True]
        else:
            assert two.until_held(second).number > before
            assert one.backend.renew([first]) == [False]


def test_they_grow_while_one_server_after_the_other_is_killed_and_restarted_empty(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    one, two = contender(own_five.url), contender(own_five.url)
    count_ahead(own_five[0].url, key)
    numbers = []
    for server in own_five:
        for who in (one, two):
            mine = ask(key)
            numbers.append(who.until_held(mine).number)
            who.backend.release(mine)
        server.restart()
    assert numbers == sorted(set(numbers))
    assert numbers[-1] > numbers[0]


def test_an_ask_whose_hold_has_ended_gets_another_number(
    five: Five, contender: MakeContender, key: str
) -> None:
    one, two = contender(five.url), contender(five.url)
    mine, other = ask(key, ttl=0.3), ask(key)
    before = one.held(mine).number
    between = two.until_held(other).number
    assert two.backend.release(other)
    assert before < between < one.until_held(mine).number
    assert one.backend.release(mine)


def test_a_number_is_raised_above_all_that_its_hold_may_have_given_out(
    five: Five, contender: MakeContender, key: str
) -> None:
    one = contender(five.url)
    mine = ask(key, span=1000)
    first = one.held(mine).number
    raised = one.backend.raise_fence(mine, first)
    assert raised is not None
    assert raised.number >= first + mine.span
    assert one.backend.release(mine)


def test_so_it_is_where_servers_that_were_behind_have_numbers_among_them(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    ahead, *behind, last = own_five
    last.kill()
    number = count_ahead(behind[0].url, key)
    for server in behind[1:]:
        assert count_ahead(server.url, key, number) == number
    # They count in steps, one of which it is ahead at least: by less than a hold has numbers.
    count_ahead(ahead.url, key, number + 200_000)
    one = contender(own_five.url, io_timeout=20.0)
    mine = ask(key, span=1_000_000)
    behind[-1].pause()
    # A majority without it has to agree, and counts from the one that is ahead.
    first = one.held(mine).number
    behind[-1].resume()
    ahead.kill()
    raised = one.backend.raise_fence(mine, first + 2)
    assert raised is not None
    assert raised.number >= first + mine.span


def test_a_number_that_no_majority_has_heard_of_is_given_to_nobody(
    own_five: Five, contender: MakeContender, key: str
) -> None:
    count_ahead(own_five[0].url, key)
    for server in own_five[3:]:
        server.kill()
    one = contender(own_five.url, LeftMeanwhile, io_timeout=20.0)
    assert isinstance(one.backend, LeftMeanwhile)
    one.backend.leaving = own_five[1:3]
    assert isinstance(one.backend.request(ask(key)), Queued)
