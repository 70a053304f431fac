"""The tasks and futures of the page ask, are granted, and are cancelled, as any others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

import distlock
from distlock.testing.waits import wait_for_waiters, wait_until
from tests.web.quickstart import snippets

TASKS, THREADS = snippets("how-to/meanwhile.md")
PATIENCE = 60.0
FAR = "memory://meanwhile-page"


@pytest.fixture
def page() -> Iterator[dict[str, Any]]:
    """What the lines of the page define."""
    names: dict[str, Any] = {}
    exec((TASKS + THREADS).replace("redis://localhost:6379/0", FAR), names)
    yield names
    names["pool"].shutdown()
    names["locks"].close()


@pytest.fixture
def other() -> Iterator[distlock.Locks]:
    """Somebody else's client of the same lock service."""
    locks = distlock.connect(FAR, prefix="shop")
    yield locks
    locks.close()


async def stands_in_line(locks: distlock.Locks) -> None:
    await asyncio.to_thread(wait_for_waiters, locks, 1)


def test_a_task_prepares_while_it_stands_in_line(page: dict[str, Any], other: distlock.Locks) -> None:
    async def main() -> str:
        held = await other.lock("catalogue").aacquire()
        assert held is not None

        async def prepare() -> bool:
            await stands_in_line(page["locks"])
            await held.arelease()
            return True

        async with asyncio.timeout(PATIENCE):
            answer: str = await page["publish"](prepare)
            return answer

    assert asyncio.run(main()) == "published"
    assert not other.lock("catalogue").locked()


def test_a_task_that_needs_it_no_more_leaves_the_line(page: dict[str, Any], other: distlock.Locks) -> None:
    async def main() -> None:
        async def prepare() -> bool:
            await stands_in_line(page["locks"])
            return False

        async with asyncio.timeout(PATIENCE), other.lock("catalogue"):
            assert await page["publish"](prepare) == "not needed"
            wait_for_waiters(page["locks"], 0)

    asyncio.run(main())
    # The request that nobody waits for any more may have been granted first: then it is given back.
    wait_until(lambda: not other.lock("catalogue").locked(), "nobody holds it")


def test_a_task_that_is_cancelled_when_it_has_the_lock_gives_it_back(
    page: dict[str, Any], other: distlock.Locks
) -> None:
    async def main() -> None:
        asking = asyncio.create_task(page["locks"].lock("catalogue").aacquire())
        await asyncio.wait([asking])
        assert other.lock("catalogue").locked()
        await page["give_up"](asking)

    asyncio.run(main())
    assert not other.lock("catalogue").locked()


def test_a_preparation_that_fails_leaves_no_lock(page: dict[str, Any], other: distlock.Locks) -> None:
    async def prepare() -> bool:
        await asyncio.to_thread(wait_until, other.lock("catalogue").locked, "it is granted meanwhile")
        raise OSError("the disk is full")

    with pytest.raises(OSError, match="full"):
        asyncio.run(page["publish"](prepare))
    assert not other.lock("catalogue").locked()


def test_a_thread_asks_and_tells(page: dict[str, Any], other: distlock.Locks) -> None:
    held = other.lock("catalogue").acquire()
    assert held is not None
    asking: Future[distlock.Grant | None] = page["ask"]("catalogue", PATIENCE)
    wait_for_waiters(page["locks"], 1)
    assert not asking.done()
    held.release()
    grant = asking.result(PATIENCE)
    assert grant is not None
    grant.release()
    assert not other.lock("catalogue").locked()


def test_what_a_thread_is_granted_too_late_goes_back(page: dict[str, Any], other: distlock.Locks) -> None:
    held = other.lock("catalogue").acquire()
    assert held is not None
    asking = page["ask"]("catalogue", PATIENCE)
    wait_for_waiters(page["locks"], 1)
    page["not_needed"](asking)
    assert not asking.done(), "a thread that waits can't be interrupted"
    held.release()
    assert asking.result(PATIENCE) is not None
    wait_until(lambda: not other.lock("catalogue").locked(), "what it was granted is given back")


def test_what_no_thread_has_begun_is_never_asked(page: dict[str, Any], other: distlock.Locks) -> None:
    held = other.lock("catalogue").acquire()
    assert held is not None
    threads = page["pool"]._max_workers
    begun = [page["ask"]("catalogue", PATIENCE) for _ in range(threads)]
    later = page["ask"]("never", PATIENCE)
    page["not_needed"](later)
    assert later.cancelled()
    for asking in begun:
        page["not_needed"](asking)
    held.release()
    wait_until(lambda: all(asking.done() for asking in begun), "each had its turn")
    wait_until(lambda: not other.lock("catalogue").locked(), "all is given back")
