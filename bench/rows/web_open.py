"""Behind nginx, buyers who come at random, however long others wait: fewer than can be served, and more.

A closed crowd, where each buys again when it is answered, comes slower where answers are late. These don't.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bench.bench import Bench
from bench.measures import Figures
from bench.rows.web import APPLICATIONS, BUYERS, INSTANCES, NAMES, PLENTY, THREADS, sell
from bench.table import Table
from bench.web.buyers import arrive, buy
from bench.web.commits import DURABLE
from demo_shop.configuration import Configuration
from loadtest.servers.databases import running_postgresql
from loadtest.stack import Stack

WAYS = ("distlock", "distlock-batch", "for-update", "conditional")
#: How many come a second, times what FOR UPDATE sells at most.
LOADS = (0.6, 1.2)
#: Connections: more than threads serve them, so that who comes is let in.
MOST = 200
#: Seconds: of what FOR UPDATE can, of a round that doesn't count, and of a round, times those of a contest.
CAPACITY, WARM_UP, LONGER = 3.0, 0.3, 4
MEASURES = ("late_answer", "answer", "longest_answer", "sales", "refused")


def measure(bench: Bench) -> Iterator[Table]:
    url, shop = bench.services.url("redis"), Configuration(stock=PLENTY)
    with (
        running_postgresql(DURABLE) as database,
        Stack(
            ["Django"] * INSTANCES, shop, url, database, applications=APPLICATIONS, threads=THREADS
        ) as stack,
    ):
        violations: list[str] = []
        all_at_once = partial(buy, buyers=BUYERS)
        for way in WAYS:
            sell(stack, way, partial(all_at_once, seconds=WARM_UP), violations)
        most = sell(stack, "for-update", partial(all_at_once, seconds=CAPACITY), violations)["sales"]
        for load in LOADS:
            yield table(bench.lightly(), stack, load, load * most, violations)


def table(bench: Bench, stack: Stack, load: float, rate: float, violations: list[str]) -> Table:
    seconds, rounds = LONGER * bench.seconds, iter(range(1_000_000))

    def come(way: str) -> Figures:
        # The same crowd for all, and another one in each round: one that comes at bad moments proves nothing.
        buyers = partial(arrive, rate=rate, seconds=seconds, most=MOST, seed=next(rounds) // len(WAYS))
        return sell(stack, way, buyers, violations)

    title = (
        f"Django, {INSTANCES} instances of {THREADS} threads, {rate:.0f} buyers a second: {load:g} times "
        "what FOR UPDATE sells at most"
    )
    measured = {NAMES[way]: partial(come, way) for way in WAYS}
    notes = [f"Buyers come for {seconds:g} s. Each waits from when it comes."]
    return Table("web-open", title, bench.in_turns(measured), MEASURES, [], notes, violations)
