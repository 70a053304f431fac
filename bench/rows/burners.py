"""Redis, and a thread in each process that computes without end: it has the interpreter when a lock comes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS, MORE = ("distlock", "redis-py"), ("python-redis-lock",)
PROCESSES, THREADS = 2, 25


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(KINDS, MORE), PROCESSES, "redis") as crews:
        title = f"Redis, {PROCESSES} processes of {THREADS} threads, and one in each that only computes"
        entries = [Entry(crew, Plan(THREADS, bench.seconds, burners=1)) for crew in crews]
        targets = [Target("rate", 1.0, peer="redis-py", least=True)]
        yield bench.contest("burners", title, entries, "redis", targets)
