"""One lock object that several blocks share: the end of one never releases what another one holds."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

import distlock
from distlock.testing.waits import wait_until

CEILING = 60


@pytest.fixture
def locks(request: pytest.FixtureRequest) -> Iterator[distlock.Locks]:
    locks = distlock.connect(f"memory://{request.node.name}", timeout=CEILING)
    yield locks
    locks.close()


def hold(lock: distlock.Lock) -> Generator[distlock.Grant, None, None]:
    with lock as grant:
        yield grant


def close_here(blocks: Generator[Any, None, None]) -> None:
    blocks.close()


def close_elsewhere(blocks: Generator[Any, None, None]) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(blocks.close).result(CEILING)


@pytest.mark.parametrize("close", [close_here, close_elsewhere])
def test_a_generator_whose_grant_is_released_ends_no_block_of_another_thread(
    locks: distlock.Locks, close: Callable[[Generator[Any, None, None]], None]
) -> None:
    lock = locks.lock("a")
    inside, leave = threading.Event(), threading.Event()

    def work() -> tuple[bool, bool]:
        with lock as grant:
            inside.set()
            assert leave.wait(CEILING)
            return grant.released, grant.lost

    over = hold(lock)
    next(over).release()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(work)
        assert inside.wait(CEILING)
        close(over)
        held = lock.locked()
        leave.set()
        assert running.result(CEILING) == (False, False)
    assert held
    assert not lock.locked()


@pytest.mark.parametrize("close", [close_here, close_elsewhere])
def test_nor_one_of_its_own_thread(
    locks: distlock.Locks, close: Callable[[Generator[Any, None, None]], None]
) -> None:
    lock = locks.lock("a")
    over, running = hold(lock), hold(lock)
    next(over).release()
    grant = next(running)
    close(over)
    assert not grant.released
    assert lock.locked()
    close(running)
    assert grant.released
    assert not lock.locked()


def test_nor_does_one_that_max_hold_has_ended(request: pytest.FixtureRequest) -> None:
    locks = distlock.connect(f"memory://{request.node.name}", ttl=0.4, max_hold=0.3, timeout=CEILING)
    lock = locks.lock("a")
    over, running = hold(lock), hold(lock)
    lost = next(over)
    wait_until(lambda: lost.lost, "max_hold is over")
    grant = next(running)
    with suppress(distlock.LostInside):
        over.close()
    assert not grant.released
    with suppress(distlock.LostInside):
        running.close()
    locks.close()


def test_nor_does_one_that_another_task_closes(locks: distlock.Locks) -> None:
    lock = locks.lock("a")

    async def hold() -> AsyncGenerator[distlock.Grant, None]:
        async with lock as grant:
            yield grant

    async def program() -> None:
        over = hold()
        await (await anext(over)).arelease()
        inside, leave = asyncio.Event(), asyncio.Event()

        async def work() -> bool:
            async with lock as grant:
                inside.set()
                await leave.wait()
                return grant.released

        running = asyncio.create_task(work())
        await inside.wait()
        await asyncio.create_task(over.aclose())  # type: ignore[arg-type]
        assert lock.locked()
        leave.set()
        assert not await running
        assert not lock.locked()

    asyncio.run(asyncio.wait_for(program(), CEILING))


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_blocks_inside_a_block_whose_grant_is_released_end_each_by_itself(
    locks: distlock.Locks, names: tuple[str, ...]
) -> None:
    lock = locks.lock(*names)

    @contextmanager
    def fixture() -> Iterator[distlock.Grant]:
        with lock as grant:
            yield grant

    with fixture() as first:
        first.release()
        with fixture() as second:
            assert not second.released
        assert second.released
        with fixture() as third:
            assert not third.released
        assert third.released


def test_what_an_exit_stack_ends_is_what_is_over(locks: distlock.Locks) -> None:
    lock = locks.lock("a")
    over, running = ExitStack(), ExitStack()
    over.enter_context(lock).release()
    grant = running.enter_context(lock)
    over.close()
    assert not grant.released
    running.close()
    assert grant.released


def test_a_block_that_releases_early_ends_in_silence(locks: distlock.Locks) -> None:
    lock = locks.lock("a")
    with lock as grant:
        grant.release()
    with lock as grant:
        grant.release()
        with lock as again:
            pass
        assert again.released
    with lock:
        lock.release()
        exchanged = lock.acquire()
        assert exchanged is not None
    assert exchanged.released


def test_a_block_of_which_nothing_is_left_says_so(locks: distlock.Locks) -> None:
    lock = locks.lock("a")
    with pytest.raises(distlock.NotHeld), lock:
        lock.__exit__(None, None, None)
    assert not lock.locked()


def test_the_end_of_a_block_lets_go_of_what_its_code_worked_with(locks: distlock.Locks) -> None:
    class Thing:
        pass

    def work() -> weakref.ref[Thing]:
        thing = Thing()
        with locks.lock("a"):
            return weakref.ref(thing)

    left = work()
    gc.collect()
    assert left() is None
