"""ZooKeeper, processes with one thread each, as sync workers: each hand-off is one between processes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS = ("distlock", "kazoo", "Curator")
TARGETS = (
    Target("rate", 1.5, peer="kazoo", least=True, why="zookeeper-between-processes"),
    Target("rate", 2.0, peer="Curator", least=True),
)
PROCESSES = 8


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(KINDS, PROCESSES, "zookeeper") as crews:
        for body in bench.thorough([0.0], [0.001]):
            title = f"ZooKeeper, {PROCESSES} processes of 1 thread on one name, a body of {body * 1000:g} ms"
            measured = bench.lightly() if body else bench
            entries = [Entry(crew, Plan(seconds=measured.seconds, body=body)) for crew in crews]
            yield measured.contest("between-zookeeper", title, entries, "zookeeper", () if body else TARGETS)
