"""The rows: one file for each, by its name. `measure` gives its tables, one for each setting."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.bench import Bench
from bench.rows import (
    between,
    between_zookeeper,
    burners,
    burst,
    chaos,
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
    "web": web.measure,
    "file": files.measure,
}
