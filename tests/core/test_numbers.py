"""Seconds and counts that a user writes: what is none is refused by every caller in the same words."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

import distlock
from distlock.errors import ConfigurationError

#: An int that no float can say.
HUGE = 10**400
#: The longest time that an option may name, seconds.
LONGEST = 1_000_000_000


def connect(**words: Any) -> distlock.Locks:
    return distlock.connect("memory://numbers", **words)


@pytest.mark.parametrize("value", [0.001, 1, 60, 1e300])
def test_numbers_above_0_are_seconds(value: float) -> None:
    with connect(ttl=60, timeout=0).lock("a", max_hold=value) as grant:
        assert grant.remaining() > 0
    assert connect(max_hold=value).namespace.terms.max_hold == value


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, -math.inf, HUGE, True, "1", None, [1]])
@pytest.mark.parametrize("word", ["ttl", "max_hold", "timeout"])
def test_nothing_else_is(value: Any, word: str) -> None:
    if (word, value) == ("timeout", -1):
        assert connect(timeout=-1).timeout == -1, "it means no limit"
        return
    with pytest.raises(ConfigurationError, match=rf"^{word}=.* has to be a number of seconds, "):
        connect(**{word: value})


def test_0_is_where_it_is_said() -> None:
    assert connect(timeout=0).timeout == 0
    with pytest.raises(ConfigurationError, match=r"^ttl=0 has to be a number of seconds, more than 0\.$"):
        connect(ttl=0)
    with pytest.raises(ConfigurationError, match=r"^turn=-1 has to be a number of seconds, 0 or more\.$"):
        connect(turn=-1)


def test_a_limit_is_told() -> None:
    distlock.connect("redis://localhost", io_timeout=LONGEST)
    with pytest.raises(ConfigurationError, match=r"more than 0 and at most 1,000,000,000\.$"):
        distlock.connect("redis://localhost", io_timeout=LONGEST + 1)


@pytest.mark.parametrize("word", ["max_waiters", "max_waiters_total", "epoch"])
def test_whole_numbers_from_1_up_are_counts(word: str) -> None:
    for value in (1, HUGE):
        connect(**{word: value})


@pytest.mark.parametrize("value", [0, -1, 1.0, math.nan, True, "1", None])
def test_no_other_count_is_taken(value: object) -> None:
    with pytest.raises(ConfigurationError, match=r"^epoch=.* has to be a whole number, 1 or more\.$"):
        connect(epoch=value)


@pytest.mark.parametrize(
    ("seconds", "error"),
    [(-2, ValueError), (math.nan, ValueError), (threading.TIMEOUT_MAX * 2, OverflowError)],
)
def test_what_cannot_be_waited_for_is_refused_as_threading_does(
    seconds: float, error: type[Exception]
) -> None:
    with pytest.raises(error):
        connect().lock("a", timeout=seconds)
    with pytest.raises(error):
        threading.Lock().acquire(timeout=seconds)


def test_one_may_wait_without_end() -> None:
    for endless in (math.inf, -1):
        with connect().lock("a", timeout=endless):
            pass


@pytest.mark.parametrize("value", ["1", [1]])
def test_a_time_out_that_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^timeout=.* is no number: write seconds, as in timeout=5\.$"):
        connect().lock("a", timeout=value)


def test_a_limit_of_permits_can_be_written_into_names() -> None:
    connect().semaphore("a", limit=1_000_000)
    for limit in (1_000_001, HUGE):
        with pytest.raises(ConfigurationError, match=r"^limit= has to be at most 1,000,000: "):
            connect().semaphore("a", limit=limit)
