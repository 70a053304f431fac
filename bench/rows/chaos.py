"""Redis, and what may go wrong while eight processes want one lock: nothing breaks, and all go on soon."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import redis

from bench.bench import Bench, Entry
from bench.contest import NAME, Plan
from bench.crew import Crew
from bench.locks import Lock
from bench.table import Table, Target

#: Its leases are short, so that a round sees the end of one.
KIND, TTL = "distlock, ttl=2", 2.0
PROCESSES = 8
#: For so long a process stands still, seconds: shorter than a lease, longer than a hand-over is worth.
STANDSTILL = 0.8
#: A dead holder costs its ttl at most, and a dead waiter the window of a hand-over, 0.5 s. The rest is for a
#: busy machine.
TARGETS = (Target("longest", 1000 * (TTL + 1.0), ours=KIND),)
MEASURES = ("rate", "p50", "p99", "longest", "jain", "requests", "commands")


#: What the one holds that is killed.
KEPT: list[AbstractContextManager[Any]] = []


def take_and_keep(lock: Lock) -> None:
    KEPT.append(lock(NAME))
    KEPT[0].__enter__()


def measure(bench: Bench) -> Iterator[Table]:
    url = bench.services.url("redis")
    with bench.crews([KIND], PROCESSES, "redis") as (crew,), redis.Redis.from_url(url) as client:

        def stand_still() -> None:
            os.kill(crew.pids[0], signal.SIGSTOP)
            time.sleep(STANDSTILL)
            os.kill(crew.pids[0], signal.SIGCONT)

        troubles: list[Callable[[], object]] = [
            client.script_flush,
            lambda: client.client_kill_filter(_type="pubsub"),
            lambda: client.client_kill_filter(_type="normal", skipme=True),
            stand_still,
        ]

        def disturb(seconds: float) -> None:
            """One trouble after the other, and in the end a process that is killed with the lock."""
            victim = Crew(1, KIND, url)
            for trouble in troubles:
                time.sleep(seconds / (2 * len(troubles)))
                trouble()
            victim.do([take_and_keep])
            os.kill(victim.pids[0], signal.SIGKILL)
            victim.end()

        entry = Entry(crew, Plan(seconds=max(3.0, 4 * bench.seconds)))
        title = (
            f"Redis, {PROCESSES} processes of 1 thread: scripts are flushed, connections are cut, a process "
            "stands still, another is killed with the lock"
        )
        yield bench.contest("chaos", title, [entry], "redis", TARGETS, MEASURES, meanwhile=disturb)
