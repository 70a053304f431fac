"""Redis, processes with one thread each, as sync workers: each hand-over is one between processes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS = ("distlock", "python-redis-lock", "redis-py", "RLock", "RFairLock")
PROCESSES = 8
NEAR = (
    Target("rate", 1.8, peer="python-redis-lock", least=True),
    Target("p99", 0.1, peer="redis-py"),
    Target("rate", 2.0, peer="RLock", least=True),
    Target("rate", 2.0, peer="RFairLock", least=True),
    Target("commands", 10.0),
)
FAR = (Target("rate", 1.8, peer="redis-py", least=True),)


def measure(bench: Bench) -> Iterator[Table]:
    for distance, words in ((0.0, "near"), (0.001, "1 ms farther away")):
        with bench.crews(KINDS, PROCESSES, "redis", distance) as crews:
            for body in bench.thorough([0.0], [] if distance else [0.001, 0.005]):
                title = f"Redis {words}, {PROCESSES} processes of 1 thread, a body of {body * 1000:g} ms"
                entries = [Entry(crew, Plan(seconds=bench.seconds, body=body)) for crew in crews]
                targets = FAR if distance else () if body else NEAR
                yield bench.contest("between", title, entries, "redis", targets)
