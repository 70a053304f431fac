"""Checks of the numbers that users write: time-outs, seconds, counts."""

from __future__ import annotations

import math
import sys
import threading
from typing import TypeGuard

from distlock.errors import ConfigurationError

#: The largest float that is not infinity.
FINITE = sys.float_info.max
#: The longest time-out that sockets and servers accept, seconds.
MOST_SECONDS = 1e9

#: The largest limit of a semaphore, because some lock services write it into names.
MOST_PERMITS = 1_000_000

A_COUNT = "has to be a whole number, 1 or more."


def check_timeout(seconds: float) -> float:
    """Return *seconds* as a float, or raise the errors of `threading.Lock` for a wrong time-out."""
    if not hasattr(seconds, "__float__"):
        raise TypeError(f"timeout={seconds!r} is no number: write seconds, as in timeout=5.")
    if seconds != seconds:
        raise ValueError("Invalid value NaN (not a number)")
    if seconds < 0:
        raise ValueError("timeout value must be a non-negative number")
    if seconds > threading.TIMEOUT_MAX and seconds != math.inf:
        raise OverflowError("timeout value is too large")
    return float(seconds)


def is_seconds(value: object, *, zero: bool = False, most: float = FINITE) -> TypeGuard[float]:
    """Return whether *value* is a number above 0, or 0 if *zero*, and at most *most*. A bool is no number."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and (0 <= value <= most if zero else 0 < value <= most)
    )


def is_count(value: object) -> TypeGuard[int]:
    """Return whether *value* is a whole number from 1 up."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def a_number_of_seconds(*, zero: bool = False, most: float = FINITE) -> str:
    """Return how an error describes a valid number of seconds."""
    least = "0 or more" if zero else "more than 0"
    limit = "" if most == FINITE else f" and at most {most:,.0f}"
    return f"has to be a number of seconds, {least}{limit}."


def check_seconds(argument: str, value: object, *, zero: bool = False, most: float = FINITE) -> float:
    """Return *value* as a float, or raise `ConfigurationError`: see `is_seconds`. *argument*: its name."""
    if not is_seconds(value, zero=zero, most=most):
        raise ConfigurationError(f"{argument}={value!r} {a_number_of_seconds(zero=zero, most=most)}")
    return float(value)


def check_limit(limit: object) -> int:
    """Return the *limit* of a semaphore, or raise `ConfigurationError`."""
    if (permits := check_count("limit", limit)) > MOST_PERMITS:
        raise ConfigurationError(
            f"limit= has to be at most {MOST_PERMITS:,}: lock services write it into names. Leave the guard "
            "or the semaphore out where so many may be inside."
        )
    return permits


def check_permits(limit: int, permits: int) -> None:
    """Raise `ConfigurationError` if *limit* is invalid, or if *permits* is not from 1 to *limit*."""
    check_limit(limit)
    if check_count("permits", permits) > limit:
        raise ConfigurationError(
            f"permits={permits} of limit={limit} would never be granted: raise the limit, or take fewer."
        )


def check_count(argument: str, value: object) -> int:
    """Return *value*, or raise `ConfigurationError`: see `is_count`. *argument*: its name."""
    if not is_count(value):
        raise ConfigurationError(f"{argument}={value!r} {A_COUNT}")
    return value
