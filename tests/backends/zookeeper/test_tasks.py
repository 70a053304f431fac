"""Event loops ask without a thread, beside the threads of their process."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from distlock import Grant
from tests.backends.redis.tasks import hops
from tests.backends.zookeeper.proxy import Proxy
from tests.backends.zookeeper.tasks import Connect, connect, line_of, settled, taken, until
from tests.redis_server import PATIENCE
from tests.zookeeper_server import ZooKeeperServer

__all__ = ["connect", "hops"]


def test_a_task_takes_and_gives_back_locks_of_all_kinds_without_a_thread(
    zookeeper_server: ZooKeeperServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(zookeeper_server.url)

    async def main() -> None:
        for _ in range(5):
            async with locks.lock("product_1") as grant, locks.semaphore("gateway", limit=2) as permit:
                assert len(zookeeper_server.children("tasks:product_1")) == 1
                grant.check()
                permit.check()
                await grant.adowngrade()
                assert grant.mode == "read"
            async with locks.read_lock("product_1") as reader:
                reader.check()

    asyncio.run(main())
    assert hops == []
    settled(locks)


def test_a_task_makes_counts_awaits_and_deletes_a_latch_without_a_thread(
    zookeeper_server: ZooKeeperServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(zookeeper_server.url)

    async def main() -> None:
        latch = locks.latch("import_1", 2)
        assert await latch.amake()
        waits = asyncio.create_task(latch.await_(PATIENCE))
        assert await latch.acount_down() == 1
        assert await latch.acount() == 1
        assert await latch.acount_down() == 0
        assert await waits
        assert await latch.adelete()

    asyncio.run(main())
    assert hops == []


def test_a_waiter_waits_gives_up_and_is_handed_the_lock_without_a_thread(
    zookeeper_server: ZooKeeperServer, connect: Connect, hops: list[str]
) -> None:
    locks, other = connect(zookeeper_server.url), connect(zookeeper_server.url)

    async def main() -> None:
        held = other.lock("product_1").acquire()
        assert held is not None
        assert await locks.lock("product_1").aacquire(blocking=False) is None
        assert await locks.lock("product_1").aacquire(timeout=0.05) is None
        waits = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: len(zookeeper_server.children("tasks:product_1")) == 2, "it stands in line")
        held.release()
        grant = await waits
        assert grant.fence > held.fence
        await grant.arelease()

    asyncio.run(main())
    assert hops == []
    settled(locks)


def test_a_thousand_tasks_on_a_hundred_names_need_no_thread_and_one_session(
    zookeeper_server: ZooKeeperServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(zookeeper_server.url)
    session = line_of(locks).session
    inside: set[int] = set()

    async def come(number: int) -> None:
        name = number % 100
        async with locks.lock(f"product_{name}"):
            assert name not in inside
            inside.add(name)
            await asyncio.sleep(0)
            inside.discard(name)

    async def main() -> None:
        await asyncio.gather(*map(come, range(1000)))

    asyncio.run(main())
    assert hops == []
    assert session.connections == 1
    settled(locks)


def test_threads_and_the_tasks_of_two_loops_share_one_waiting_room(
    zookeeper_server: ZooKeeperServer, connect: Connect
) -> None:
    locks = connect(zookeeper_server.url)
    inside = 0
    fences: list[Any] = []

    def enter(grant: Grant) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        fences.append(grant.fence)
        inside -= 1

    def work() -> None:
        for _ in range(20):
            with locks.lock("product_1") as grant:
                enter(grant)

    async def come() -> None:
        for _ in range(20):
            async with locks.lock("product_1") as grant:
                enter(grant)
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(asyncio.to_thread(work), *[come() for _ in range(3)])

    # Two loops, in threads of their own.
    other = threading.Thread(target=lambda: asyncio.run(main()))
    other.start()
    asyncio.run(main())
    other.join(PATIENCE)
    assert len(fences) == 160
    assert fences == sorted(set(fences))
    settled(locks)


def test_what_a_broken_connection_keeps_a_loop_from_asking_a_thread_asks(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect, hops: list[str]
) -> None:
    locks = connect(proxy.url)

    async def main() -> None:
        proxy.lose_reply()
        grants = await asyncio.gather(*[taken(locks, f"product_{number}") for number in range(3)])
        assert proxy.lost.is_set()
        for number, grant in enumerate(grants):
            # The node that was made, and whose answer was lost, is found again.
            assert len(zookeeper_server.children(f"tasks:product_{number}")) == 1
            await grant.arelease()

    asyncio.run(main())
    assert "request" in hops
    settled(locks)
