"""Tasks that are cancelled, servers that hang, and loops and clients that end: nothing of them stays."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import weakref

import pytest
from kazoo.protocol.serialization import Exists

import distlock
from distlock import clock
from distlock.testing.waits import engine_of
from tests.backends.redis.tasks import hops
from tests.backends.zookeeper.contender import LONG, MakeContender
from tests.backends.zookeeper.proxy import Proxy
from tests.backends.zookeeper.tasks import (
    Connect,
    backend_of,
    connect,
    is_calling,
    line_of,
    settled,
    taken,
    until,
)
from tests.redis_server import PATIENCE, eventually
from tests.zookeeper_server import ZooKeeperServer

__all__ = ["connect", "hops"]


def held(locks: distlock.Locks, name: str) -> distlock.Grant:
    grant = locks.lock(name).acquire(timeout=PATIENCE)
    assert grant is not None
    return grant


@pytest.mark.fault("F08")
@pytest.mark.parametrize("stage", ["request", "poll", "cancel", "rest"])
def test_a_task_that_is_cancelled_at_any_await_leaves_nothing_and_mixes_up_no_answer(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect, stage: str
) -> None:
    locks, other = connect(proxy.url), connect(zookeeper_server.url)

    async def main() -> None:
        before = None if stage == "request" else held(other, "product_1")
        if stage == "request":
            proxy.hold()
        lasts = 0.3 if stage == "cancel" else PATIENCE
        task = asyncio.create_task(locks.lock("product_1").aacquire(timeout=lasts))
        if stage != "request":
            room = engine_of(locks).queues.by_key
            await until(lambda: room and room["tasks:product_1"].queued and not is_calling(locks), "it waits")
        if stage in ("poll", "cancel"):
            proxy.hold()
        if stage == "poll":
            engine_of(locks).sink.missed_notifications()
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
            assert grant.name == f"other_{number}"
            assert len(zookeeper_server.children(f"tasks:other_{number}")) == 1
            await grant.arelease()
        if before is not None:
            before.release()

    asyncio.run(main())
    settled(locks)
    held(other, "product_1").release()


def test_tasks_that_time_out_by_themselves_leave_nothing(
    zookeeper_server: ZooKeeperServer, connect: Connect
) -> None:
    """`asyncio.timeout` cancels at any moment: before, in and after each exchange."""
    locks = connect(zookeeper_server.url)

    async def come(number: int) -> None:
        try:
            async with asyncio.timeout(number * 0.0002), locks.lock(f"product_{number % 7}"):
                await asyncio.sleep(0)
        except TimeoutError:
            pass

    async def main() -> None:
        for _ in range(3):
            await asyncio.gather(*map(come, range(100)))

    asyncio.run(main())
    settled(locks)
    eventually(
        lambda: not any(zookeeper_server.children(f"tasks:product_{number}") for number in range(7)),
        "it has no node",
    )


def test_a_server_that_hangs_is_waited_for_until_the_deadline(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect, hops: list[str]
) -> None:
    locks = connect(proxy.url, io_timeout=0.5)
    proxy.hold()

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(distlock.BackendUnavailable, match="ZooKeeper at"):
                await taken(locks, "product_1")

    asyncio.run(main())
    proxy.flow()
    # The node that it made after all goes.
    eventually(lambda: not zookeeper_server.children("tasks:product_1"), "it has no node")
    with connect(zookeeper_server.url).lock("product_1"):
        pass


def test_a_caller_whose_time_is_over_awaits_no_answer_any_more(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.url)
    proxy.hold()

    async def main() -> None:
        with pytest.raises(distlock.BackendUnavailable, match="no answer within"):
            await locks.lock("product_1").aacquire(timeout=0.1)

    asyncio.run(main())
    # It did not end because the connection was given up.
    assert line_of(locks).session.connected
    assert line_of(locks).session.connections == 1
    proxy.flow()
    settled(locks)


def test_a_session_that_is_closed_is_asked_nothing_and_not_waited_for(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    one = contender(zookeeper_server.url, io_timeout=PATIENCE)
    one.connect(LONG)
    session = one.line().session
    session.close()
    with pytest.raises(distlock.BackendUnavailable, match="is closed"):
        session.ask([Exists("/", None)], one._deadline())


@pytest.mark.parametrize("closed", [True, False], ids=["closed", "stopped"])
def test_a_loop_that_does_not_go_on_keeps_no_lock_from_others(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect, closed: bool
) -> None:
    locks, other = connect(proxy.url), connect(zookeeper_server.url)
    proxy.hold()
    loop = asyncio.new_event_loop()
    task = loop.create_task(locks.lock("product_1").aacquire(timeout=1))
    while not is_calling(locks):
        loop.run_until_complete(asyncio.sleep(0))
    if closed:
        loop.close()
    proxy.flow()
    eventually(lambda: not is_calling(locks), "its answer has come, and its loop does not know")
    assert len(zookeeper_server.children("tasks:product_1")) <= 1
    # In the same process, and in another one.
    with locks.lock("product_1"):
        pass
    with other.lock("product_1"):
        pass
    if not closed:
        assert loop.run_until_complete(task) is None, "a time-out"
        loop.close()
    # Nobody will ever run it: say so before the collector complains.
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    gone = weakref.ref(task)
    del task, loop
    gc.collect()
    assert gone() is None
    settled(locks)


def test_who_asks_in_the_place_of_one_whose_loop_stands_still_finds_its_node_again(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.url)
    proxy.hold()
    loop = asyncio.new_event_loop()
    task = loop.create_task(locks.lock("product_1").aacquire(timeout=0.1))
    while not is_calling(locks):
        loop.run_until_complete(asyncio.sleep(0))
    granted: list[distlock.Grant] = []
    thread = threading.Thread(target=lambda: granted.append(held(locks, "product_1")))
    thread.start()
    # It is passed over.
    room = engine_of(locks).queues.by_key["tasks:product_1"]
    eventually(
        lambda: len(room.waiters) == 1 and not task.done() and not is_calling(locks), "the next one asks"
    )
    proxy.flow()
    thread.join(PATIENCE)
    assert len(zookeeper_server.children("tasks:product_1")) == 1
    assert loop.run_until_complete(task) is None
    loop.close()
    granted[0].check()
    assert locks.lock("product_1").locked()
    granted[0].release()
    settled(locks)


def test_what_is_answered_after_the_end_of_its_call_sends_nothing_more(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.url)
    grant, backend = held(locks, "product_1"), backend_of(locks)
    path = line_of(locks).nodes[grant._hold.request.token].path  # type: ignore[attr-defined]
    before = zookeeper_server.admin.get(path)

    async def main() -> None:
        proxy.hold()
        ends = clock.now() + 0.1
        begun = backend.begin(backend.downgrade, grant._hold.request, ends)  # type: ignore[attr-defined]
        # The loop stands still meanwhile: only what reads the answer goes on.
        eventually(lambda: clock.now() > ends, "its time is over")
        proxy.flow()
        eventually(lambda: begun._over, "it was heard")
        with pytest.raises(distlock.BackendUnavailable, match="no time left"):
            await begun

    asyncio.run(main())
    assert not locks.lock("another").locked()  # behind all that was sent
    assert zookeeper_server.admin.get(path) == before
    grant.release()


def test_tasks_of_a_client_that_is_closed_are_told_and_no_session_stays(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect
) -> None:
    locks, other = connect(proxy.url), connect(zookeeper_server.url)

    async def main() -> None:
        before = held(other, "product_1")
        waits = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: engine_of(locks).queues.waiting and not is_calling(locks), "it waits")
        proxy.hold()
        requests = asyncio.create_task(taken(locks, "product_2"))
        await until(lambda: is_calling(locks), "it asks")
        closing = asyncio.create_task(asyncio.to_thread(locks.close))
        await until(lambda: engine_of(locks).cancellations or waits.done(), "it is being closed")
        proxy.flow()
        for task in (waits, requests):
            with pytest.raises(distlock.BackendUnavailable, match="closed"):
                await task
        await closing
        before.release()

    asyncio.run(main())
    locks.close()
    with other.lock("product_1"), other.lock("product_2"):
        pass


def test_a_child_that_is_forked_while_an_answer_is_under_way_takes_nothing_along(
    zookeeper_server: ZooKeeperServer, proxy: Proxy, connect: Connect
) -> None:
    locks = connect(proxy.url)

    async def main() -> None:
        proxy.hold()
        requests = asyncio.create_task(taken(locks, "product_1"))
        await until(lambda: is_calling(locks), "it asks")
        pid = os.fork()
        if pid == 0:
            os._exit(int(is_calling(locks)))
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        proxy.flow()
        await (await requests).arelease()

    asyncio.run(main())
    settled(locks)
