"""The rows of a run: what each measures, the function that yields its tables, and how long it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.bench import Bench
from bench.figures import Table
from bench.rows import chaos, contended, scale, uncontended, web


@dataclass(frozen=True, slots=True)
class BenchRow:
    """A part of a run."""

    #: What it measures, for ``--help``.
    about: str
    #: Yields its tables, one for each setting.
    measure: Callable[[Bench], Iterator[Table]]
    #: About how many seconds it takes on two idle cores, and how many with ``--quick``.
    whole: float
    quick: float


#: All rows by their names in the command, in the order of the report.
ROWS = {
    "uncontended": BenchRow(
        "Redis, and nobody else wants the lock: what acquire and release cost, near and 1 ms away.",
        uncontended.measure_uncontended,
        50,
        6,
    ),
    "between": BenchRow(
        "Redis, processes with one thread each, as sync workers: each hand-off is one between processes.",
        contended.measure_between,
        125,
        20,
    ),
    "contended": BenchRow(
        "Redis, two processes with many threads each, as gthread workers: most grants are passed "
        "on inside one.",
        contended.measure_contended,
        140,
        10,
    ),
    "burst": BenchRow(
        "Redis, fifty threads at once, each of which wants the lock one time: what shops that sell "
        "out look like.",
        contended.measure_burst,
        30,
        6,
    ),
    "open": BenchRow(
        "Redis, threads that do something else between two acquisitions: how much of the load is served.",
        contended.measure_open,
        35,
        4,
    ),
    "burners": BenchRow(
        "Redis, and a thread in each process that computes without end: it has the interpreter "
        "when a lock comes.",
        contended.measure_burners,
        30,
        4,
    ),
    "waiters": BenchRow(
        "Redis, ever more threads of one process, and of two: what an acquisition costs does not "
        "grow with them.",
        scale.measure_waiters,
        110,
        5,
    ),
    "processes": BenchRow(
        "Redis, ever more processes of one thread: what a hand-off between them costs, and how "
        "many it wakes.",
        scale.measure_processes,
        40,
        5,
    ),
    "uneven": BenchRow(
        "Redis, a process with many threads beside one with few: neither starves, whatever the "
        "other has waiting.",
        scale.measure_uneven,
        90,
        3,
    ),
    "chaos": BenchRow(
        "Redis, and what may go wrong while eight processes want one lock: nothing breaks, and all "
        "go on soon.",
        chaos.measure_chaos,
        60,
        35,
    ),
    "crowd": BenchRow(
        "Redis, thousands of processes that wait for one name: what their polls cost the server.",
        scale.measure_crowd,
        5,
        5,
    ),
    "asyncio": BenchRow(
        "asyncio on Redis, beside redis-py's lock for asyncio: one task alone, and a thousand on a "
        "hundred names.",
        uncontended.measure_asyncio,
        40,
        8,
    ),
    "engine": BenchRow(
        "The engine by itself: acquire and release over a lock service that costs nothing.",
        uncontended.measure_engine,
        10,
        3,
    ),
    "uncontended-zookeeper": BenchRow(
        "ZooKeeper, and nobody else wants the lock, beside kazoo's and the two writes that none "
        "can do without.",
        uncontended.measure_uncontended_zookeeper,
        20,
        6,
    ),
    "between-zookeeper": BenchRow(
        "ZooKeeper, processes with one thread each, as sync workers: each hand-off is one between processes.",
        contended.measure_between_zookeeper,
        25,
        6,
    ),
    "contended-zookeeper": BenchRow(
        "ZooKeeper, two processes with many threads each, as gthread workers.",
        contended.measure_contended_zookeeper,
        40,
        12,
    ),
    "chaos-zookeeper": BenchRow(
        "ZooKeeper, and what may go wrong while eight processes want one lock: sessions end, "
        "connections are cut.",
        chaos.measure_chaos_zookeeper,
        40,
        25,
    ),
    "web": BenchRow(
        "Behind nginx: two instances of gunicorn sell one product, with a COMMIT as it is and a slow one.",
        web.measure_web,
        350,
        35,
    ),
    "web-open": BenchRow(
        "Behind nginx, buyers who come at random, however long others wait: fewer than can be "
        "served, and more.",
        web.measure_web_open,
        100,
        30,
    ),
    "file": BenchRow(
        "Files, two processes of one thread, beside a bare ``flock``: the floor, which has no "
        "order and no fence.",
        contended.measure_file,
        20,
        3,
    ),
}
#: The rows of a quick run. chaos-zookeeper waits for leases most of the time, and web-open has no target.
QUICK_ROWS = [row for row in ROWS if row not in ("chaos-zookeeper", "web-open")]
