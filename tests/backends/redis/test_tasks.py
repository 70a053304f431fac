"""Event loops ask without a thread, in order, beside the threads of their process."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from distlock import Grant
from distlock.testing.waits import ask_of, engine_of
from tests.backends.redis.proxy import Proxy
from tests.backends.redis.tasks import (
    Connect,
    connect,
    held_by,
    hops,
    pipeline_of,
    pool_of,
    queued,
    settled,
    taken,
    until,
)
from tests.redis_server import PATIENCE, RedisServer, eventually

__all__ = ["connect", "hops"]


def test_a_task_takes_and_gives_back_a_lock_without_a_thread(
    redis_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(redis_server.url)

    async def main() -> None:
        for _ in range(20):
            async with locks.lock("product_1") as grant:
                assert held_by(redis_server, "product_1") == ask_of(grant).token
                grant.check()
            impatient = await locks.lock("product_2").aacquire(blocking=False)
            assert impatient is not None
            await impatient.arelease()

    asyncio.run(main())
    assert hops == []
    settled(locks)


def test_a_task_reads_and_takes_permits_without_a_thread(
    redis_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(redis_server.url)

    with locks.read_lock("warm_up"), locks.semaphore("warm_up", limit=2):
        pass
    eventually(lambda: not engine_of(locks).replies.any, "its answers are read")

    async def main() -> None:
        for _ in range(20):
            async with locks.read_lock("product_1") as reader, locks.semaphore("gateway", limit=2) as permit:
                reader.check()
                permit.check()

    asyncio.run(main())
    assert hops == []
    settled(locks)


def test_a_task_makes_counts_awaits_and_deletes_a_latch_without_a_thread(
    redis_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(redis_server.url)
    # The first call of a process finds out whether the server has the script.
    assert locks.latch("warm_up", 1).make()
    locks.latch("warm_up").delete()

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
    # Where the thread that looks for those that wait has the connection, a thread asks on another one.
    assert "make_latch" not in hops


def test_a_waiter_waits_and_gives_up_without_a_thread(
    redis_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks, other = connect(redis_server.url), connect(redis_server.url)
    with other.lock("product_1"), other.lock("product_2"):
        # It begins to listen here, once.
        assert locks.lock("product_2").acquire(timeout=0.05) is None
        assert asyncio.run(locks.lock("product_1").aacquire(timeout=0.05)) is None
    assert hops == []
    settled(locks)


def test_a_waiter_is_handed_the_lock_without_a_thread(
    redis_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks, other = connect(redis_server.url), connect(redis_server.url)
    with other.lock("product_2"):
        assert locks.lock("product_2").acquire(timeout=0.05) is None

    async def main() -> None:
        held = other.lock("product_1").acquire()
        assert held is not None
        waits = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: queued(redis_server, "product_1"), "it is queued")
        held.release()
        grant = await waits
        assert grant.fence > held.fence
        await grant.arelease()

    asyncio.run(main())
    assert hops == []


def test_many_tasks_share_one_connection_and_each_has_its_own_answer(
    redis_server: RedisServer, connect: Connect, hops: list[str]
) -> None:
    locks = connect(redis_server.url)

    async def main() -> None:
        grants = await asyncio.gather(*[taken(locks, f"product_{number}") for number in range(200)])
        for number, grant in enumerate(grants):
            assert held_by(redis_server, f"product_{number}") == ask_of(grant).token
        await asyncio.gather(*[grant.arelease() for grant in grants])

    asyncio.run(main())
    assert len(pool_of(locks)._all) == 1
    assert hops == []
    settled(locks)


#: Threads beside the caller's, and connections.
FEW = {(1, 1), (2, 1)}


def test_a_thousand_tasks_on_a_hundred_names_need_three_threads_and_one_connection(
    redis_server: RedisServer, connect: Connect
) -> None:
    # Where the machine stands still for a tenth of a second the keeper reads the answers, and who comes just
    # then needs a thread.
    needed = [thousand_tasks(redis_server, connect)]
    while needed[-1] not in FEW and len(needed) < 5:
        needed.append(thousand_tasks(redis_server, connect))
    # The caller's thread, the keeper's, and one for the first calls.
    assert needed[-1] in FEW, needed


def thousand_tasks(redis_server: RedisServer, connect: Connect) -> tuple[int, int]:
    """How many threads they need beside the caller's, and how many connections."""
    before = set(threading.enumerate())
    locks = connect(redis_server.url)
    most = 0
    inside: set[int] = set()

    async def come(number: int) -> None:
        nonlocal most
        name = number % 100
        async with locks.lock(f"product_{name}"):
            assert name not in inside
            inside.add(name)
            await asyncio.sleep(0)
            inside.discard(name)
            most = max(most, len(set(threading.enumerate()) - before))

    async def main() -> None:
        await asyncio.gather(*map(come, range(1000)))

    asyncio.run(main())
    settled(locks)
    return most, len(pool_of(locks)._all)


