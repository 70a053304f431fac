"""Tasks that are cancelled, and loops, processes and clients that end: nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref

import pytest

import distlock
from distlock import Grant
from distlock.testing.waits import ask_of, engine_of
from tests.backends.redis.proxy import Proxy
from tests.backends.redis.tasks import (
    Connect,
    connect,
    held_by,
    is_calling,
    pipeline_of,
    pool_of,
    queued,
    settled,
    taken,
    until,
)
from tests.redis_server import PATIENCE, RedisServer, eventually

__all__ = ["connect"]


@pytest.mark.fault("F08")
@pytest.mark.parametrize("stage", ["request", "poll", "cancel", "rest"])
def test_a_task_that_is_cancelled_at_any_await_leaves_nothing_and_mixes_up_no_reply(
    redis_server: RedisServer, proxy: Proxy, connect: Connect, stage: str
) -> None:
    locks, other = connect(proxy.url), connect(redis_server.url)

    def held(name: str) -> Grant | None:
        return other.lock(name).acquire(timeout=PATIENCE)

    with other.lock("warm_up"):
        assert locks.lock("warm_up").acquire(timeout=0.05) is None

    async def main() -> None:
        before = held("product_1") if stage != "request" else None
        if stage == "request":
            proxy.hold(replies=True)
        lasts = 0.3 if stage == "cancel" else PATIENCE
        task = asyncio.create_task(locks.lock("product_1").aacquire(timeout=lasts))
        if stage != "request":
            await until(lambda: queued(redis_server, "product_1") and not is_calling(locks), "it is queued")
        if stage == "poll":
            proxy.hold(replies=True)
            engine_of(locks).sink.missed_notifications()
        if stage == "cancel":
            proxy.hold(replies=True)
        if stage != "rest":
            await until(lambda: is_calling(locks), "its call is under way")
        others = [asyncio.create_task(taken(locks, f"other_{number}")) for number in range(3)]
        await asyncio.sleep(0)
        for _ in range(3):
            task.cancel()
            await asyncio.sleep(0)
        if stage != "rest":
            assert not task.done(), "what it did is not known to be over"
        proxy.flow()
        with pytest.raises(asyncio.CancelledError):
            await task
        for number, one in enumerate(others):
            grant = await one
            assert held_by(redis_server, f"other_{number}") == ask_of(grant).token
            await grant.arelease()
        if before is not None:
            before.release()

    asyncio.run(main())
    settled(locks)
    # It is nobody's.
    free = held("product_1")
    assert free is not None
    free.release()


@pytest.mark.fault("F18")
def test_a_cancelled_task_whose_answer_never_comes_ends_with_its_deadline(
    proxy: Proxy, redis_server: RedisServer, connect: Connect
) -> None:
    locks, other = connect(proxy.url, io_timeout=0.3), connect(redis_server.url)

    async def main() -> None:
        proxy.hold(replies=True)
        task = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: is_calling(locks), "it asks")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    proxy.flow()
    # The server has granted it to nobody that knows.
    assert other.lock("product_1").acquire(timeout=PATIENCE) is not None
    settled(locks)


def test_tasks_that_time_out_by_themselves_leave_nothing(redis_server: RedisServer, connect: Connect) -> None:
    """`asyncio.timeout` cancels at any moment: before, in and after each exchange."""
    locks = connect(redis_server.url)

    async def come(number: int) -> None:
        try:
            async with asyncio.timeout(number * 0.00002), locks.lock(f"product_{number % 7}"):
                await asyncio.sleep(0)
        except TimeoutError:
            pass

    async def main() -> None:
        for _ in range(5):
            await asyncio.gather(*map(come, range(200)))

    asyncio.run(main())
    settled(locks)
    for number in range(7):
        assert held_by(redis_server, f"product_{number}") is None


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "stopped"])
def test_a_loop_that_does_not_go_on_keeps_no_connection_and_no_lock_from_others(
    proxy: Proxy, redis_server: RedisServer, connect: Connect, closed: bool
) -> None:
    locks, other = connect(proxy.url, max_connections=1, io_timeout=0.5), connect(redis_server.url)
    proxy.hold(replies=True)
    loop = asyncio.new_event_loop()
    task = loop.create_task(locks.lock("product_1").aacquire(timeout=1))
    while not is_calling(locks):
        loop.run_until_complete(asyncio.sleep(0))
    if closed:
        loop.close()

    def works() -> bool:
        try:
            with locks.lock("product_2"):
                return True
        except distlock.BackendUnavailable:
            return False

    eventually(works, "others have a connection")
    if not closed:
        # It was granted this one, and does not know.
        with other.lock("product_1", timeout=PATIENCE / 3):
            pass
        assert loop.run_until_complete(task) is None, "a time-out"
        # It has a connection of its own again.
        loop.run_until_complete(run_pair(locks))
        loop.close()
    # Nobody will ever run it: say so before the collector complains.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    gone = weakref.ref(task)
    del task, loop
    gc.collect()
    assert gone() is None
    with locks.lock("product_1"):
        pass
    settled(locks)


async def run_pair(locks: distlock.Locks) -> None:
    async with locks.lock("product_3"):
        pass


@pytest.mark.fault("F07")
def test_a_child_that_is_forked_while_an_answer_is_under_way_takes_nothing_along(
    proxy: Proxy, redis_server: RedisServer, connect: Connect
) -> None:
    locks = connect(proxy.url)

    def child() -> int:
        # The threads of the proxy stayed with the parent, so it can't ask for anything.
        return len(pool_of(locks)._all)

    async def main() -> None:
        proxy.hold(replies=True)
        requests = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: is_calling(locks), "it asks")
        pid = os.fork()
        if pid == 0:
            requests.cancel()
            os._exit(child())
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        proxy.flow()
        grant = await requests
        await grant.arelease()

    asyncio.run(main())
    settled(locks)


def test_tasks_of_a_client_that_is_closed_are_told_and_no_connection_stays(
    own_server: RedisServer, connect: Connect
) -> None:
    locks, other = connect(own_server.url, client_name="closed"), connect(own_server.url)

    def connections() -> int:
        return sum(client["name"] == "closed" for client in own_server.client.client_list())

    async def main() -> None:
        held = other.lock("product_1").acquire()
        assert held is not None
        waits = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: engine_of(locks).queues.waiting and not is_calling(locks), "it waits")
        own_server.pause()
        requests = asyncio.create_task(taken(locks, "product_2"))
        await until(lambda: is_calling(locks), "it asks")
        closing = asyncio.create_task(asyncio.to_thread(locks.close))
        await asyncio.sleep(0.05)
        own_server.resume()
        for task in (waits, requests):
            with pytest.raises(distlock.BackendUnavailable, match="closed"):
                await task
        await closing
        held.release()
        await until(lambda: not other.lock("product_2").locked(), "it is given back")
        locks.close()
        await until(lambda: connections() == 0, "it is disconnected")

    asyncio.run(main())


def test_a_loop_for_each_call_leaves_nothing(redis_server: RedisServer, connect: Connect) -> None:
    """So asgiref runs async views of WSGI."""
    locks = connect(redis_server.url)
    files = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        asyncio.run(run_pair(locks))
    assert len(os.listdir("/proc/self/fd")) <= files
    assert len(pool_of(locks)._all) == 1
    settled(locks)


def test_loops_that_are_closed_are_not_kept(redis_server: RedisServer, connect: Connect) -> None:
    locks = connect(redis_server.url)

    async def main() -> weakref.ref[asyncio.AbstractEventLoop]:
        await (await taken(locks, "product_1")).arelease()
        return weakref.ref(asyncio.get_running_loop())

    closed = [asyncio.run(main()) for _ in range(5)]

    def left() -> int:
        gc.collect()
        return sum(loop() is not None for loop in closed)

    # When its answers are read, the keeper may still have the last hold that it has looked at.
    eventually(lambda: left() <= 1, "they are collected")
    settled(locks)


def test_a_call_that_ends_before_those_that_were_sent_earlier_ends_in_its_time(
    proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.url, io_timeout=2 * PATIENCE)

    async def main() -> None:
        proxy.hold(replies=True)
        long = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: is_calling(locks), "it asks")
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(distlock.BackendUnavailable):
                await locks.lock("product_2").aacquire(timeout=0.01)
        proxy.flow()
        await (await long).arelease()

    asyncio.run(main())
    settled(locks)


def test_a_timer_in_whose_place_another_one_came_sets_no_more_of_them(
    proxy: Proxy, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    locks = connect(proxy.url)

    async def main() -> None:
        proxy.hold(replies=True)
        requests = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: is_calling(locks), "it asks")
        with monkeypatch.context() as patched:
            patched.setattr(asyncio.get_running_loop(), "call_later", lambda *_: pytest.fail("a timer"))
            pipeline_of(locks)._expire(0.0)
        proxy.flow()
        await (await requests).arelease()

    asyncio.run(main())
