"""The conformance kit: several names at once, and tasks beside threads."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import distlock
from distlock.testing.fixtures import BRIEF, PATIENCE, ConformanceFixtures, Connect, wait_for_waiters


class CartConformance(ConformanceFixtures):
    # -- several names ---------------------------------------------------------------------------

    def test_several_names_are_all_held_or_none(
        self, locks: distlock.Locks, other: distlock.Locks, name: str
    ) -> None:
        a, b, c = (f"{name}_{letter}" for letter in "abc")
        with locks.lock(c):
            assert other.lock(c, b, a).acquire(timeout=BRIEF) is None
            for free in (a, b):
                assert not other.lock(free).locked()
        with other.lock(c, b, a, b) as grants:
            assert grants.names == (a, b, c)
            assert set(grants.fences) == {a, b, c}
            with pytest.raises(AttributeError, match="fences"):
                grants.fence  # noqa: B018

    def test_carts_in_opposite_order_do_not_deadlock(
        self, connect: Connect, name: str, pool: ThreadPoolExecutor
    ) -> None:
        clients = [connect(), connect()]
        names = [f"{name}_{number}" for number in range(3)]

        def buy(number: int) -> None:
            for turn in range(10):
                order = names[turn % 3 :] + names[: turn % 3]
                with clients[number % 2].lock(*(order if number % 2 else reversed(order))):
                    pass

        with clients[0].lock(names[1]):
            # In the order of their carts each would have a name that the other one wants.
            futures = [pool.submit(buy, number) for number in range(2)]
            for client in clients:
                wait_for_waiters(client, 1)
        for future in futures + [pool.submit(buy, number) for number in range(8)]:
            future.result(PATIENCE * 2)

    # -- asyncio ---------------------------------------------------------------------------------

    def test_tasks_and_threads_share_a_lock(
        self, locks: distlock.Locks, name: str, pool: ThreadPoolExecutor
    ) -> None:
        total = 0

        def buy() -> None:
            nonlocal total
            for _ in range(20):
                with locks.lock(name):
                    read = total
                    os.sched_yield()
                    total = read + 1

        async def order() -> None:
            nonlocal total
            for _ in range(20):
                async with locks.lock(name):
                    read = total
                    await asyncio.sleep(0)
                    total = read + 1

        async def main() -> None:
            await asyncio.gather(*(order() for _ in range(5)))

        threads = [pool.submit(buy) for _ in range(5)]
        asyncio.run(main())
        for thread in threads:
            thread.result(PATIENCE)
        assert total == 200
