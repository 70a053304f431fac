"""Redis, a process with many threads beside one with few: neither starves, whatever the other has waiting."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

KINDS, MORE = ("distlock",), ("redis-py", "python-redis-lock")
MANY, FEW, BODY = 40, 2, 0.001
#: Starving is seen in a long round, times a usual one; those of the peers, which have no target, are shorter.
LONGER, ROUNDS = 20, 2
#: A turn of the many ends after 50 ms and the body that is under way. As long again is for a busy machine.
#: And each of the two has its half, whichever has more waiting.
TARGETS = (
    Target("few_longest", 100.0, each=True),
    Target("few_share", 40.0, least=True, each=True),
    Target("few_share", 60.0, each=True),
)
MEASURES = ("rate", "few_share", "few_p99", "few_longest", "p99", "longest", "jain", "cpu")


def measure(bench: Bench) -> Iterator[Table]:
    with bench.crews(bench.few(KINDS, MORE), 2, "redis") as crews:
        title = f"Redis, a process of {MANY} threads and one of {FEW}, a body of {BODY * 1000:g} ms"
        longer = 1 if bench.quick else LONGER
        entries = [
            Entry(crew, Plan(MANY, seconds, body=BODY, few=FEW))
            for crew in crews
            for seconds in [bench.seconds * (longer if crew.kind == "distlock" else longer / 5)]
        ]
        yield replace(bench, rounds=min(bench.rounds, ROUNDS)).contest(
            "uneven", title, entries, "redis", TARGETS, MEASURES
        )
