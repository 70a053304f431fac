"""What a review found: each of these once lost a lock, or kept one for ever."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import distlock
from distlock.backends.base import LockRequest
from distlock.errors import BackendUnavailable
from distlock.testing.waits import engine_of, wait_for_waiters, wait_until
from tests.engine.scene import Scene
from tests.redis_server import RedisServer

Connect = Callable[..., distlock.Locks]


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(url: str = f"memory://{request.node.name}", **settings: Any) -> distlock.Locks:
        made.append(distlock.connect(url, **settings))
        return made[-1]

    yield connect
    for one in made:
        one.close()


def test_a_slow_failure_does_not_end_renewal(connect: Connect) -> None:
    locks = connect(ttl=0.6)
    backend = engine_of(locks).backend
    honest = backend.renew
    failed = threading.Event()

    def slow(asks: Sequence[LockRequest]) -> list[bool]:
        if not failed.is_set():
            # As long as a lifetime: what a stopped server does to a request.
            threading.Event().wait(0.7)
            failed.set()
            raise BackendUnavailable("slow")
        return honest(asks)

    backend.renew = slow  # type: ignore[method-assign]
    first = locks.lock("a").acquire()
    assert failed.wait(10)
    assert first is not None
    wait_until(lambda: first.lost, "the first lock is lost")
    second = locks.lock("b").acquire()
    assert second is not None
    assert connect().lock("b").acquire(timeout=1.5) is None
    assert not second.lost


@pytest.mark.parametrize("service", ["memory", "file"])
def test_who_waits_while_the_client_is_closed_is_told_and_holds_nothing(
    connect: Connect, tmp_path: Path, service: str
) -> None:
    url = f"file://{tmp_path}/locks" if service == "file" else "memory://closing"
    locks = connect(url, timeout=20)
    ended: list[BaseException | None] = []

    def wait() -> None:
        try:
            ended.append(locks.lock("a").acquire() and None)
        except distlock.BackendUnavailable as error:
            ended.append(error)

    assert locks.lock("a").acquire()
    waiters = [threading.Thread(target=wait) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    wait_for_waiters(locks, 3)
    locks.close()
    for waiter in waiters:
        waiter.join(20)
    assert [type(error) for error in ended] == [distlock.BackendUnavailable] * 3
    assert connect(url).lock("a").acquire(timeout=20)


def test_two_may_close_at_once(connect: Connect) -> None:
    for _ in range(20):
        locks = connect()
        assert locks.lock("a").acquire()
        closers = [threading.Thread(target=locks.close) for _ in range(3)]
        for closer in closers:
            closer.start()
        for closer in closers:
            closer.join(20)
        assert not locks.lock("a").locked()


def test_a_keeper_that_cannot_start_blocks_nobody(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    locks = connect(ttl=0.6)

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with locks.lock("a"):
            pass
    assert "could be started" in caplog.text
    with locks.lock("b"):
        assert connect().lock("b").acquire(timeout=1.2) is None


def test_an_interrupted_release_of_several_names_releases_all(connect: Connect) -> None:
    locks = connect()
    backend = engine_of(locks).backend
    honest = backend.release

    def interrupted(ask: LockRequest, deadline: float) -> bool:
        backend.release = honest  # type: ignore[method-assign]
        raise KeyboardInterrupt

    grants = locks.lock("a", "b", "c").acquire()
    assert grants is not None
    backend.release = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        grants.release()
    for name in "abc":
        assert connect().lock(name).acquire(timeout=10)


def test_a_task_that_is_cancelled_twice_leaves_nothing(connect: Connect) -> None:
    locks, other = connect(), connect()
    backend = engine_of(locks).backend
    honest = backend.request
    asked, go_on = threading.Event(), threading.Event()

    def slow(ask: LockRequest, deadline: float) -> Any:
        asked.set()
        go_on.wait(10)
        return honest(ask)

    backend.request = slow  # type: ignore[method-assign]

    async def main() -> None:
        task = asyncio.ensure_future(locks.lock("a").aacquire())
        while not asked.is_set():
            await asyncio.sleep(0)
        for _ in range(2):
            task.cancel()
            for _ in range(3):
                await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert other.lock("a").acquire(timeout=5)


def test_an_exit_in_on_lost_does_not_end_the_keeper(connect: Connect) -> None:
    locks = connect(ttl=0.5, on_lost=lambda grant, why: sys.exit(1))
    lost = locks.lock("a").acquire()
    assert lost is not None
    engine = engine_of(locks)
    hold = engine.queues.by_key[":a"].hold
    assert hold is not None
    engine.backend.release(hold.request)
    wait_until(lambda: lost.lost, "the loss is noticed")
    with locks.lock("b"):
        assert connect().lock("b").acquire(timeout=1.2) is None


def test_a_waiter_whose_loop_was_closed_is_stepped_over(connect: Connect) -> None:
    locks = connect(timeout=10)
    grant = locks.lock("a").acquire()
    assert grant is not None
    loop = asyncio.new_event_loop()
    task = loop.create_task(locks.lock("a").aacquire())
    while engine_of(locks).queues.waiting == 0:
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    grant.release()
    with locks.lock("a", timeout=5):
        assert engine_of(locks).queues.waiting == 0
    # Nobody will ever run it: say so before the collector complains.
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_a_closed_loop_keeps_nobody_waiting_while_another_process_has_the_lock(connect: Connect) -> None:
    locks, other = connect(timeout=-1), connect()
    grant = other.lock("a").acquire()
    assert grant is not None
    loop = asyncio.new_event_loop()
    task = loop.create_task(locks.lock("a").aacquire())
    while engine_of(locks).queues.waiting == 0 or engine_of(locks).queues.by_key[":a"].queued is None:
        loop.run_until_complete(asyncio.sleep(0.001))
    loop.close()
    waiter = threading.Thread(target=locks.lock("a").acquire, daemon=True)
    waiter.start()
    wait_until(lambda: other.inspect("a").waiting == 1, "it stands in the queue of the lock service")
    grant.release()
    waiter.join(20)
    assert not waiter.is_alive()
    task._log_destroy_pending = False  # type: ignore[attr-defined]


def test_steps_that_are_collected_as_garbage_never_wait_for_the_mutex(connect: Connect) -> None:
    """The collector may run in a thread that has the mutex, and would wait for itself."""
    locks = connect()
    engine = engine_of(locks)
    honest = engine.backend.request
    asked, go_on, done = threading.Event(), threading.Event(), threading.Event()

    def slow(ask: LockRequest, deadline: float) -> Any:
        asked.set()
        go_on.wait(10)
        try:
            return honest(ask)
        finally:
            done.set()

    engine.backend.request = slow  # type: ignore[method-assign]
    loop = asyncio.new_event_loop()
    task = loop.create_task(locks.lock("a").aacquire())
    while not asked.is_set():
        loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    go_on.set()
    assert done.wait(10)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task, loop
    with engine.section.mutex:
        gc.collect()
    with locks.lock("b"):
        assert ":a" not in engine.queues.by_key
    assert connect().lock("a").acquire(timeout=10)


def test_a_released_grant_was_not_lost(connect: Connect) -> None:
    locks = connect(ttl=0.3)
    grant = locks.lock("a").acquire()
    assert grant is not None
    grant.release()
    pause = threading.Event()
    pause.wait(0.4)
    assert not grant.lost
    lock = locks.lock("a")
    own = lock.acquire()
    assert own is not None
    own.release()
    with pytest.raises(distlock.NotHeld):
        lock.release()


def test_a_reentrant_lock_that_is_left_in_another_thread_says_so_and_is_free(connect: Connect) -> None:
    locks = connect()
    outer, inner = locks.rlock("a"), locks.rlock("a")
    with ThreadPoolExecutor(1) as pool:
        with outer:
            inner.__enter__()
            with pytest.raises(distlock.NotHeld, match=r"rlock\('a'\) was left in another thread or task"):
                pool.submit(inner.__exit__).result(10)
            assert outer.owned()
        outer.__enter__()
        with pytest.raises(RuntimeError, match=r"write lock\('a'\)"):
            pool.submit(outer.__exit__).result(10)
    assert not locks.lock("a").locked()


def test_so_does_one_that_is_left_in_another_task(connect: Connect) -> None:
    lock = connect().rlock("a")

    async def program() -> None:
        await asyncio.create_task(lock.__aenter__())
        with pytest.raises(distlock.NotHeld, match="another thread or task"):
            await lock.__aexit__()

    asyncio.run(program())
    assert not lock.locked()


def test_closing_inside_a_reentrant_lock_does_not_hide_the_error(connect: Connect) -> None:
    locks = connect()
    with pytest.raises(ZeroDivisionError), locks.rlock("a"):
        1 / (locks.close() or 0)


def test_a_process_knows_its_own_locks_without_asking(
    connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect()

    def away(key: str, deadline: float = math.inf) -> bool:
        raise BackendUnavailable("away")

    monkeypatch.setattr(engine_of(locks).backend, "locked", away)
    with locks.lock("a"):
        assert locks.lock("a").locked()
    with pytest.raises(BackendUnavailable):
        locks.lock("a").locked()


def test_a_fork_asks_nothing_if_no_release_is_under_way(
    connect: Connect, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, settled = engine_of(connect(redis_server.url)), list[float]()
    monkeypatch.setattr(engine.backend, "settle", settled.append)
    engine.before_fork()
    assert settled == []


# -- an interrupt inside of the engine, whose cleanup comes later --------------------------------


def test_a_lock_that_is_freed_at_the_very_end_of_a_wait_is_granted() -> None:
    scene = Scene()
    holder = scene.come()
    holder.go()
    assert holder.grant is not None
    waiter = scene.come(timeout=0.01)
    with scene.all[0].engine.section.mutex:
        holder.grant._abandon(KeyboardInterrupt())
    scene.now += 0.02
    waiter.go()
    assert waiter.grant is not None
    waiter.leave()


def test_a_process_that_ends_leaves_the_queue_of_a_caller_that_was_interrupted() -> None:
    scene = Scene(processes=2)
    scene.come(process=1).go()
    waiter, engine = scene.come(), scene.all[0].engine
    assert engine.has_ended()
    with engine.section.mutex:
        engine.abandon([":a"], waiter.parker, KeyboardInterrupt())
    engine.end_with_process()
    assert not engine.has_ended()
    scene.keep()
    assert engine.has_ended()
    assert engine.queues.by_key == {}


def test_a_handler_inside_of_the_engine_gets_no_lock_and_closes_later(connect: Connect) -> None:
    locks, other = connect(), connect()
    assert locks.lock("a").acquire()
    with engine_of(locks).section.mutex:
        with pytest.raises(distlock.Reentered):
            locks.lock("b").acquire()
        locks.close()
        assert other.lock("a").locked()
    wait_until(lambda: not other.lock("a").locked(), "another thread has closed the client")
