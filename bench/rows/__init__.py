"""The rows: one file for each, by its name. `measure` gives its tables, one for each setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.bench import Bench
from bench.rows import (
    between,
    between_zookeeper,
    burners,
    burst,
    chaos,
    chaos_zookeeper,
    contended,
    contended_zookeeper,
    crowd,
    engine,
    files,
    open_load,
    processes,
    tasks,
    uncontended,
    uncontended_zookeeper,
    uneven,
    waiters,
    web,
    web_open,
)
from bench.table import Table

#: In the order of the report.
ROWS: dict[str, Callable[[Bench], Iterator[Table]]] = {
    "uncontended": uncontended.measure,
    "between": between.measure,
    "contended": contended.measure,
    "burst": burst.measure,
    "open": open_load.measure,
    "burners": burners.measure,
    "waiters": waiters.measure,
    "processes": processes.measure,
    "uneven": uneven.measure,
    "chaos": chaos.measure,
    "crowd": crowd.measure,
    "asyncio": tasks.measure,
    "engine": engine.measure,
    "uncontended-zookeeper": uncontended_zookeeper.measure,
    "between-zookeeper": between_zookeeper.measure,
    "contended-zookeeper": contended_zookeeper.measure,
    "chaos-zookeeper": chaos_zookeeper.measure,
    "web": web.measure,
    "web-open": web_open.measure,
    "file": files.measure,
}


@dataclass(frozen=True, slots=True)
class Lasts:
    """About how long a row takes on two cores with nothing else to do, seconds; and with --quick."""

    whole: float
    quick: float


LASTS = {
    "uncontended": Lasts(50, 6),
    "between": Lasts(125, 20),
    "contended": Lasts(140, 10),
    "burst": Lasts(30, 6),
    "open": Lasts(35, 4),
    "burners": Lasts(30, 4),
    "waiters": Lasts(110, 5),
    "processes": Lasts(40, 5),
    "uneven": Lasts(90, 3),
    "chaos": Lasts(60, 35),
    "crowd": Lasts(5, 5),
    "asyncio": Lasts(40, 8),
    "engine": Lasts(10, 3),
    "uncontended-zookeeper": Lasts(20, 6),
    "between-zookeeper": Lasts(25, 6),
    "contended-zookeeper": Lasts(40, 12),
    "chaos-zookeeper": Lasts(40, 25),
    "web": Lasts(350, 35),
    "web-open": Lasts(100, 30),
    "file": Lasts(20, 3),
}
#: Those of a quick run. One of the others takes its time in waiting for leases, the other has no target.
QUICK_ROWS = [row for row in ROWS if row not in ("chaos-zookeeper", "web-open")]
