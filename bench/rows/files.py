"""Files, two processes of one thread, beside a bare ``flock``: the floor, which has no order and no fence."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS = ("distlock", "flock")
PROCESSES = 2


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(KINDS, PROCESSES, "file") as crews:
        yield bench.alone("file", "Files, one thread, nobody else wants the lock", crews[:], "file")
        title = f"Files, {PROCESSES} processes of 1 thread on one name, a body of 0 ms"
        entries = [Entry(crew, Plan(seconds=bench.seconds)) for crew in crews]
        yield bench.contest("file", title, entries, "file", [Target("hand_over", 5.0)])
