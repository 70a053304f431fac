"""asyncio on Redis, and nobody else wants the lock, beside redis-py's lock for asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import redis.asyncio

import distlock
from bench.bench import ALONE, Bench
from bench.locks import PATIENCE, TTL
from bench.measures import Figures, of_work
from bench.table import Table, Target

AsyncLock = Callable[[], AbstractAsyncContextManager[Any]]


def measure(bench: Bench) -> Iterator[Table]:
    url = bench.services.url("redis")
    locks = distlock.connect(url, prefix="bench", timeout=PATIENCE)
    client = redis.asyncio.Redis.from_url(url)
    made: dict[str, AsyncLock] = {
        "distlock": lambda: locks.lock("alone"),
        "redis-py": lambda: client.lock("alone", timeout=TTL, blocking_timeout=PATIENCE),
    }

    async def pairs(make: AsyncLock) -> None:
        for _ in range(bench.pairs):
            async with make():
                pass

    with asyncio.Runner() as runner:

        def timed(make: AsyncLock) -> Figures:
            before = bench.services.work("redis")
            began, cpu = time.perf_counter(), time.process_time()
            runner.run(pairs(make))
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            work = bench.services.work("redis") - before
            return {"pair": seconds / bench.pairs, "cpu": cpu / bench.pairs, **of_work(work, bench.pairs)}

        measured = {name: partial(timed, make) for name, make in made.items() if bench.is_asked_for(name)}
        title = "Redis on the loopback, one task of asyncio, nobody else wants the lock"
        targets = [Target("pair", 0.8, peer="redis-py")]
        yield Table("asyncio", title, bench.in_turns(measured), ALONE, targets)
        runner.run(client.aclose())
    locks.close()
