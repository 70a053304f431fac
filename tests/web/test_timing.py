from __future__ import annotations

from collections.abc import Iterator

import pytest

import distlock
from distlock.errors import LockTimeout
from distlock.web import guard
from distlock.web.observer import Stopwatch, together
from tests.web.test_guard import Transactions


@pytest.fixture
def locks() -> Iterator[distlock.Locks]:
    client = distlock.connect("memory://timing", timeout=5)
    yield client
    client.close()


def run(locks: distlock.Locks, observer: Stopwatch) -> None:
    guard.run(
        locks, ["product_1"], lambda: None, Transactions(locks, []), timeout=0, observer=together(observer)
    )


def test_a_guard_that_ran_says_what_it_waited_and_held() -> None:
    stopwatch = Stopwatch()
    stopwatch.waited, stopwatch.held = 0.01234, 0.5
    assert stopwatch.header() == "lock-wait;dur=12.3, lock-held;dur=500.0"
    assert stopwatch.header("db;dur=3") == "db;dur=3, lock-wait;dur=12.3, lock-held;dur=500.0"


def test_a_guard_that_was_refused_says_what_it_waited(locks: distlock.Locks) -> None:
    stopwatch = Stopwatch()
    with locks.lock("product_1"), pytest.raises(LockTimeout):
        run(locks, stopwatch)
    assert stopwatch.header().startswith("lock-wait;dur=")
    assert "lock-held" not in stopwatch.header()


def test_a_guard_measures_both(locks: distlock.Locks) -> None:
    stopwatch = Stopwatch()
    run(locks, stopwatch)
    assert stopwatch.header().count("dur=") == 2
    assert "product" not in stopwatch.header()


def test_a_guard_that_asked_nobody_says_nothing() -> None:
    assert Stopwatch().header() == ""
    assert Stopwatch().header("db;dur=3") == "db;dur=3"


def test_several_observers_are_told_alike(locks: distlock.Locks) -> None:
    first, second = Stopwatch(), Stopwatch()
    observer = together(None, first, None, second)
    guard.run(locks, ["product_1"], lambda: None, Transactions(locks, []), observer=observer)
    assert None not in (first.waited, second.waited, first.held, second.held)


def test_nobody_is_nobody() -> None:
    assert together(None, None) is None
    assert together() is None
