"""A ``with`` inside another one on the same name waits for itself: an error at once that names the remedy."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

import distlock
from distlock.clock import now
from distlock.current_grants import holding
from distlock.web.guard_lock import GuardLock

Connect = Callable[..., distlock.Locks]

#: Far longer than anything here takes: an error that comes "at once" does not wait for it.
LONG = 600.0


@pytest.fixture
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    made: list[distlock.Locks] = []

    def connect(**settings: Any) -> distlock.Locks:
        made.append(distlock.connect(f"memory://{request.node.name}", **{"timeout": LONG, **settings}))
        return made[-1]

    yield connect
    for one in made:
        one.close()


@pytest.fixture
def locks(connect: Connect) -> distlock.Locks:
    return connect()


def made(locks: distlock.Locks, written: str, **more: Any) -> distlock.Lock:
    kind, *names = written.split()
    lock: distlock.Lock = getattr(locks, kind)(*names, **more)
    return lock


@pytest.mark.parametrize("timeout", [None, 0, -1])
@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        ("lock a", "lock a"),
        ("lock a", "lock a b"),
        ("lock a b", "lock b c"),
        ("lock a", "rlock a"),
        ("rlock a", "lock a"),
        ("rlock a b", "lock b"),
        ("lock b", "rlock a b"),
    ],
)
def test_it_is_an_error_at_once(locks: distlock.Locks, outer: str, inner: str, timeout: float | None) -> None:
    async def main() -> None:
        async with made(locks, outer):
            with pytest.raises(distlock.ConfigurationError, match="this very code"):
                await made(locks, inner, timeout=timeout).__aenter__()
            with pytest.raises(distlock.ConfigurationError, match="this very code"):
                made(locks, inner, timeout=timeout).__enter__()

    began = now()
    with (
        made(locks, outer),
        pytest.raises(distlock.ConfigurationError, match=r"this very code.*rlock\('[ab]'\)"),
    ):
        made(locks, inner, timeout=timeout).__enter__()
    asyncio.run(main())
    assert now() - began < LONG / 2
    # And nothing of it stays.
    with locks.lock("a", "b", "c"):
        pass


def test_one_lock_object_is_no_exception(locks: distlock.Locks) -> None:
    lock = locks.lock("a")
    with lock, pytest.raises(distlock.ConfigurationError, match="rlock"):
        lock.__enter__()
    with lock:
        pass


def test_another_client_of_the_same_place_gives_the_same_lock(connect: Connect) -> None:
    with connect(prefix="shop").lock("a"):
        with pytest.raises(distlock.ConfigurationError, match="this very code"):
            connect(prefix="shop").lock("a").__enter__()
        with connect(prefix="other").lock("a"):
            pass


def test_a_guard_around_is_named(locks: distlock.Locks) -> None:
    grant = locks.lock("a").acquire()
    assert grant is not None
    with (
        holding(locks.namespace, grant),
        pytest.raises(distlock.ConfigurationError, match="the guard around this very"),
    ):
        locks.lock("a").__enter__()
    grant.release()


def test_a_guard_inside_a_block_waits_and_says_for_whom(locks: distlock.Locks) -> None:
    """A site's test holds the lock, and looks how its view answers."""
    guard = GuardLock(locks, ["a"], [], 0.05, None, None)
    with locks.lock("a"), pytest.raises(distlock.LockTimeout, match="'with' block around this very code"):
        guard.__enter__()


def test_a_block_that_a_helper_entered_counts(locks: distlock.Locks) -> None:
    @contextmanager
    def locked() -> Iterator[None]:
        with locks.lock("a"):
            yield

    with locked(), pytest.raises(distlock.ConfigurationError, match="this very code"):
        locks.lock("a").__enter__()
    with ExitStack() as stack:
        stack.enter_context(locks.lock("a"))
        with pytest.raises(distlock.ConfigurationError, match="this very code"):
            locks.lock("a").__enter__()


