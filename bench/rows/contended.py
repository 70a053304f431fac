"""Redis, two processes with many threads each, as gthread workers: most grants are passed on inside one."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS = ("distlock", "redis-py", "RLock", "RFairLock")
MORE = ("python-redis-lock", "pottery", "sherlock", "django-redis")
PROCESSES, THREADS = 2, 25
WHY = "one-name-many-threads"
TARGETS = (
    Target("rate", 6.0, peer="redis-py", least=True, why=WHY),
    Target("rate", 20.0, peer="RLock", least=True),
    Target("rate", 40.0, peer="RFairLock", least=True),
    Target("p99", 0.05, peer="redis-py"),
    Target("jain", 0.99, least=True),
    Target("requests", 0.1),
)


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(KINDS, MORE), PROCESSES, "redis") as crews:
        for body in bench.thorough([0.0], [0.001, 0.005]):
            title = (
                f"Redis, {PROCESSES} processes of {THREADS} threads on one name, a body of {body * 1000:g} ms"
            )
            measured = bench.lightly() if body else bench
            entries = [Entry(crew, Plan(THREADS, measured.seconds, body=body)) for crew in crews]
            yield measured.contest("contended", title, entries, "redis", () if body else TARGETS)
