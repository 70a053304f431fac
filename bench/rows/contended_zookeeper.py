"""ZooKeeper, two processes with many threads each, as gthread workers."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS = ("distlock", "kazoo", "Curator")
PROCESSES, THREADS = 2, 25
#: Times kazoo's rate, by the body in seconds.
TARGETS = {0.0: 30.0, 0.001: 1.8}


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(KINDS, PROCESSES, "zookeeper") as crews:
        for body, bound in TARGETS.items():
            title = f"ZooKeeper, {PROCESSES} processes of {THREADS} threads, a body of {body * 1000:g} ms"
            entries = [Entry(crew, Plan(THREADS, bench.seconds, body=body)) for crew in crews]
            targets = [Target("rate", bound, peer="kazoo", least=True, why="one-name-many-threads")]
            if not body:
                targets.append(Target("rate", 15.0, peer="Curator", least=True))
            yield bench.contest("contended-zookeeper", title, entries, "zookeeper", targets)