def test_a_generator_that_was_left_open_in_this_thread_counts(locks: distlock.Locks) -> None:
    def rows() -> Iterator[int]:
        with locks.lock("a"):
            yield 1
            yield 2

    left_open = rows()
    next(left_open)
    with pytest.raises(distlock.ConfigurationError, match="this very code"):
        locks.lock("a").__enter__()
    assert list(left_open) == [2]
    with locks.lock("a"):
        pass


def test_a_block_that_is_over_does_not_count(locks: distlock.Locks) -> None:
    with ThreadPoolExecutor(1) as other:
        with locks.lock("a") as grant:
            # Handed to another thread, and given back there.
            other.submit(grant.release).result()
            with locks.lock("a"):
                pass
        with locks.lock("a") as grant:
            grant.release()
            with locks.lock("a"):
                pass


def test_a_lost_one_does_not_either(connect: Connect) -> None:
    locks, other = connect(ttl=30), connect()
    with pytest.raises(distlock.LostInside), locks.lock("a"):  # noqa: PT012
        locks.close()
        with other.lock("a"):
            pass


def test_acquire_waits_as_that_of_threading_does(
    locks: distlock.Locks, caplog: pytest.LogCaptureFixture
) -> None:
    lock = locks.lock("a")
    with lock, caplog.at_level(logging.WARNING, "distlock"):
        assert lock.acquire(timeout=0) is None
        assert caplog.messages == []
        assert lock.acquire(timeout=0.05) is None
        assert "a 'with' block around this very code, which waits for itself" in caplog.messages[-1]
    with ThreadPoolExecutor(1) as other:
        # One who holds it and asks again is served when another thread releases it: CPython's test_reacquire.
        assert lock.acquire()
        again = other.submit(lock.acquire)
        lock.release()
        assert again.result(60)
        lock.release()


def test_a_timeout_says_which_acquire_it_waited_for(connect: Connect) -> None:
    locks = connect(timeout=0.05)
    grant = locks.lock("a").acquire()
    assert grant is not None
    with pytest.raises(distlock.LockTimeout, match=r"acquire\(\) of this very thread"), locks.lock("a"):
        pass
    with ThreadPoolExecutor(1) as other, pytest.raises(distlock.LockTimeout, match="somebody else"):
        other.submit(locks.lock("a").__enter__).result()
    grant.release()


def test_threads_and_tasks_that_were_started_inside_wait_as_ever(connect: Connect) -> None:
    locks = connect(timeout=0.05)

    async def enter() -> None:
        async with locks.lock("a"):
            pass

    async def main() -> None:
        async with locks.lock("a"):
            told = await asyncio.gather(enter(), enter(), return_exceptions=True)
            assert [type(error) for error in told] == [distlock.LockTimeout] * 2
            assert "code that started this thread or task" in str(told[0])
            with pytest.raises(distlock.LockTimeout, match="code that started"):
                await asyncio.to_thread(locks.lock("a").__enter__)
            patient = asyncio.create_task(locks.lock("a").aacquire(timeout=60))
            await asyncio.sleep(0)
        assert await patient

    asyncio.run(main())


def test_a_pool_that_runs_parts_of_two_calls_in_one_thread_is_not_one_caller(connect: Connect) -> None:
    """As anyio does for the sync generators of FastAPI's dependencies."""
    locks = connect(timeout=0.05)
    first, second = contextvars.copy_context(), contextvars.copy_context()
    one, two = locks.lock("a"), locks.lock("a")
    with ThreadPoolExecutor(1) as thread, ThreadPoolExecutor(1) as other:
        thread.submit(first.run, one.__enter__).result()
        with pytest.raises(distlock.LockTimeout):
            thread.submit(second.run, two.__enter__).result()
        other.submit(first.run, one.__exit__, None, None, None).result()
        thread.submit(second.run, two.__enter__).result()
        thread.submit(second.run, two.__exit__, None, None, None).result()
