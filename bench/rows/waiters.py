"""Redis, ever more threads of one process, and of two: what an acquisition costs does not grow with them."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS, MORE = ("distlock",), ("redis-py",)
#: In all processes together.
FEW, MANY = 10, 200
BETWEEN = (2, 50)
TARGETS = (
    Target("cpu", 1.25, ours=f"distlock, {MANY}", peer=f"distlock, {FEW}", why="from-10-to-200-waiters"),
)


def measure(bench: Bench) -> Iterator[Table]:
    counts = sorted((FEW, MANY) if bench.quick else (FEW, MANY, *BETWEEN))
    for processes in (1,) if bench.quick else (1, 2):
        with bench.crews(bench.few(KINDS, MORE), processes, "redis") as crews:
            title = (
                f"Redis, so many threads of {'one process' if processes == 1 else f'{processes} processes'}"
            )
            measured = bench if processes == 1 else bench.lightly()
            entries = [
                Entry(crew, Plan(waiters // processes, measured.seconds), suffix=f", {waiters}")
                for crew in crews
                for waiters in counts
            ]
            targets = TARGETS if processes == 1 else ()
            yield measured.contest("waiters", title, entries, "redis", targets)
