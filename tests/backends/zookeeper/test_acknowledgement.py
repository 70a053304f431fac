"""A lock that is taken for its waiter before that is awake, where nothing can keep it from waking."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import distlock
from distlock.testing.waits import engine_of, wait_for_waiters
from tests.backends.zookeeper.contender import MakeContender, ask, some_key
from tests.redis_server import eventually
from tests.zookeeper_server import ZooKeeperServer

#: Longer than any of it takes on a busy machine, seconds.
CEILING = 60.0


def test_who_finds_others_before_it_goes_on_waiting(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key = some_key()
    one, two, three = (contender(zookeeper_server.url) for _ in range(3))
    first, second, third = ask(key), ask(key), replace(ask(key), prompt=True)
    one.hold(first)
    two.queue(second)
    three.queue(third)
    # The one before it gives up.
    assert two.cancel(second) is False
    assert three.sink.wait_for_notification(key)
    three.queue(third)
    assert one.renew([first]) == [True]
    assert one.release(first)
    three.until_held(third)


def test_who_is_given_it_and_gives_up_in_the_same_moment_has_it(
    zookeeper_server: ZooKeeperServer, contender: MakeContender
) -> None:
    key, one, two = some_key(), contender(zookeeper_server.url), contender(zookeeper_server.url)
    first, second = ask(key), replace(ask(key), prompt=True)
    one.hold(first)
    two.queue(second)
    one.release(first)
    assert two.sink.wait_for_notification(key)
    assert two.cancel(second) is True
    assert two.release(second)


def test_a_thread_is_prompt_and_a_task_is_not_for_its_loop_may_stand_still(
    zookeeper_server: ZooKeeperServer,
) -> None:
    one, two, three = (
        distlock.connect(zookeeper_server.url, prefix="prompt", timeout=CEILING, ack_window=0.1)
        for _ in range(3)
    )
    standing, go_on = threading.Event(), threading.Event()

    def stand_still() -> None:
        standing.set()
        go_on.wait(CEILING)

    async def wait() -> None:
        task = asyncio.ensure_future(acquire())
        await asyncio.to_thread(in_order, 2)
        assert [room.request.prompt for room in engine_of(two).queues.by_key.values() if room.request] == [
            False
        ]
        asyncio.get_running_loop().call_soon(stand_still)
        await task

    async def acquire() -> None:
        async with two.lock("hot"):
            pass

    def in_order(many: int) -> None:
        eventually(lambda: len(zookeeper_server.children("prompt:hot")) == many, "it stands in line")

    try:
        with ThreadPoolExecutor(2) as pool:
            held = one.lock("hot").acquire()
            assert held is not None
            task = pool.submit(asyncio.run, wait())
            assert standing.wait(CEILING)
            thread = pool.submit(three.lock("hot").acquire)
            wait_for_waiters(three, 1)
            in_order(3)
            assert [
                room.request.prompt for room in engine_of(three).queues.by_key.values() if room.request
            ] == [True]
            held.release()
            # It passes the one that hangs.
            passed = thread.result(CEILING / 2)
            assert passed is not None
            go_on.set()
            passed.release()
            task.result(CEILING)
    finally:
        go_on.set()
        for client in (one, two, three):
            client.close()
