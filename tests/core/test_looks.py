"""Looking at locks in asyncio: the same answers, while the event loop goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from functools import partial

import pytest

import distlock
from distlock.testing.waits import PATIENCE
from tests.flask_guard import dummy_locks


@pytest.fixture
def locks(request: pytest.FixtureRequest) -> Iterator[distlock.Locks]:
    locks = distlock.connect(f"memory://{request.node.name}", prefix="shop", timeout=PATIENCE)
    yield locks
    locks.close()


def test_a_task_sees_what_plain_code_sees(locks: distlock.Locks) -> None:
    async def main() -> None:
        lock = locks.lock("product_1")
        several = distlock.multi_lock(lock, locks.lock("product_2"))
        assert not await lock.alocked()
        assert not await several.alocked()
        async with lock as grant:
            assert await lock.alocked()
            assert await several.alocked()
            state = await locks.ainspect("product_1")
            assert state.fence == grant.fence
            assert (await locks.ainspect("product_1", "semaphore")).holder is None
            assert await locks.arequest_release("product_1")
            assert grant.release_requested
        assert not await locks.arequest_release("product_1")
        assert [one async for one in locks.alist()] == list(locks.list())
        async with locks.semaphore("gateway", limit=2) as permit:
            assert await locks.semaphore("gateway", limit=2).alocked()
            permit.check()

    asyncio.run(main())


def test_a_task_is_told_the_same_errors(locks: distlock.Locks) -> None:
    async def main() -> None:
        with pytest.raises(distlock.InvalidName):
            await locks.ainspect("")
        with pytest.raises(distlock.ConfigurationError, match="kind="):
            await locks.ainspect("product_1", "row")  # type: ignore[arg-type]
        with pytest.raises(distlock.InvalidName):
            await locks.arequest_release("")
        assert [one async for one in dummy_locks().alist()] == []

    asyncio.run(main())


def test_a_task_is_told_that_no_thread_can_be_started(locks: distlock.Locks) -> None:
    async def main() -> None:
        lock = locks.lock("product_1")
        calls: list[Callable[[], Awaitable[object]]] = [
            lock.alocked,
            distlock.multi_lock(lock, locks.lock("product_2")).alocked,
            partial(locks.ainspect, "product_1"),
            partial(locks.arequest_release, "product_1"),
            partial(list_all, locks),
        ]
        async with lock as grant:
            for call in calls:
                # No address space has room for such a stack, so no thread starts.
                before = threading.stack_size(1 << 46)
                try:
                    with pytest.raises(distlock.BackendUnavailable, match="No thread could be started"):
                        await call()
                finally:
                    threading.stack_size(before)
            # Now there are threads. They make none of the calls that have failed.
            assert await lock.alocked()
            assert not grant.release_requested
            assert await locks.arequest_release("product_1")
            assert grant.release_requested

    asyncio.run(main())


async def list_all(locks: distlock.Locks) -> list[object]:
    return [one async for one in locks.alist()]


def test_a_long_list_comes_whole_and_in_order_and_some_of_it_at_a_time(
    locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    threads: set[int] = set()

    def listed(before: str) -> Iterator[str]:
        for number in range(250):
            threads.add(threading.get_ident())
            read.append(number)
            yield f"{before}{number}"

    monkeypatch.setattr(locks, "list", listed)

    async def main() -> None:
        one_by_one = locks.alist("product_")
        assert await anext(one_by_one) == "product_0"  # type: ignore[comparison-overlap]
        assert len(read) < 250, "the rest is read when it is wanted"
        assert [one async for one in one_by_one] == [f"product_{number}" for number in range(1, 250)]

    asyncio.run(main())
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("call", ["alocked", "ainspect", "arequest_release"])
def test_the_event_loop_goes_on_meanwhile(
    locks: distlock.Locks, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    goes_on = threading.Event()

    def answer(*_: object) -> bool:
        return goes_on.wait(PATIENCE)

    target = locks.lock("product_1") if call == "alocked" else locks
    monkeypatch.setattr(target, call[1:], answer)

    async def main() -> None:
        arguments = [] if call == "alocked" else ["product_1"]
        asking = asyncio.create_task(getattr(target, call)(*arguments))
        await asyncio.sleep(0)
        goes_on.set()
        assert await asking is True

    asyncio.run(main())
