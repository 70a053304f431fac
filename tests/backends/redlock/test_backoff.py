"""A process that had its turn leaves others the time to ask."""

from __future__ import annotations

import math

import pytest

from distlock import clock
from distlock.backends.redlock import backend as redlock_backend
from distlock.backends.redlock.backend import Backoff

PAUSE = 0.05


@pytest.fixture(autouse=True)
def _pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_POLL", (PAUSE, PAUSE))


def time_of(wait: Backoff, key: str, deadline: float = math.inf) -> float:
    began = clock.now()
    wait.wait(key, deadline)
    return clock.now() - began


def test_after_a_whole_turn_it_waits_as_long_as_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 0.0)
    mine = Backoff()
    mine.granted("x")
    mine.released("x")
    assert list(mine._until) == ["x"]
    assert time_of(mine, "x") >= PAUSE
    # Once.
    assert not mine._until


def test_after_less_than_a_turn_it_asks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 1000.0)
    mine = Backoff()
    mine.granted("x")
    mine.released("x")
    mine.released("y")
    assert not mine._until


def test_it_waits_no_longer_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 0.0)
    monkeypatch.setattr(redlock_backend, "_POLL", (1000.0, 1000.0))
    mine = Backoff()
    mine.granted("x")
    mine.released("x")
    assert time_of(mine, "x", clock.now() + PAUSE) < 1000.0


def test_names_that_are_not_asked_for_again_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redlock_backend, "_TURN", 0.0)
    monkeypatch.setattr(redlock_backend, "_POLL", (0.0, 0.0))
    mine = Backoff()
    for number in range(3000):
        mine.granted(f"x{number}")
        mine.released(f"x{number}")
    assert len(mine._until) <= 1001
    assert not mine._since
