"""asyncio on Redis, beside redis-py's lock for asyncio: one task alone, and a thousand on a hundred names."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import redis.asyncio

import distlock
from bench.bench import ALONE, Bench
from bench.crew import BenchError
from bench.locks import MOST, PATIENCE, TTL
from bench.measures import Figures, of_work
from bench.table import Table, Target

#: How many want how many names, and how often each.
TASKS, NAMES, EACH = 1000, 100, 2
AsyncLock = Callable[[str], AbstractAsyncContextManager[Any]]


def measure(bench: Bench) -> Iterator[Table]:
    url = bench.services.url("redis")
    locks = distlock.connect(url, prefix="bench", timeout=PATIENCE)
    client = redis.asyncio.Redis.from_url(url, max_connections=MOST, socket_connect_timeout=PATIENCE)
    made: dict[str, AsyncLock] = {
        "distlock": lambda name: locks.lock(name),
        "redis-py": lambda name: client.lock(name, timeout=TTL, blocking_timeout=PATIENCE),
    }

    async def pairs(make: AsyncLock) -> None:
        for _ in range(bench.pairs):
            async with make("alone"):
                pass

    violations: list[str] = []

    async def crowd(make: AsyncLock) -> None:
        inside: set[str] = set()

        async def come(number: int) -> None:
            name = f"crowd-{number % NAMES}"
            for _ in range(EACH):
                async with make(name):
                    if name in inside:
                        violations.append(f"{name}: two tasks were inside at once.")
                    inside.add(name)
                    await asyncio.sleep(0)
                    inside.discard(name)

        await asyncio.gather(*map(come, range(TASKS)))

    lost: list[str] = []
    with asyncio.Runner() as runner:

        def timed(
            make: AsyncLock, task: Callable[[AsyncLock], Coroutine[Any, Any, None]], times: int
        ) -> Figures:
            before = bench.services.work("redis")
            began, cpu = time.perf_counter(), time.process_time()
            try:
                runner.run(task(make))
            except (redis.RedisError, distlock.LockError) as error:
                raise BenchError(f"{type(error).__name__}: {error}") from error
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
            work = bench.services.work("redis") - before
            return {
                "pair": seconds / times,
                "rate": times / seconds,
                "cpu": cpu / times,
                **of_work(work, times),
            }

        made = {name: make for name, make in made.items() if bench.is_asked_for(name)}
        measured = {name: partial(timed, make, pairs, bench.pairs) for name, make in made.items()}
        title = "Redis on the loopback, one task of asyncio, nobody else wants the lock"
        targets = [Target("pair", 0.8, peer="redis-py")]
        yield Table("asyncio", title, bench.in_turns(measured, lost=lost), ALONE, targets, lost=lost)
        many = {name: partial(timed, make, crowd, TASKS * EACH) for name, make in made.items()}
        title = f"Redis on the loopback, {TASKS} tasks of asyncio on {NAMES} names"
        rounds = bench.in_turns(many, lost=lost)
        measures = ("rate", *ALONE[1:])
        yield Table("asyncio", title, rounds, measures, violations=violations, lost=lost)
        runner.run(client.aclose())
    locks.close()
