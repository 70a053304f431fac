"""Rows without contention: the cost of a lock, the engine's share of it, and the cost in asyncio."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any

import redis.asyncio

import distlock
from bench.bench import ALONE, Bench
from bench.crew import BenchError
from bench.figures import Figures, Table, Target, of_work
from bench.locks import MOST, PATIENCE, TTL

UNCONTENDED = ("distlock", "redis-py", "two bare commands")
UNCONTENDED_MORE = ("distlock, its backend alone", "python-redis-lock", "pottery", "sherlock", "django-redis")
#: The share of redis-py's time that a pair may take, by the seconds of added round-trip time.
UNCONTENDED_BOUNDS = {0.0: 0.60, 0.001: 0.55}
#: The floor: two writes that every lock on ZooKeeper needs.
ZOOKEEPER_FLOOR = "bare create + delete"

#: One thread takes the lock again and again; threads hand it off; the same threads use a mutex.
ALONE_KIND, HAND_OFF_KIND, MUTEX_KIND = (
    "distlock, alone",
    "distlock, passed on",
    "threading.Lock, contended",
)
ENGINE_THREADS = 8
ENGINE_WHY = "the-engine-by-itself"
ENGINE_TARGETS = (
    Target("pass", 9.0, ours=ALONE_KIND, why=ENGINE_WHY),
    Target("pass", 25.0, ours=HAND_OFF_KIND, why=ENGINE_WHY),
)

#: The number of asyncio's tasks, of the names that they lock, and of acquisitions by each task.
TASKS, NAMES, EACH = 1000, 100, 2
AsyncLock = Callable[[str], AbstractAsyncContextManager[Any]]


def measure_uncontended(bench: Bench) -> Iterator[Table]:
    for distance, bound in UNCONTENDED_BOUNDS.items():
        with bench.crews(bench.few(UNCONTENDED, UNCONTENDED_MORE), 1, "redis", distance) as crews:
            where = f"{distance * 1000:g} ms farther away" if distance else "on the loopback"
            title = f"Redis {where}, one thread, nobody else wants the lock"
            targets = [Target("pair", bound, peer="redis-py", why="redis-nobody-else-wants-the-lock")]
            # These times are mostly the network's and vary little, so fewer pairs are enough.
            measured = replace(bench, pairs=bench.pairs // 3) if distance else bench
            yield measured.alone("uncontended", title, crews, "redis", targets)


def measure_uncontended_zookeeper(bench: Bench) -> Iterator[Table]:
    with bench.crews(("distlock", "kazoo", ZOOKEEPER_FLOOR), 1, "zookeeper") as crews:
        title = "ZooKeeper on the loopback, one thread, nobody else wants the lock"
        targets = [Target("pair", 0.7, peer=ZOOKEEPER_FLOOR, why="zookeeper-nobody-else-wants-the-lock")]
        yield bench.alone("uncontended-zookeeper", title, crews, "zookeeper", targets)


def measure_engine(bench: Bench) -> Iterator[Table]:
    locks = distlock.connect("nothing://", backend="bench.locks.NothingBackend", timeout=PATIENCE)
    lock, mutex, pairs = locks.lock("hot"), threading.Lock(), 10 * bench.pairs

    def pair() -> None:
        grant = lock.acquire()
        assert grant
        grant.release()

    def pair_of_mutex() -> None:
        with mutex:
            pass

    measured = {
        ALONE_KIND: partial(time_pairs, pair, pairs, 1),
        HAND_OFF_KIND: partial(time_pairs, pair, pairs, ENGINE_THREADS),
        MUTEX_KIND: partial(time_pairs, pair_of_mutex, pairs, ENGINE_THREADS),
    }
    title = f"The engine over a lock service that costs nothing; {ENGINE_THREADS} threads pass it on"
    try:
        yield Table("engine", title, bench.in_turns(measured), ("pair", "pass"), ENGINE_TARGETS)
    finally:
        locks.close()


def time_pairs(pair: Callable[[], None], pairs: int, threads: int) -> Figures:
    """Return the cost of one pair, when *threads* together make *pairs* of them."""

    def work() -> None:
        for _ in range(pairs // threads):
            pair()

    crew = [threading.Thread(target=work) for _ in range(threads)]
    began, cpu = time.perf_counter(), time.process_time()
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    return {"pair": (time.perf_counter() - began) / pairs, "pass": (time.process_time() - cpu) / pairs}


def measure_asyncio(bench: Bench) -> Iterator[Table]:
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
