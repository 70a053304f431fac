"""`on_lost` may take its time: the other locks of its client are renewed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

import distlock
from distlock.testing.waits import ask_of, engine_of, wait_until

CEILING = 60
TTL = 1.0


class Slow:
    """An `on_lost` that returns when it is let."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()
        self.told: list[tuple[tuple[str, ...], str]] = []

    def __call__(self, grant: distlock.Grant, why: str) -> None:
        self.begun.set()
        assert self.go_on.wait(CEILING)
        self.told.append((grant.names, why))


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.go_on.set()


def take(locks: distlock.Locks, name: str) -> distlock.Grant:
    grant = locks.lock(name).acquire(timeout=CEILING)
    assert grant is not None
    return grant


def lose(locks: distlock.Locks, name: str) -> None:
    hold = engine_of(locks).queues.by_key[f":{name}"].hold
    assert hold is not None
    engine_of(locks).backend.release(hold.request)


def test_other_locks_are_renewed_while_on_lost_runs(request: pytest.FixtureRequest, slow: Slow) -> None:
    url = f"memory://{request.node.name}"
    locks = distlock.connect(url, ttl=TTL, on_lost=slow)
    other = distlock.connect(url, ttl=TTL)
    first, second, third = (take(locks, name) for name in "abc")
    lose(locks, "a")
    assert slow.begun.wait(CEILING)
    assert first.lost
    assert other.lock("b").acquire(timeout=3 * TTL) is None
    # A loss is known at once, although it is told of later.
    lose(locks, "c")
    wait_until(lambda: third.lost, "the next loss is noticed")
    assert not second.lost
    assert slow.told == []
    slow.go_on.set()
    # Closing waits until all that was lost before is told.
    second.release()
    locks.close()
    assert [names for names, _ in slow.told] == [("a",), ("c",)]
    other.close()


def test_on_lost_may_close_its_client(request: pytest.FixtureRequest) -> None:
    closed = threading.Event()

    def close(grant: distlock.Grant, why: str) -> None:
        locks.close()
        closed.set()

    locks = distlock.connect(f"memory://{request.node.name}", ttl=TTL, on_lost=close)
    take(locks, "a")
    lose(locks, "a")
    assert closed.wait(CEILING)


def test_where_no_thread_can_be_started_the_loss_is_told_all_the_same(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = threading.Event()
    locks = distlock.connect(f"memory://{request.node.name}", ttl=TTL, on_lost=lambda grant, why: told.set())
    take(locks, "a")

    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        lose(locks, "a")
        assert told.wait(CEILING)
    locks.close()


def test_losses_are_told_of_one_after_the_other(request: pytest.FixtureRequest, slow: Slow) -> None:
    locks = distlock.connect(f"memory://{request.node.name}", ttl=TTL, on_lost=slow)
    grants = [take(locks, name) for name in "abc"]
    for name, grant in zip("abc", grants, strict=True):
        lose(locks, name)
        wait_until(lambda grant=grant: grant.lost, "the loss is noticed")  # type: ignore[misc]
        assert slow.begun.wait(CEILING)
    # The maintenance thread has reported "b" before it looked at "c".
    assert [thread.name for thread in threading.enumerate()].count("distlock-on-lost") == 1
    slow.go_on.set()
    locks.close()
    assert [names for names, _ in slow.told] == [("a",), ("b",), ("c",)]


def test_a_loss_that_the_lock_service_tells_of_is_believed(request: pytest.FixtureRequest) -> None:
    told: list[str] = []
    locks = distlock.connect(f"memory://{request.node.name}", on_lost=lambda grant, why: told.append(why))
    grant = take(locks, "a")
    ask = ask_of(grant)
    engine_of(locks).sink.lost(ask.key, "another token")
    engine_of(locks).sink.lost(":b", ask.token)
    assert not grant.lost
    engine_of(locks).sink.lost(ask.key, ask.token)
    assert grant.lost
    locks.close()
    assert told == ["its lock service said so"]
