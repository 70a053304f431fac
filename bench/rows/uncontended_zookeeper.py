"""ZooKeeper, and nobody else wants the lock, beside kazoo's and the two writes that none can do without."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench
from bench.table import Table, Target

FLOOR = "bare create + delete"
KINDS = ("distlock", "kazoo", FLOOR)


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(KINDS, 1, "zookeeper") as crews:
        title = "ZooKeeper on the loopback, one thread, nobody else wants the lock"
        targets = [Target("pair", 0.7, peer=FLOOR, why="zookeeper-nobody-else-wants-the-lock")]
        yield bench.alone("uncontended-zookeeper", title, crews, "zookeeper", targets)
