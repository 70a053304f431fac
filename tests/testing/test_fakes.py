"""A lock that somebody else has, a lock service that is away, a lost lock: at once, on any client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import distlock
from distlock.errors import BackendUnavailable, InvalidName, LockLost, LockTimeout, LostInside
from distlock.testing import backend_down, contended, held_locks, lose, taken_locks
from tests.flask_guard import dummy_locks
from tests.redis_server import RedisServer, redis_server

__all__ = ["redis_server"]

#: Longer than any test may take: what waits fails.
LONG = 3600.0

Connect = Callable[[], distlock.Locks]


@pytest.fixture(params=["memory", "file", "redis", "dummy"])
def locks(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[distlock.Locks]:
    if request.param == "dummy":
        yield dummy_locks(TIMEOUT=LONG)
        return
    if request.param == "redis":
        server: RedisServer = request.getfixturevalue("redis_server")
        url = server.url
    else:
        url = {"memory": "memory://fakes", "file": f"{tmp_path.as_uri()}/locks"}[request.param]
    locks = distlock.connect(url, prefix="fakes", timeout=LONG, ttl=LONG)
    yield locks
    locks.close()


def test_a_contended_lock_is_waited_for_in_vain_at_once(locks: distlock.Locks) -> None:
    with contended("product_1"):
        with pytest.raises(LockTimeout, match="after 3600 seconds"), locks.lock("product_1"):
            pass
        with pytest.raises(LockTimeout), locks.lock("product_1", "product_2"):
            pass
        assert locks.lock("product_1").acquire() is None
        assert locks.lock("product_1").locked()
        with locks.lock("product_2"):
            assert held_locks() == ["product_2"]
    with locks.lock("product_1"):
        assert held_locks() == ["product_1"]


def test_without_names_every_lock_is_contended(locks: distlock.Locks) -> None:
    with contended():
        assert locks.lock("anything").acquire() is None


def test_a_task_finds_it_contended_too(locks: distlock.Locks) -> None:
    async def take() -> None:
        async with locks.lock("product_1"):
            pass

    with contended("product_1"), pytest.raises(LockTimeout):
        asyncio.run(take())


def test_what_is_held_already_stays_held(locks: distlock.Locks) -> None:
    with locks.rlock("product_1") as grant, contended("product_1"):
        with locks.rlock("product_1"):
            grant.check()
        assert held_locks() == ["product_1"]


def test_a_wait_without_end_fails_the_test(locks: distlock.Locks) -> None:
    with contended("product_1"), pytest.raises(AssertionError, match="'product_1' would be waited for"):
        locks.lock("product_1", timeout=-1).acquire()


def test_no_lock_service_answers(locks: distlock.Locks) -> None:
    with backend_down():
        with pytest.raises(BackendUnavailable, match=r"backend_down\(\)"), locks.lock("product_1"):
            pass
        asked: list[Callable[[], object]] = [
            locks.lock("product_1").locked,
            lambda: locks.namespace.inspect("product_1"),
            lambda: locks.namespace.announced("product_"),
            lambda: locks.namespace.break_hold("product_1", 1),
        ]
        for ask in asked:
            with pytest.raises(BackendUnavailable):
                ask()
    with locks.lock("product_1"):
        pass


def test_a_lock_that_is_held_is_lost_now_and_free(locks: distlock.Locks) -> None:
    grant = locks.lock("product_1", "product_2").acquire()
    assert grant is not None
    lose("product_3")
    grant.check()
    lose("product_1")
    assert held_locks() == ["product_2"]
    with pytest.raises(LockLost, match=r"plays lose\(\)"):
        grant.check()
    # Nobody has it: not even a caller that does not wait finds it taken.
    again = locks.lock("product_1").acquire(timeout=0)
    assert again is not None
    again.release()
    grant.release()
    assert held_locks() == []


def test_what_is_granted_in_the_block_is_lost_at_once(locks: distlock.Locks) -> None:
    found = []

    def work() -> None:
        with locks.lock("product_1") as grant:
            found.append(grant.lost)

    with lose("product_1"), pytest.raises(LostInside):
        work()
    work()
    assert found == [True, False]


def test_a_loss_is_told_before_the_code_goes_on() -> None:
    told: list[tuple[tuple[str, ...], str]] = []
    locks = distlock.connect("memory://told", on_lost=lambda grant, why: told.append((grant.names, why)))
    grant = locks.lock("product_1").acquire()
    lose("product_1")
    assert told == [(("product_1",), "the test plays lose()")]
    assert grant is not None
    grant.release()
    locks.close()


def test_what_is_taken_is_noted_in_order(locks: distlock.Locks) -> None:
    with taken_locks() as taken:
        with locks.lock("product_2", "product_1"):
            pass
        with locks.rlock("shop"), locks.rlock("shop"):
            pass
    with locks.lock("later"):
        pass
    assert taken == ["product_1", "product_2", "shop"]


def test_they_reach_every_thread_and_stand_in_each_other(locks: distlock.Locks) -> None:
    found: list[object] = []

    def ask() -> None:
        found.append(locks.lock("product_1").acquire())

    with taken_locks() as taken:
        with contended("product_1"):
            with contended("product_2"):
                pass
            thread = threading.Thread(target=ask)
            thread.start()
            thread.join(60)
        with locks.lock("product_2"):
            pass
    assert found == [None]
    assert taken == ["product_2"]


def test_nothing_is_left_in_the_way_of_the_others() -> None:
    before = distlock.connect("memory://left").namespace.acquire.__code__
    with contended("product_1"), pytest.raises(KeyError), taken_locks():
        raise KeyError("the test fails")
    assert distlock.connect("memory://left").namespace.acquire.__code__ is before


@pytest.mark.parametrize("fake", [contended, lose])
def test_what_can_be_no_name_is_refused(fake: Callable[..., object]) -> None:
    with pytest.raises(InvalidName):
        fake("product_1", "")
