"""Behind nginx: two instances of gunicorn sell one product, with a COMMIT as it is and a slow one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import psycopg

from bench.bench import Bench
from bench.buyers import at
from bench.measures import Figures
from bench.processor import of_database, of_site
from bench.table import Table, Target
from bench.web import MORE_WAYS, WAYS
from bench.web.buyers import Answers, buy
from bench.web.commits import DURABLE, measured, slow_down
from demo_shop.configuration import Configuration
from demo_shop.sale import PRODUCT_ID
from loadtest.servers.databases import running_postgresql
from loadtest.stack import Stack

INSTANCES, THREADS, BUYERS = 2, 16, 50
PLENTY = 1_000_000
NAMES = WAYS | MORE_WAYS
APPLICATIONS = {"Django": "bench.web.wsgi:application", "Flask": "bench.web.flask_views:app"}
#: A sale takes longer than a bare lock: seconds of a round, times those of a contest. And of one that
#: doesn't count.
LONGER, WARM_UP = 2, 0.3
MEASURES = ("sales", "answer", "late_answer", "longest_answer", "site_cpu", "database_cpu", "refused")
WHY = "behind-a-web-server"
FAST = (
    Target("sales", 1.3, peer=WAYS["for-update"], least=True, why=WHY),
    Target("late_answer", 1 / 3, peer=WAYS["for-update"], why=WHY),
    Target("sales", 2.0, peer=WAYS["redis-py"], least=True, why=WHY),
    Target("late_answer", 0.2, peer=WAYS["redis-py"], why=WHY),
)
#: Of batches, by how much longer a COMMIT takes.
BATCHES = {0.0: 1.2, 0.005: 3.0}


def measure(bench: Bench) -> Iterator[Table]:
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
                yield table(bench if aimed else bench.lightly(), stack, pause)


def sell(stack: Stack, way: str, buy: Callable[[int, str], Answers], violations: list[str]) -> Figures:
    """What buyers are answered who *buy* at a port and path; *violations* is told what does not agree."""
    stack.restock()
    site, database = of_site(stack), of_database(stack.database)
    answers = buy(stack.front.port, f"/{way}/{PRODUCT_ID}")
    site, database = of_site(stack) - site, of_database(stack.database) - database
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


def table(bench: Bench, stack: Stack, pause: float) -> Table:
    slow_down(stack.database, pause)
    violations: list[str] = []
    names = WAYS if bench.quick or pause else NAMES
    if bench.quick and pause:
        # Its buyers wait longest, and no target speaks of them here.
        names = {way: name for way, name in names.items() if way != "redis-py"}
    ways = {way: name for way, name in names.items() if bench.is_asked_for(name)}

    def closed(way: str, seconds: float) -> Figures:
        return sell(stack, way, partial(buy, buyers=BUYERS, seconds=seconds), violations)

    title = (
        f"{stack.frameworks[0]}, {INSTANCES} instances of {THREADS} threads, {BUYERS} buyers of one product, "
        f"{f'{pause * 1000:g} ms more for each COMMIT' if pause else 'COMMIT as it is'}"
    )
    by_name = {name: way for way, name in ways.items()}
    rounds = bench.in_turns(
        {name: partial(closed, way, LONGER * bench.seconds) for name, way in by_name.items()},
        lambda name: closed(by_name[name], WARM_UP),
    )
    notes = [f"A COMMIT alone takes {measured(stack.database) * 1000:.1f} ms here."]
    if stack.frameworks[0] != "Django":
        return Table("web", title, rounds, MEASURES, [], notes, violations)
    targets = [*(() if pause else FAST)]
    if pause in BATCHES:
        batch, peer = WAYS["distlock-batch"], WAYS["conditional"]
        targets.append(Target("sales", BATCHES[pause], peer=peer, least=True, ours=batch, why=WHY))
    return Table("web", title, rounds, MEASURES, targets, notes, violations)


def shelf(database: str) -> tuple[int, int]:
    """The stock that is left, and the orders."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT stock, (SELECT count(*) FROM purchase) FROM product WHERE id = %s", [PRODUCT_ID]
        ).fetchone()
        assert row
        return row[0], row[1]
