"""Django behind nginx: two instances of gunicorn sell one product, with a COMMIT as it is and a slow one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import psycopg

from bench.bench import Bench
from bench.buyers import at
from bench.measures import Figures
from bench.table import Table, Target
from bench.web import MORE_WAYS, WAYS
from bench.web.buyers import buy
from bench.web.commits import DURABLE, measured, slow_down
from demo_shop.configuration import Configuration
from demo_shop.orders import PRODUCT_ID
from loadtest.postgresql import running_postgresql
from loadtest.stack import Stack

INSTANCES, THREADS, BUYERS = 2, 16, 50
PLENTY = 1_000_000
APPLICATION = {"bench": "bench.web.wsgi:application"}
#: A sale takes longer than a bare lock: seconds of a round, times those of a contest. And of one that
#: doesn't count.
LONGER, WARM_UP = 2, 0.3
MEASURES = ("sales", "answer", "late_answer", "longest_answer", "refused")
FAST = (
    Target("sales", 1.3, peer=WAYS["for-update"], least=True),
    Target("late_answer", 1 / 3, peer=WAYS["for-update"]),
    Target("sales", 2.0, peer=WAYS["redis-py"], least=True),
    Target("late_answer", 0.2, peer=WAYS["redis-py"]),
)
#: Of batches, by how much longer a COMMIT takes.
BATCHES = {0.0: 1.2, 0.005: 3.0}


def measure(bench: Bench) -> Iterator[Table]:
    shop = Configuration(stock=PLENTY)
    url = bench.services.url("redis")
    frameworks = list(APPLICATION) * INSTANCES
    with (
        running_postgresql(DURABLE) as database,
        Stack(frameworks, shop, url, database, applications=APPLICATION, threads=THREADS) as stack,
    ):
        for pause in sorted(bench.thorough([0.0, 0.005], [0.002])):
            yield table(bench, stack, pause)


def table(bench: Bench, stack: Stack, pause: float) -> Table:
    slow_down(stack.database, pause)
    violations: list[str] = []
    names = WAYS if bench.quick else WAYS | MORE_WAYS
    ways = {way: name for way, name in names.items() if bench.is_asked_for(name)}

    def sell(way: str, seconds: float) -> Figures:
        stack.restock()
        times, statuses, seconds = buy(stack.front.port, f"/{way}/{PRODUCT_ID}", BUYERS, seconds)
        sold, (stock, orders) = statuses[200], shelf(stack.database)
        if not (PLENTY - stock == orders == sold):
            violations.append(
                f"{names[way]}: {sold} were answered, {orders} orders stand in the database, and the stock "
                f"fell by {PLENTY - stock}."
            )
        return {
            "sales": sold / seconds,
            "answer": at(times, 0.5),
            "late_answer": at(times, 0.99),
            "longest_answer": times[-1],
            "refused": statuses.total() - sold,
        }

    title = (
        f"Django, {INSTANCES} instances of {THREADS} threads, {BUYERS} buyers of one product, "
        f"{f'{pause * 1000:g} ms more for each COMMIT' if pause else 'COMMIT as it is'}"
    )
    by_name = {name: way for way, name in ways.items()}
    rounds = bench.in_turns(
        {name: partial(sell, way, LONGER * bench.seconds) for name, way in by_name.items()},
        lambda name: sell(by_name[name], WARM_UP),
    )
    notes = [f"A COMMIT alone takes {measured(stack.database) * 1000:.1f} ms here."]
    targets = [*(() if pause else FAST)]
    if pause in BATCHES:
        batch, peer = WAYS["distlock-batch"], WAYS["conditional"]
        targets.append(Target("sales", BATCHES[pause], peer=peer, least=True, ours=batch))
    return Table("web", title, rounds, MEASURES, targets, notes, violations)


def shelf(database: str) -> tuple[int, int]:
    """The stock that is left, and the orders."""
    with psycopg.connect(database) as connection:
        row = connection.execute(
            "SELECT stock, (SELECT count(*) FROM purchase) FROM product WHERE id = %s", [PRODUCT_ID]
        ).fetchone()
        assert row
        return row[0], row[1]
