"""Rows behind nginx: two instances of gunicorn sell one product in each of the ways of `bench.web`."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial

import psycopg

from bench.bench import Bench
from bench.buyers import LoadResult, at, closed_load, open_load
from bench.figures import Figures, Table, Target
from bench.services import cpu_of_database, cpu_of_site
from bench.web import MORE_WAYS, WAYS
from demo_shop.configuration import Configuration
from demo_shop.sale import PRODUCT_ID
from loadtest.servers.databases import POSTGRESQL_OPTIONS, running_postgresql
from loadtest.stack import Stack

INSTANCES, THREADS, BUYERS = 2, 16, 50
PLENTY = 1_000_000
NAMES = WAYS | MORE_WAYS
APPLICATIONS = {"Django": "bench.web.wsgi:application", "Flask": "bench.web.flask_views:app"}
#: How many times longer a round is than one of a contest, because a sale takes longer than a bare lock.
LONGER = 2
#: Seconds of a first round that does not count.
WARM_UP = 0.3
MEASURES = ("sales", "answer", "late_answer", "longest_answer", "site_cpu", "database_cpu", "refused")
WHY = "behind-a-web-server"
FAST = (
    Target("sales", 1.3, peer=WAYS["for-update"], least=True, why=WHY),
    Target("late_answer", 1 / 3, peer=WAYS["for-update"], why=WHY),
    Target("sales", 2.0, peer=WAYS["redis-py"], least=True, why=WHY),
    Target("late_answer", 0.2, peer=WAYS["redis-py"], why=WHY),
)
#: How many times the sales of the conditional UPDATE batches have to reach, by the seconds added to a COMMIT.
BATCHES = {0.0: 1.2, 0.005: 3.0}

OPEN_WAYS = ("distlock", "distlock-batch", "for-update", "conditional")
#: The rates of buyers, as multiples of the highest rate of FOR UPDATE.
OPEN_LOADS = (0.6, 1.2)
#: There are more connections than serving threads, so that buyers wait in the server, and not before it.
OPEN_CONNECTIONS = 200
#: Seconds of the round that finds the highest rate of FOR UPDATE.
CAPACITY_SECONDS = 3.0
#: How many times longer a round is than one of a contest.
OPEN_LONGER = 4
OPEN_MEASURES = ("late_answer", "answer", "longest_answer", "sales", "refused")

#: With these options a COMMIT waits for the disk.
DURABLE = POSTGRESQL_OPTIONS | {"fsync": "on"}


def measure_web(bench: Bench) -> Iterator[Table]:
    shop = Configuration(stock=PLENTY)
    url = bench.services.url("redis")
    pauses = {"Django": sorted(bench.thorough([0.0, 0.005], [0.002])), "Flask": bench.thorough([], [0.0])}
    for framework, slower in pauses.items():
        if not slower:
            continue
        frameworks = [framework] * INSTANCES
        with (
            running_postgresql(DURABLE) as database,
            Stack(frameworks, shop, url, database, applications=APPLICATIONS, threads=THREADS) as stack,
        ):
            for pause in slower:
                aimed = framework == "Django" and pause in BATCHES
                yield web_table(bench if aimed else bench.lightly(), stack, pause)


def web_table(bench: Bench, stack: Stack, pause: float) -> Table:
    slow_down_commits(stack.database, pause)
    violations: list[str] = []
    names = WAYS if bench.quick or pause else NAMES
    if bench.quick and pause:
        # The buyers of redis-py wait longest, and no target names them here.
        names = {way: name for way, name in names.items() if way != "redis-py"}
    ways = {way: name for way, name in names.items() if bench.is_asked_for(name)}

    def closed(way: str, seconds: float) -> Figures:
        return sell(stack, way, partial(closed_load, buyers=BUYERS, seconds=seconds), violations)

    title = (
        f"{stack.frameworks[0]}, {INSTANCES} instances of {THREADS} threads, {BUYERS} buyers of one product, "
        f"{f'{pause * 1000:g} ms more for each COMMIT' if pause else 'COMMIT as it is'}"
    )
    by_name = {name: way for way, name in ways.items()}
    rounds = bench.in_turns(
        {name: partial(closed, way, LONGER * bench.seconds) for name, way in by_name.items()},
        lambda name: closed(by_name[name], WARM_UP),
    )
    notes = [f"A COMMIT alone takes {seconds_of_commit(stack.database) * 1000:.1f} ms here."]
    if stack.frameworks[0] != "Django":
        return Table("web", title, rounds, MEASURES, [], notes, violations)
    targets = [*(() if pause else FAST)]
    if pause in BATCHES:
        batch, peer = WAYS["distlock-batch"], WAYS["conditional"]
        targets.append(Target("sales", BATCHES[pause], peer=peer, least=True, ours=batch, why=WHY))
    return Table("web", title, rounds, MEASURES, targets, notes, violations)


def measure_web_open(bench: Bench) -> Iterator[Table]:
    """Measure an open load: buyers come at random, however long others wait.

    In a closed load, each buyer returns when it has its answer, so late answers also reduce the load.
    """
    url, shop = bench.services.url("redis"), Configuration(stock=PLENTY)
    with (
        running_postgresql(DURABLE) as database,
        Stack(
            ["Django"] * INSTANCES, shop, url, database, applications=APPLICATIONS, threads=THREADS
        ) as stack,
    ):
        violations: list[str] = []
        all_at_once = partial(closed_load, buyers=BUYERS)
        for way in OPEN_WAYS:
            sell(stack, way, partial(all_at_once, seconds=WARM_UP), violations)
        most = sell(stack, "for-update", partial(all_at_once, seconds=CAPACITY_SECONDS), violations)["sales"]
        for load in OPEN_LOADS:
            yield open_table(bench.lightly(), stack, load, load * most, violations)


def open_table(bench: Bench, stack: Stack, load: float, rate: float, violations: list[str]) -> Table:
    seconds, rounds = OPEN_LONGER * bench.seconds, iter(range(1_000_000))

    def come(way: str) -> Figures:
        # In a round all ways get the same load. Each round has another one, because a load may be unlucky.
        buyers = partial(
            open_load, rate=rate, seconds=seconds, most=OPEN_CONNECTIONS, seed=next(rounds) // len(OPEN_WAYS)
        )
        return sell(stack, way, buyers, violations)

    title = (
        f"Django, {INSTANCES} instances of {THREADS} threads, {rate:.0f} buyers a second: {load:g} times "
        "what FOR UPDATE sells at most"
    )
    measured = {NAMES[way]: partial(come, way) for way in OPEN_WAYS}
    notes = [f"Buyers come for {seconds:g} s. Each waits from when it comes."]
    return Table("web-open", title, bench.in_turns(measured), OPEN_MEASURES, [], notes, violations)


def sell(stack: Stack, way: str, load: Callable[[int, str], LoadResult], violations: list[str]) -> Figures:
    """Run *load*, which is given a port and a path, on one way, and return its figures.

    Append to *violations* if answers, orders and stock disagree.
    """
    stack.restock()
    site, database = cpu_of_site(stack), cpu_of_database(stack.database)
    answers = load(stack.front.port, f"/{way}/{PRODUCT_ID}")
    site, database = cpu_of_site(stack) - site, cpu_of_database(stack.database) - database
    stock, orders = shelf(stack.database)
    if not (PLENTY - stock == orders == answers.sold):
        violations.append(
            f"{NAMES[way]}: {answers.sold} were answered, {orders} orders stand in the database, and the "
            f"stock fell by {PLENTY - stock}."
        )
    return {
        "sales": answers.sold / answers.seconds,
        "answer": at(answers.times, 0.5),
        "late_answer": at(answers.times, 0.99),
        "longest_answer": answers.times[-1],
        "refused": answers.statuses.total() - answers.sold,
        "site_cpu": site / answers.sold,
        "database_cpu": database / answers.sold,
    }


def shelf(database: str) -> tuple[int, int]:
    """Return the remaining stock, and the number of orders."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT stock, (SELECT count(*) FROM purchase) FROM product WHERE id = %s", [PRODUCT_ID]
        ).fetchone()
        assert row
        return row[0], row[1]


