"""Redis, processes with one thread each, as sync workers: each hand-over is one between processes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench
from bench.contest import Plan
from bench.table import Table, Target

KINDS = ("distlock", "python-redis-lock", "redis-py")
PROCESSES = 8
TARGETS = (
    Target("rate", 1.8, peer="python-redis-lock", least=True),
    Target("p99", 0.1, peer="redis-py"),
    Target("commands", 10.0),
)


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(KINDS, PROCESSES, "redis") as crews:
        for body in bench.thorough([0.0], [0.001, 0.005]):
            title = f"Redis, {PROCESSES} processes of 1 thread on one name, a body of {body * 1000:g} ms"
            targets = () if body else TARGETS
            plan = Plan(seconds=bench.seconds, body=body)
            yield bench.contest("between", title, crews, "redis", plan, targets)
