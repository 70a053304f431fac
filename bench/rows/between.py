"""Redis, processes with one thread each, as sync workers: each hand-off is one between processes."""

from __future__ import annotations

from collections.abc import Iterator

from bench.bench import Bench, Entry
from bench.contest import Plan
from bench.table import Table, Target

ON_PUSH = "distlock, on the push"
KINDS = ("distlock", ON_PUSH, "redis-py", "python-redis-lock", "a bare queue", "RLock", "RFairLock")
#: With those that a target speaks of where the server is farther away.
FEW, MORE = KINDS[:3], KINDS[3:]
PROCESSES = 8
WHY = "redis-between-processes"
NEAR = (
    Target("rate", 1.8, peer="python-redis-lock", least=True, why=WHY),
    Target("rate", 2.5, ours=ON_PUSH, peer="python-redis-lock", least=True, why=WHY),
    Target("p99", 0.1, peer="redis-py", why=WHY),
    # Its 99th percentile is that of the one process which takes it again and again.
    Target("longest", 0.1, peer="redis-py"),
    Target("rate", 2.0, peer="RLock", least=True),
    Target("rate", 2.0, peer="RFairLock", least=True),
    Target("commands", 10.0, ours=ON_PUSH, why=WHY),
)
FAR = (Target("rate", 1.8, peer="redis-py", least=True, why=WHY),)


def measure(bench: Bench) -> Iterator[Table]:
    for distance, words in ((0.0, "near"), (0.001, "1 ms farther away")):
        kinds = bench.few(FEW, MORE) if distance else KINDS
        with bench.crews(kinds, PROCESSES, "redis", distance) as crews:
            for body in bench.thorough([0.0], [] if distance else [0.001, 0.005]):
                title = f"Redis {words}, {PROCESSES} processes of 1 thread, a body of {body * 1000:g} ms"
                measured = bench.lightly() if body else bench
                entries = [Entry(crew, Plan(seconds=measured.seconds, body=body)) for crew in crews]
                targets = FAR if distance else () if body else NEAR
                yield measured.contest("between", title, entries, "redis", targets)
