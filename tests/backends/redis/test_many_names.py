"""A hundred thousand names, and ten thousand callers for one of them, on a real server."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import statistics
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock import clock
from distlock.testing.waits import engine_of
from tests.core.test_interrupts import check
from tests.redis_server import RedisServer, eventually

NAMES = 100_000
#: So many fill what is kept of the latest names only.
FIRST = 10_000
#: Seconds. Only what hangs takes that long.
END = 540.0
#: Bytes: a tenth of what one room for each name would come to.
LITTLE = 8_000_000
#: Connections and threads that are kept for later: as many as were ever needed at once, here by 50 tasks.
FEW = 20


def left(client: Any) -> int:
    """Keys. On a busy machine a name is held for so long that its process tells, which lives for a day."""
    return int(client.dbsize() - client.exists("dl:2:processes"))


def memory() -> int:
    """Of this process, in bytes."""
    gc.collect()
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def take(locks: distlock.Locks, names: itertools.count[int], until: int) -> None:
    """By tasks, and every tenth name by a thread."""
    with ThreadPoolExecutor(4) as threads:

        def take_here(name: str) -> None:
            with locks.lock(name):
                pass

        async def shop() -> None:
            while (number := next(names)) < until:
                name = f"product_{number}"
                if number % 10 == 0:
                    await asyncio.get_running_loop().run_in_executor(threads, take_here, name)
                else:
                    async with locks.lock(name):
                        pass

        async with asyncio.timeout(END):
            await asyncio.gather(*(shop() for _ in range(50)))


@pytest.mark.attack("A18")
@pytest.mark.fault("F39")
def test_a_hundred_thousand_names_leave_nothing_behind(own_server: RedisServer) -> None:
    client = own_server.client
    locks = distlock.connect(own_server.url, prefix="shop", ttl=5.0, timeout=END, fence_ttl=0.05)
    asyncio.run(take(locks, itertools.count(), FIRST))
    eventually(lambda: left(client) == 0, "the first names are forgotten")
    files, threads = len(os.listdir("/proc/self/fd")), threading.active_count()
    here, there = memory(), client.info("memory")["used_memory"]
    asyncio.run(take(locks, itertools.count(FIRST), NAMES))
    assert client.info("stats")["expired_keys"] + client.dbsize() >= NAMES - FIRST
    check(engine_of(locks))
    eventually(lambda: left(client) == 0, "all names are forgotten")
    eventually(lambda: client.info("memory")["used_memory"] < there + LITTLE, "so is their memory")
    eventually(lambda: len(os.listdir("/proc/self/fd")) <= files + FEW, "few files are open")
    eventually(lambda: threading.active_count() <= threads + FEW, "few threads run")
    assert memory() < here + LITTLE
    locks.close()


#: How many ask for one name, and how many of them may wait.
CROWD, CAP = 10_000, 9_000
#: How often another name is locked for one median, and how many medians are taken. The least counts: it has
#: nothing of what else the machine does.
LOCKS, MEDIANS = 50, 10
#: How much longer another name may take behind the crowd.
FACTOR = 3.0


async def time_another(locks: distlock.Locks) -> float:
    """Return how many seconds it takes to lock another name."""
    medians = []
    for _ in range(MEDIANS):
        took = []
        for _ in range(LOCKS):
            began = clock.now()
            async with locks.lock("product_2"):
                pass
            took.append(clock.now() - began)
        medians.append(statistics.median(took))
    return min(medians)


async def crowd(locks: distlock.Locks) -> tuple[list[BaseException | None], int, float, float]:
    """Let the crowd ask for one name, which is held. Return its outcomes, how many of them came before it
    was free, and how long another name took before and meanwhile.
    """

    async def come() -> None:
        async with locks.lock("product_1"):
            pass

    before = await time_another(locks)
    async with locks.lock("product_1"):
        tasks = [asyncio.create_task(come()) for _ in range(CROWD)]
        while engine_of(locks).queues.waiting < min(CAP, CROWD):
            await asyncio.sleep(0)
        meanwhile = await time_another(locks)
        refused = sum(task.done() for task in tasks)
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    return outcomes, refused, before, meanwhile


@pytest.mark.fault("F39")
@pytest.mark.alone
def test_ten_thousand_callers_for_one_name_do_not_delay_another(own_server: RedisServer) -> None:
    locks = distlock.connect(own_server.url, prefix="shop", ttl=60.0, timeout=END, max_waiters=CAP)
    outcomes, refused, before, meanwhile = asyncio.run(crowd(locks))
    # Those above the cap are refused at once, and all others get the lock.
    assert refused == CROWD - CAP
    assert sum(isinstance(outcome, distlock.TooManyWaiters) for outcome in outcomes) == refused
    assert outcomes.count(None) == CAP
    assert meanwhile < FACTOR * before
    check(engine_of(locks))
    locks.close()
