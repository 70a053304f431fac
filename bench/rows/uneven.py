"""Redis, a process with many threads beside one with few: neither starves, whatever the other has waiting."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS = ("distlock", "redis-py", "python-redis-lock")
MANY, FEW, BODY = 40, 2, 0.001
#: A turn of the many ends after 50 ms and the body that is under way. As long again is for a busy machine.
TARGETS = (Target("few_longest", 100.0),)
MEASURES = ("rate", "few_share", "few_p99", "few_longest", "p99", "longest", "jain", "cpu")


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(KINDS, 2, "redis") as crews:
        title = f"Redis, a process of {MANY} threads and one of {FEW}, a body of {BODY * 1000:g} ms"
        seconds = bench.seconds if bench.quick else 10 * bench.seconds
        entries = [Entry(crew, Plan(MANY, seconds, body=BODY, few=FEW)) for crew in crews]
        yield bench.contest("uneven", title, entries, "redis", TARGETS, MEASURES)