def test_threads_and_tasks_share_one_waiting_room(redis_server: RedisServer, connect: Connect) -> None:
    locks = connect(redis_server.url)
    inside = 0
    fences: list[Any] = []

    def enter(grant: Grant) -> None:
        nonlocal inside
        inside += 1
        assert inside == 1
        fences.append(grant.fence)
        inside -= 1

    def work() -> None:
        for _ in range(50):
            with locks.lock("product_1") as grant:
                enter(grant)

    async def come() -> None:
        for _ in range(50):
            async with locks.lock("product_1") as grant:
                enter(grant)
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*[asyncio.to_thread(work) for _ in range(2)], *[come() for _ in range(3)])

    # Two loops, in threads of their own.
    other = threading.Thread(target=lambda: asyncio.run(main()))
    other.start()
    asyncio.run(main())
    other.join(PATIENCE)
    assert len(fences) == 500
    assert fences == sorted(set(fences))
    settled(locks)


def test_what_a_task_asks_next_does_not_overtake_its_release(proxy: Proxy, connect: Connect) -> None:
    locks = connect(proxy.url)

    async def main() -> None:
        grant = await taken(locks, "product_1")
        proxy.hold(replies=False)
        await grant.arelease()
        # Its connection is in use, and on another one a request would be there before the release.
        other = asyncio.create_task(asyncio.to_thread(locks.lock("product_2").acquire))
        await until(lambda: not pool_of(locks)._idle, "its connection is in use")
        again = asyncio.create_task(locks.lock("product_1").aacquire(blocking=False))
        await until(lambda: pool_of(locks)._waiting or again.done(), "it waits for the connection")
        proxy.flow()
        for task in (again, other):
            held = await task
            assert held is not None
            await held.arelease()

    asyncio.run(main())
    settled(locks)


@pytest.mark.parametrize("busy", [False, True])
def test_a_task_asks_behind_its_release_on_that_connection_and_on_no_other(
    proxy: Proxy, connect: Connect, busy: bool
) -> None:
    locks = connect(proxy.url)
    pool = pool_of(locks)

    async def main() -> None:
        grant = await taken(locks, "product_1")
        first = pool.lend()
        assert first is not None
        kept = await asyncio.to_thread(locks.lock("product_2").acquire)
        second = pool.lend()
        assert second is not None
        pool.give_back(first)
        proxy.hold(replies=False)
        await grant.arelease()
        # The one used last is taken first.
        pool.give_back(second)
        requests = [asyncio.create_task(taken(locks, "product_3"))] if busy else []
        await asyncio.sleep(0)
        again = asyncio.create_task(locks.lock("product_1").aacquire(blocking=False))
        await until(lambda: len(pool._idle) < 2 - busy, "it asks")
        proxy._flowing[1][False].set()
        for task in requests:
            await (await task).arelease()
        await asyncio.wait([again], timeout=0.1)
        proxy.flow()
        got = await again
        assert got is not None, "it has overtaken"
        await got.arelease()
        assert kept is not None
        await kept.arelease()

    asyncio.run(main())
    settled(locks)


def test_what_is_asked_behind_a_release_that_was_refused_is_asked_again(
    own_server: RedisServer, connect: Connect
) -> None:
    locks, other = connect(own_server.url), connect(own_server.url)

    async def main() -> None:
        grant = await taken(locks, "product_1")
        own_server.client.script_flush()
        # The script that takes a lock is known again, and that which gives it back is not.
        kept = other.lock("product_2").acquire()
        assert kept is not None
        await grant.arelease()
        again = await locks.lock("product_1").aacquire(blocking=False)
        assert again is not None
        await again.arelease()
        kept.release()

    asyncio.run(main())
    settled(locks)


def test_a_request_is_sent_whole_where_not_all_of_it_goes_at_once(
    proxy: Proxy, connect: Connect, hops: list[str]
) -> None:
    locks = connect(proxy.url, io_timeout=PATIENCE)
    made = pool_of(locks)._idle[-1]._socket
    assert made is not None
    made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    proxy.hold(replies=False)

    async def main() -> None:
        names = [f"{number}_{'x' * 150}" for number in range(1000)]
        asking = asyncio.gather(*[taken(locks, name) for name in names])
        await until(lambda: pipeline_of(locks)._unsent, "the buffers are full")
        proxy.flow()
        grants = await asking
        assert [grant.name for grant in grants] == names
        await asyncio.gather(*[grant.arelease() for grant in grants])

    asyncio.run(main())
    assert hops == []
    settled(locks)
