"""Plain code in a thread, which the task that holds the lock awaits: both would wait for themselves."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any

import pytest
from asgiref.sync import sync_to_async

import distlock
from distlock.testing.waits import engine_of

#: Seconds, which only a failing test takes.
CEILING = 60.0


@pytest.fixture
def locks() -> distlock.Locks:
    return distlock.connect("memory://awaited", timeout=CEILING)


def by_asgiref(work: Callable[[], Any]) -> Awaitable[Any]:
    return sync_to_async(work)()


def by_asgiref_in_any_thread(work: Callable[[], Any]) -> Awaitable[Any]:
    return sync_to_async(work, thread_sensitive=False)()


@pytest.mark.parametrize("bridge", [asyncio.to_thread, by_asgiref, by_asgiref_in_any_thread])
def test_a_lock_that_the_awaiting_task_holds_is_an_error_at_once(
    locks: distlock.Locks, bridge: Callable[[Callable[[], Any]], Awaitable[Any]]
) -> None:
    def work() -> None:
        for lock in (locks.lock("a"), locks.rlock("a"), locks.lock("b", "a"), locks.read_lock("a")):
            with pytest.raises(distlock.ConfigurationError, match="awaits this very thread"):
                lock.__enter__()
        with locks.lock("b"), locks.semaphore("a", limit=1):
            pass

    def read() -> None:
        with locks.read_lock("a"):
            pass

    async def deeper() -> None:
        await bridge(work)

    async def main() -> None:
        async with locks.lock("a"):
            # The first thread is new, the second one is not.
            for _ in range(2):
                await deeper()
        async with locks.read_lock("a"):
            await bridge(read)

    asyncio.run(main())


def test_a_task_that_does_not_await_the_thread_keeps_nobody_from_waiting(locks: distlock.Locks) -> None:
    inside = asyncio.Event()

    def work() -> str:
        with locks.lock("a"):
            return "waited"

    async def main() -> str:
        async with locks.lock("a"):
            waits = asyncio.create_task(asyncio.to_thread(work))
            while not engine_of(locks).queues.waiting:
                await asyncio.sleep(0.001)
            inside.set()
        return await waits

    assert asyncio.run(main()) == "waited"
    assert inside.is_set()


def test_a_context_in_a_variable_of_the_task_does_not_say_that_it_awaits_what_runs_there(
    locks: distlock.Locks,
) -> None:
    def work() -> str:
        with locks.lock("a"):
            return "waited"

    async def main() -> str:
        async with locks.lock("a"):
            own = copy_context()
            waits = asyncio.get_running_loop().run_in_executor(None, own.run, work)
            while not engine_of(locks).queues.waiting and not waits.done():
                await asyncio.sleep(0.001)
        return await waits

    assert asyncio.run(main()) == "waited"


class Row:
    """What a view works with, which may be large."""


def test_what_the_awaiting_task_works_with_is_not_kept_by_the_look(locks: distlock.Locks) -> None:
    gone: list[weakref.ref[Row]] = []

    def work() -> None:
        with pytest.raises(distlock.ConfigurationError, match="awaits this very thread"):
            locks.lock("a").__enter__()

    async def main() -> None:
        row = Row()
        gone.append(weakref.ref(row))
        async with locks.lock("a"):
            await asyncio.to_thread(work)
        del row
        gc.collect()
        assert gone[0]() is None

    asyncio.run(main())


class Lazy:
    """As Django's ``request.user``: to tell its class it asks a database."""

    @property
    def __class__(self) -> type[Any]:
        pytest.fail("it was looked at")


def test_what_the_awaiting_task_has_in_variables_is_not_looked_at(locks: distlock.Locks) -> None:
    def work() -> None:
        with pytest.raises(distlock.ConfigurationError, match="awaits this very thread"):
            locks.lock("a").__enter__()

    async def main() -> None:
        user = Lazy()
        async with locks.lock("a"):
            await asyncio.to_thread(work)
        del user

    asyncio.run(main())


def test_what_does_not_wait_is_told_that_the_lock_is_taken(locks: distlock.Locks) -> None:
    def work() -> None:
        with pytest.raises(distlock.LockTimeout):
            locks.lock("a", timeout=0).__enter__()

    async def main() -> None:
        async with locks.lock("a"):
            await asyncio.to_thread(work)

    asyncio.run(main())


def test_a_loop_that_stands_still_makes_no_wait_much_longer(
    locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    """*seconds* of the wait bound the look at the task, however long its loop is busy."""
    done = threading.Event()

    def work() -> None:
        with pytest.raises(distlock.LockTimeout):
            locks.lock("a", timeout=0.01).__enter__()
        done.set()

    async def main() -> None:
        async with locks.lock("a"):
            waits = asyncio.create_task(asyncio.to_thread(work))
            await asyncio.sleep(0)
            # The loop stands still until the other is through, which would take for ever otherwise.
            assert done.wait(CEILING)
            await waits

    monkeypatch.setattr("distlock.locks.self_deadlock._PATIENCE", CEILING * 2)
    asyncio.run(main())
