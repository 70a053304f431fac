"""Redis, fifty threads at once, each of which wants the lock one time: what shops that sell out look like."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS, MORE = ("distlock", "redis-py"), ("python-redis-lock", "pottery", "sherlock", "a bare queue")
PROCESSES, THREADS, BODY = 2, 25, 0.001
#: Until all bodies are done, if nothing came between them, milliseconds.
IDEAL = PROCESSES * THREADS * BODY * 1000
TARGETS = (Target("makespan", 1.25 * IDEAL, why="a-burst"), Target("makespan", 1 / 15, peer="redis-py"))
MEASURES = ("makespan", "p50", "p99", "process_changes", "cpu", "server_cpu", "requests", "commands")


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(KINDS, MORE), PROCESSES, "redis") as crews:
        title = f"Redis, {PROCESSES} processes of {THREADS} threads, each once, a body of {BODY * 1000:g} ms"
        entries = [Entry(crew, Plan(THREADS, times=1, body=BODY)) for crew in crews]
        yield bench.contest("burst", title, entries, "redis", TARGETS, MEASURES)
