"""Redis, threads that do something else between two acquisitions: how much of the load is served."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import CONTEST, Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS, MORE = ("distlock", "redis-py"), ("python-redis-lock", "a bare queue")
PROCESSES, THREADS, THINK = 2, 25, 0.01


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(KINDS, MORE), PROCESSES, "redis") as crews:
        title = (
            f"Redis, {PROCESSES} processes of {THREADS} threads, {THINK * 1000:g} ms between two acquisitions"
        )
        entries = [Entry(crew, Plan(THREADS, bench.seconds, think=THINK)) for crew in crews]
        targets = [Target("served", 95.0, least=True, why="served-of-what-was-offered")]
        yield bench.contest("open", title, entries, "redis", targets, ("served", *CONTEST))
