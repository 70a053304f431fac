"""Redis, ever more processes of one thread: what a hand-off between them costs, and how many it wakes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS, MORE = ("distlock",), ("redis-py", "python-redis-lock")
COUNTS, FEW = (4, 8), (1, 2)
#: One process is woken per release, so that with eight a hand-off costs what it costs with four.
TARGETS = tuple(
    Target(measure, bound, ours="distlock, 8", peer="distlock, 4")
    for measure, bound in (("commands", 1.1), ("wakes", 1.25))
)


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(KINDS, MORE), max(COUNTS), "redis") as crews:
        # What is counted here varies little.
        measured = bench if bench.quick else bench.lightly()
        entries = [
            Entry(crew, Plan(seconds=measured.seconds), processes, f", {processes}")
            for crew in crews
            for processes in sorted(COUNTS if bench.quick else COUNTS + FEW)
        ]
        title = "Redis, so many processes of 1 thread on one name, a body of 0 ms"
        yield measured.contest("processes", title, entries, "redis", TARGETS)