def slow_down_commits(database: str, seconds: float) -> None:
    """Make each COMMIT that writes take *seconds* longer.

    PostgreSQL waits for ``commit_delay`` before it writes, while the transaction's rows are still locked, as
    it would for a slow disk or a replica. It writes COMMITs that come meanwhile at the same time.
    """
    with psycopg.connect(database, autocommit=True) as connection:
        for name, value in (("commit_siblings", 0), ("commit_delay", round(seconds * 1e6))):
            connection.execute(f"ALTER SYSTEM SET {name} = '{value}'")
        connection.execute("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 10.0
    while commit_delay(database) != round(seconds * 1e6):
        assert time.monotonic() < deadline, "PostgreSQL does not read its configuration."


def commit_delay(database: str) -> int:
    """Return the ``commit_delay`` of a new connection, microseconds."""
    with psycopg.connect(database) as connection:
        row = connection.execute("SELECT setting FROM pg_settings WHERE name = 'commit_delay'").fetchone()
        assert row
        return int(row[0])


def seconds_of_commit(database: str, times: int = 21) -> float:
    """Return the median seconds of *times* COMMITs of a sale while no other transaction commits."""
    with psycopg.connect(database) as connection:
        taken = []
        for _ in range(times):
            connection.execute("UPDATE product SET stock = stock WHERE id = %s", [PRODUCT_ID])
            began = time.perf_counter()
            connection.commit()
            taken.append(time.perf_counter() - began)
    return statistics.median(taken)
