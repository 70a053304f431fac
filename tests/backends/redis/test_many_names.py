"""Fifty thousand names, as a shop has products, on a real server: all is as it was before."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import distlock
from distlock.testing.waits import engine_of
from tests.core.test_interrupts import check
from tests.redis_server import RedisServer, eventually

NAMES = 50_000
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
def test_fifty_thousand_names_leave_nothing_behind(own_server: RedisServer) -> None:
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
