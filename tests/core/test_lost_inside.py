"""The end of a ``with`` whose lock was lost says so, once, and only where nothing vouches for the block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import distlock
from distlock.testing.waits import engine_of, wait_until
from tests.flask_guard import guarded

Make = Callable[[distlock.Locks], distlock.Lock]

KINDS: dict[str, Make] = {
    "lock": lambda locks: locks.lock("a"),
    "several names": lambda locks: locks.lock("a", "b"),
    "rlock": lambda locks: locks.rlock("a"),
    "rlock of several names": lambda locks: locks.rlock("a", "b"),
}


@pytest.fixture
def locks(request: pytest.FixtureRequest) -> Iterator[distlock.Locks]:
    locks = distlock.connect(f"memory://{request.node.name}", ttl=0.4, max_hold=0.3, timeout=30)
    yield locks
    locks.close()


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param]


def lose(grant: distlock.Grant) -> None:
    wait_until(lambda: grant.lost, "max_hold is over")


def test_the_end_of_a_block_says_that_its_lock_was_lost(locks: distlock.Locks, make: Make) -> None:
    with (
        pytest.raises(distlock.LostInside, match=r"lost inside.*max_hold=0.3.*may stand") as caught,
        make(locks) as grant,
    ):
        lose(grant)
    assert isinstance(caught.value, distlock.LockLost)
    # It is not in the way of the next one.
    with make(locks):
        pass


def test_so_does_that_of_an_async_block(locks: distlock.Locks, make: Make) -> None:
    async def work() -> None:
        async with make(locks) as grant:
            while not grant.lost:
                await asyncio.sleep(0.01)

    with pytest.raises(distlock.LostInside, match=r"max_hold=0.3"):
        asyncio.run(work())


def test_what_the_block_raises_itself_is_raised(locks: distlock.Locks, make: Make) -> None:
    with pytest.raises(ZeroDivisionError), make(locks) as grant:  # noqa: PT012
        lose(grant)
        1 / 0  # noqa: B018


def test_a_loss_that_only_the_release_finds_is_told() -> None:
    locks = distlock.connect("memory://release_finds_it")
    with pytest.raises(distlock.LostInside, match="before it was released"), locks.lock("a"):  # noqa: PT012
        hold = engine_of(locks).queues.by_key[":a"].hold
        assert hold is not None
        engine_of(locks).backend.release(hold.request)
    locks.close()


def test_the_end_of_its_time_is_told_also_where_the_keeper_comes_too_late(
    locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine so busy that the release is the first to notice."""

    def late() -> Iterator[Any]:
        yield from ()
        return 60.0

    monkeypatch.setattr(engine_of(locks).maintenance, "tick", late)
    with pytest.raises(distlock.LostInside, match=r"max_hold=0.3"), locks.lock("a"):
        wait_until(lambda: not engine_of(locks).backend.locked(":a"), "the service has given it up")


def test_a_release_never_raises_for_it(locks: distlock.Locks, make: Make) -> None:
    lock = make(locks)
    grant = lock.acquire()
    assert grant is not None
    lose(grant)
    lock.release()
    again = lock.acquire()
    assert again is not None
    lose(again)
    again.release()


def test_each_block_of_a_reentrant_lock_that_ends_lost_says_so(locks: distlock.Locks) -> None:
    told = 0
    with pytest.raises(distlock.LostInside), locks.rlock("a"):  # noqa: PT012
        try:
            with locks.rlock("a") as inner:
                lose(inner)
        except distlock.LostInside:
            told += 1
    assert told == 1
    with pytest.raises(distlock.LostInside) as caught, locks.rlock("a"), locks.rlock("a") as inner:
        lose(inner)
    assert caught.value.__context__ is None


def test_a_guard_says_nothing() -> None:
    def work() -> str:
        lose(distlock.current_grant())
        return "done"

    assert guarded(work, "a", {"LOCATION": "memory://guarded", "MAX_HOLD": 0.3, "TTL": 0.4}) == "done"
