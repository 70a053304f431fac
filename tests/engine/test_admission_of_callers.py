"""Admission as callers of every kind meet it: a refusal comes at once, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

import distlock
from distlock import TooManyWaiters
from distlock.backends.base import Acquired, Busy, LockRequest, Queued
from distlock.testing.waits import engine_of
from tests.backend_class import backend_class
from tests.redis_server import RedisServer, eventually

MemoryBackend = backend_class("memory://")

#: Longer than anything here takes.
PATIENT = 60.0
#: A caller with this time-out is expected to wait in vain behind a holder that has held for as long.
SHORT = 0.3


@pytest.fixture(params=["memory", "redis"])
def locks(request: pytest.FixtureRequest) -> Iterator[distlock.Locks]:
    if request.param == "memory":
        client = distlock.connect("memory://admission", timeout=SHORT)
    else:
        server: RedisServer = request.getfixturevalue("redis_server")
        client = distlock.connect(server.url, prefix="admission", timeout=SHORT)
    yield client
    assert engine_of(client).queues.waiting == 0
    assert not engine_of(client).queues.by_key
    client.close()


@contextmanager
def line(locks: distlock.Locks, name: str) -> Iterator[None]:
    """The lock *name* has been held for so long, and is waited for, that short waits are in vain."""
    held = locks.lock(name).acquire(timeout=PATIENT)
    assert held is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(locks.lock(name).acquire, timeout=PATIENT)
        try:
            long_awaited(locks, name)
            yield
        finally:
            held.release()
        granted = waiting.result(PATIENT)
        assert granted is not None
        granted.release()


def long_awaited(locks: distlock.Locks, name: str) -> None:
    queue = engine_of(locks).queues.by_key[f"{locks.prefix}:{name}"]
    eventually(lambda: queue.waiters, "somebody waits")
    eventually(lambda: distlock.clock.now() - queue.since > SHORT, "it takes long")


def refuse(lock: distlock.Lock) -> TooManyWaiters:
    refusals = list[TooManyWaiters]()

    def come() -> bool:
        try:
            with lock:
                raise AssertionError("nobody was refused")
        except TooManyWaiters as refusal:
            refusals.append(refusal)
        except distlock.LockTimeout:
            return False  # On a busy machine a name before it took all the time there was.
        return True

    eventually(come, "a refusal")
    return refusals[0]


def test_threads(locks: distlock.Locks) -> None:
    with line(locks, "a"):
        refusal = refuse(locks.lock("a"))
        assert refusal.name == "a"
        assert refusal.expected_wait is not None
        assert refusal.expected_wait > SHORT
        assert locks.lock("a").acquire() is None
        assert locks.lock("a").acquire(timeout=0) is None
        with locks.lock("b", timeout=PATIENT):
            pass


def test_tasks_stand_in_one_line_with_threads(locks: distlock.Locks) -> None:
    async def come() -> None:
        with pytest.raises(TooManyWaiters) as refusal:
            async with locks.lock("a"):
                pass
        assert refusal.value.name == "a"
        assert await locks.lock("a").aacquire() is None
        async with locks.lock("b", timeout=PATIENT):
            pass

    with line(locks, "a"):
        asyncio.run(come())


def test_a_first_rush_of_tasks_comes_in(locks: distlock.Locks) -> None:
    served = []

    async def come(number: int) -> None:
        async with locks.lock("a", timeout=PATIENT):
            served.append(number)

    async def rush() -> None:
        await asyncio.gather(*map(come, range(300)))

    asyncio.run(rush())
    assert served == list(range(300))


def test_a_cap_counts_tasks_and_threads() -> None:
    locks = distlock.connect("memory://capped", max_waiters_total=1, timeout=PATIENT)

    async def wait(began: asyncio.Event) -> None:
        began.set()
        async with locks.lock("a"):
            pass

    async def come() -> None:
        began = asyncio.Event()
        waiting = asyncio.create_task(wait(began))
        await began.wait()
        while engine_of(locks).queues.waiting == 0:
            await asyncio.sleep(0)
        await asyncio.to_thread(refuse, locks.lock("a"))
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        # Its place is free again.
        waiting = asyncio.create_task(wait(began))
        while engine_of(locks).queues.waiting == 0:
            await asyncio.sleep(0)
        with pytest.raises(TooManyWaiters):
            await locks.lock("b", "a").aacquire()
        grant.release()
        await waiting

    grant = locks.lock("a").acquire()
    assert grant is not None
    asyncio.run(come())
    locks.close()


def test_of_several_names_none_is_kept_where_one_is_refused(locks: distlock.Locks) -> None:
    with line(locks, "b"):
        assert refuse(locks.lock("a", "b", "c")).name == "b"
        grant = locks.lock("a", "c").acquire(timeout=PATIENT)
        assert grant is not None
        grant.release()


def test_several_names_as_a_task(locks: distlock.Locks) -> None:
    async def come() -> None:
        for _ in range(100):
            with suppress(distlock.LockTimeout):  # see refuse()
                async with locks.lock("a", "b"):
                    pass

    with line(locks, "b"):
        with pytest.raises(TooManyWaiters) as refusal:
            asyncio.run(come())
        assert refusal.value.name == "b"
        grant = locks.lock("a").acquire(timeout=PATIENT)
        assert grant is not None
        grant.release()


def test_who_is_inside_a_reentrant_lock_is_not_refused_by_the_line_behind(locks: distlock.Locks) -> None:
    with ThreadPoolExecutor(1) as pool:
        with locks.rlock("a", timeout=PATIENT):
            waiting = pool.submit(locks.lock("a", "b").acquire, timeout=PATIENT)
            long_awaited(locks, "a")
            with locks.rlock("a"), locks.rlock("a"):
                pass
            assert locks.rlock("a").owned()
        granted = waiting.result(PATIENT)
        assert granted is not None
        granted.release()


def test_a_reentrant_lock_keeps_what_it_had_where_a_new_name_is_refused(locks: distlock.Locks) -> None:
    with line(locks, "b"):
        with locks.rlock("a", timeout=PATIENT):
            assert refuse(locks.rlock("a", "b")).name == "b"
            assert locks.rlock("a").owned()
            assert not locks.rlock("b").owned()
            assert locks.lock("a").acquire(timeout=0) is None
        assert not locks.rlock("a").owned()
        assert refuse(locks.rlock("b")).name == "b"


class Stuck(MemoryBackend):
    """A service whose answer to the first request is under way until `answers` is set."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.asked, self.answers = threading.Event(), threading.Event()

    def request(self, ask: LockRequest, deadline: float = math.inf) -> Acquired | Queued | Busy:
        self.asked.set()
        assert self.answers.wait(PATIENT)
        return super().request(ask)


def test_a_refusal_waits_for_no_answer_of_the_service() -> None:
    locks = distlock.connect("memory://stuck", backend=f"{__name__}.Stuck", max_waiters=1, timeout=PATIENT)
    backend = engine_of(locks).backend
    assert isinstance(backend, Stuck)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(locks.lock("a").acquire)
        assert backend.asked.wait(PATIENT)
        try:
            for _ in range(20):
                with pytest.raises(TooManyWaiters):
                    locks.lock("a").acquire()
        finally:
            backend.answers.set()
        grant = asking.result(PATIENT)
        assert grant is not None
        grant.release()
    locks.close()
