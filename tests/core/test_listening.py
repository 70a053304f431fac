"""A listener hears of an acquisition from its wait to its end, and of locks that are wanted back."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import distlock
from distlock.errors import Reentered
from distlock.listening import Attempt, Listener, Where
from distlock.operate import Party
from distlock.testing import lose
from distlock.testing.waits import engine_of, wait_for_waiters, wait_until

CEILING = 60


class Notes(Attempt):
    def __init__(self, heard: list[tuple[Any, ...]], during_wait: Callable[[], object]) -> None:
        self._heard = heard
        self._during_wait = during_wait

    def contended(self, holder: Party | None) -> None:
        self._heard.append(("contended", holder))
        self._during_wait()

    def acquired(self, grant: distlock.Grant, waited: float) -> None:
        self._heard.append(("acquired", grant.names))

    def refused(self, error: BaseException | None, waited: float) -> None:
        self._heard.append(("refused", error))


class Hears(Listener):
    def __init__(self, during_wait: Callable[[], object] = lambda: None) -> None:
        self.heard: list[tuple[Any, ...]] = []
        self._during_wait = during_wait

    @property
    def words(self) -> list[str]:
        return [word for word, *_ in self.heard]

    def asked(self, names: tuple[str, ...], where: Where) -> Attempt:
        return Notes(self.heard, self._during_wait)

    def release_requested(self, grant: distlock.Grant, where: Where) -> None:
        self.heard.append(("release requested", grant.names, where))


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"memory://{request.node.name}"


def test_who_gets_a_free_lock_is_never_contended(url: str) -> None:
    listener = Hears()
    locks = distlock.connect(url, listener=listener)
    with locks.lock("a"):
        assert locks.lock("a").acquire(timeout=0) is None
    assert listener.words == ["acquired", "refused"]
    locks.close()


@pytest.mark.parametrize("here", [True, False])
def test_a_caller_that_waits_is_contended_once_before_it_is_granted(url: str, here: bool) -> None:
    listener = Hears()
    locks, other = distlock.connect(url, listener=listener, timeout=CEILING), distlock.connect(url)
    before = (locks if here else other).lock("a").acquire()
    assert before is not None
    waiter = threading.Thread(target=lambda: locks.lock("a").acquire())
    waiter.start()
    wait_until(lambda: "contended" in listener.words, "it waits")
    for _ in range(3):
        # A hint that comes to nothing.
        engine_of(locks).sink.notified(":a")
    before.release()
    waiter.join(CEILING)
    assert listener.words == ["acquired"] * here + ["contended", "acquired"]
    locks.close()
    other.close()


def test_the_holder_is_told_where_that_is_known(url: str) -> None:
    listener = Hears()
    locks = distlock.connect(url, listener=listener)
    with locks.lock("a") as grant:
        assert isinstance(grant, distlock.Grant)
        lasted = threading.Event()
        # What has lasted for less than a second is not told of.
        lasted.wait(1.1)
        assert locks.lock("a").acquire(timeout=0.01) is None
    (holder,) = (about[0] for word, *about in listener.heard if word == "contended")
    assert holder is not None
    assert "test_the_holder_is_told" in holder.where
    locks.close()


def test_a_task_is_contended_too(url: str) -> None:
    listener = Hears()
    locks = distlock.connect(url, listener=listener, timeout=CEILING)

    async def both() -> None:
        async with locks.lock("a"):
            waits = asyncio.create_task(locks.lock("a").aacquire())
            while "contended" not in listener.words:
                await asyncio.sleep(0)
        grant = await waits
        assert grant is not None
        await grant.arelease()

    asyncio.run(asyncio.wait_for(both(), CEILING))
    assert listener.words == ["acquired", "contended", "acquired"]
    locks.close()


def test_one_that_asks_for_the_same_lock_meanwhile_is_refused_and_the_wait_goes_on(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its caller is first in line: it would wait for itself, and all behind it with it."""
    listener = Hears(during_wait=lambda: locks.lock("a", timeout=-1).acquire())
    locks = distlock.connect(url, listener=listener, timeout=CEILING)
    before = locks.lock("a").acquire()
    assert before is not None
    waiter = threading.Thread(target=lambda: locks.lock("a").acquire())
    waiter.start()
    wait_until(lambda: "A listener failed in contended()" in caplog.text, "the listener is refused")
    assert Reentered.__name__ in caplog.text
    wait_for_waiters(locks, 1)
    before.release()
    waiter.join(CEILING)
    assert listener.words == ["acquired", "contended", "acquired"]
    locks.close()


def test_a_wait_that_is_interrupted_is_ended_as_without_a_listener(url: str) -> None:
    listener = Hears()
    locks = distlock.connect(url, listener=listener, timeout=CEILING)

    async def cancelled() -> None:
        async with locks.lock("a"):
            waits = asyncio.create_task(locks.lock("a").aacquire())
            while "contended" not in listener.words:
                await asyncio.sleep(0)
            waits.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waits

    asyncio.run(asyncio.wait_for(cancelled(), CEILING))
    assert [type(about[0]) for word, *about in listener.heard if word == "refused"] == [
        asyncio.CancelledError
    ]
    assert engine_of(locks).queues.waiting == 0
    locks.close()


def test_a_lock_that_is_wanted_back_is_told_with_its_place(url: str) -> None:
    listener = Hears()
    told: list[distlock.Grant] = []
    locks = distlock.connect(url, listener=listener, on_release_requested=told.append)
    with locks.lock("a"):
        assert locks.request_release("a")
        wait_until(lambda: bool(told), "the callback beside the listener is called, too")
    ((names, where),) = (about for word, *about in listener.heard if word == "release requested")
    assert names == ("a",)
    assert where is test_a_lock_that_is_wanted_back_is_told_with_its_place.__code__
    locks.close()


def test_a_callback_gets_the_grant_of_the_block(url: str) -> None:
    lost: list[distlock.Grant] = []
    locks = distlock.connect(url, listener=Hears(), on_lost=lambda grant, why: lost.append(grant))
    with pytest.raises(distlock.LostInside), locks.lock("a") as grant:
        lose("a")
    assert lost == [grant]
    locks.close()
