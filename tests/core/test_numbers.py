"""Seconds and counts that a user writes: what is none is refused by every caller in the same words."""

from __future__ import annotations

import math
import threading
from typing import Any

import pytest

from distlock.errors import ConfigurationError
from distlock.numbers import (
    LONG,
    MOST_PERMITS,
    check_count,
    check_permits,
    check_seconds,
    check_timeout,
    is_count,
    is_seconds,
)

#: An int that no float can say.
HUGE = 10**400


@pytest.mark.parametrize("value", [0.001, 1, 60, 1e300])
def test_numbers_above_0_are_seconds(value: float) -> None:
    assert is_seconds(value)
    assert check_seconds("ttl", value) == value
    assert isinstance(check_seconds("ttl", value), float)


@pytest.mark.parametrize("value", [-1, -0.001, math.nan, math.inf, -math.inf, HUGE, True, "1", None, [1]])
@pytest.mark.parametrize("zero", [True, False])
def test_nothing_else_is(value: object, zero: bool) -> None:
    assert not is_seconds(value, zero=zero)
    with pytest.raises(ConfigurationError, match=r"^ttl=.* has to be a number of seconds, "):
        check_seconds("ttl", value, zero=zero)


def test_0_is_where_it_is_said() -> None:
    assert check_seconds("timeout", 0, zero=True) == 0.0
    with pytest.raises(ConfigurationError, match=r"^ttl=0 has to be a number of seconds, more than 0\.$"):
        check_seconds("ttl", 0)
    with pytest.raises(ConfigurationError, match=r"^timeout=-1 has to be a number of seconds, 0 or more\.$"):
        check_seconds("timeout", -1, zero=True)


def test_a_limit_is_told() -> None:
    assert check_seconds("io_timeout", LONG, most=LONG) == LONG
    with pytest.raises(ConfigurationError, match=r"more than 0 and at most 1,000,000,000\.$"):
        check_seconds("io_timeout", LONG + 1, most=LONG)


def test_whole_numbers_from_1_up_are_counts() -> None:
    assert check_count("max_waiters", 1) == 1
    assert check_count("max_waiters", HUGE) == HUGE


@pytest.mark.parametrize("value", [0, -1, 1.0, math.nan, True, "1", None])
def test_no_other_count_is_taken(value: object) -> None:
    assert not is_count(value)
    with pytest.raises(ConfigurationError, match=r"^epoch=.* has to be a whole number, 1 or more\.$"):
        check_count("epoch", value)


@pytest.mark.parametrize(
    ("seconds", "error"),
    [(-1, ValueError), (math.nan, ValueError), (threading.TIMEOUT_MAX * 2, OverflowError)],
)
def test_what_cannot_be_waited_for_is_refused_as_threading_does(
    seconds: float, error: type[Exception]
) -> None:
    with pytest.raises(error) as ours:
        check_timeout(seconds)
    with pytest.raises(error) as theirs:
        # -1 means no limit there.
        threading.Lock().acquire(timeout=-2 if seconds == -1 else seconds)
    assert type(ours.value) is type(theirs.value)


def test_one_may_wait_without_end() -> None:
    assert check_timeout(math.inf) == math.inf


@pytest.mark.parametrize("value", ["1", None, [1]])
def test_a_time_out_that_is_no_number_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^timeout=.* is no number: write seconds, as in timeout=5\.$"):
        check_timeout(value)


def test_a_limit_of_permits_can_be_written_into_names() -> None:
    check_permits(MOST_PERMITS, 1)
    with pytest.raises(ConfigurationError, match=r"^limit= has to be at most 1,000,000: "):
        check_permits(HUGE, 1)
