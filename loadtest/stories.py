"""The stories that ``scripts/demo`` tells: the usual options of each, and its scenarios.

The options are read before anything is installed, so this module imports only what a bare Python has.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from demo_shop.configuration import IN_THE_DATABASE, Configuration
from demo_shop.guards import DISTRIBUTED
from demo_shop.remote_services import GATEWAY_LIMIT
from loadtest.scenario import (
    PAIRS,
    BuyerCrowd,
    Outcome,
    Scenario,
    Stop,
    Visit,
    async_story,
    pair,
    story,
    unlocked,
)
from loadtest.servers.lock_services import OUTAGES, Outage

#: Stands before a scenario, or alone.
UP = "up"
INSTANCES, TRANSACTIONS, FAILOVER = "instances", "transactions", "failover"
RUSH, READERS = "rush", "readers"


@dataclass(frozen=True, slots=True)
class Story:
    """What a story has where the options say nothing else. None: what all stories have."""

    crowd: BuyerCrowd
    backend: str | None = None
    database: str | None = None
    framework: str | None = None
    stock: int | None = None
    #: Between read and write, seconds.
    pause: float | None = None


RUSH_STOCK = 1000
STORIES = {
    INSTANCES: Story(BuyerCrowd()),
    # On PostgreSQL: SQLite lets only one transaction write at a time, and so hides in which order they are
    # committed. On Redis: its locks end when nobody renews them. In Django: elsewhere the lock checks its
    # lease right before COMMIT, and finds a stopped holder without the fence, unless it is stopped there.
    TRANSACTIONS: Story(
        # So few that the buyers at the other instance all wait or are inside when one instance is stopped: a
        # later one would be refused at once, since it would wait in vain behind a holder that stands still.
        BuyerCrowd(users=16, purchases=15),
        "redis",
        "postgresql",
        "django",
        # So many that some are left when one that was stopped goes on, also on a machine that is busy.
        stock=36,
        pause=0.02,
    ),
    # The lock has its usual lease, which is longer than each failover: where the lock passes on, it is not
    # because nobody renewed it.
    FAILOVER: Story(
        # Buyers who are turned away come again so soon that the service is measured, and not their patience.
        BuyerCrowd(users=16, purchases=40, pause=0.1),
        None,
        "postgresql",
        "django",
        stock=60,
        pause=0.02,
    ),
    # A quarter more requests than units: each sale ends with “sold out”, while all buyers are there.
    RUSH: Story(BuyerCrowd(users=50, purchases=25), "redis", "postgresql", stock=RUSH_STOCK),
    # Sixteen read reports, half as many buy, and sixteen pay.
    READERS: Story(BuyerCrowd(users=16, purchases=10), "redis", stock=16),
}
#: The two instances of a framework's name, in the stories of a rush and of readers.
WHERE = {
    "django": "two Django instances",
    "flask": "two Flask instances",
    "mixed": "a Django and a Flask instance",
}


def told(options: argparse.Namespace) -> tuple[Scenario, ...]:
    """Return the scenarios of the story in *options*; where a shop is to be opened, also the unlocked one."""
    if options.story == TRANSACTIONS:
        return transactions_scenarios()
    if options.story == FAILOVER:
        return failover_scenarios(options.backend)
    framework = options.framework or "django"
    if options.story == RUSH:
        return rush_scenarios(framework)
    if options.story == READERS:
        return readers_scenarios(framework)
    scenarios = async_story(framework) if options.is_async else story(framework, options.guard)
    return (unlocked(framework, options.is_async), *scenarios) if options.up else scenarios


def opened_first(options: argparse.Namespace) -> str:
    """Return the scenario that ``up`` opens by default: one that goes wrong, or the guard asked for."""
    if options.story == TRANSACTIONS:
        return transactions_scenarios()[0].slug
    pair = "mixed" if options.framework == "mixed" else "two"
    return f"{pair}-{'unlocked' if options.guard == DISTRIBUTED else options.guard}"


#: COMMIT takes so much longer where that is the story, seconds.
TRANSACTIONS_COMMIT_PAUSE = 0.02
#: Lifetime of the lock without renewal, seconds: a stop is longer.
TRANSACTIONS_TTL = 1.0


def transactions_scenarios() -> tuple[Scenario, ...]:
    """Return the story of locks that end before COMMIT, and of holders that stand still past their lease."""
    instances = PAIRS["django"]
    committed = pair("commit", "ATOMIC_REQUESTS", instances, "plain", DISTRIBUTED)
    stopped = fenced_pair("stopped", "stopped between read and write", Stop("read"))
    # The purchase reads only after the stop, and meets one that is under way: some have to be left.
    late = fenced_pair("late", "stopped between lock and transaction", Stop("granted", sold=4))
    return (
        *(replace(one, atomic_requests=True, commit_pause=TRANSACTIONS_COMMIT_PAUSE) for one in committed),
        *stopped,
        *late,
    )


def fenced_pair(slug: str, where: str, stop: Stop) -> tuple[Scenario, ...]:
    """Return two scenarios with the same lock, which differ in the fence."""
    instances = PAIRS["django"]
    control = Scenario(f"{slug}-unfenced", where, instances, DISTRIBUTED, Outcome.OVERSOLD, stop=stop)
    return control, replace(
        control, slug=f"{slug}-fenced", fence=True, must_be=Outcome.EXACT, control=control.slug
    )


def with_short_lease(shop: Configuration) -> Configuration:
    return replace(shop, lock_ttl=TRANSACTIONS_TTL)


def failover_scenarios(backend: str | None = None) -> tuple[Scenario, ...]:
    """Return the story of a lock service that loses a server during a sale: without the fence, and with it.

    *backend*: the lock service; None: each that can be struck.
    """
    struck = [outage for outage in OUTAGES if backend in (None, outage.backend)]
    return tuple(scenario for outage in struck for scenario in unfenced_and_fenced(outage))


def unfenced_and_fenced(outage: Outage) -> tuple[Scenario, Scenario]:
    must_be = Outcome.OVERSOLD if outage.forgets else Outcome.EXACT
    if outage.by_chance:
        must_be = Outcome.EITHER
    unfenced = Scenario(
        f"{outage.slug}-unfenced",
        f"{outage.backend}: {outage.what}",
        PAIRS["django"],
        DISTRIBUTED,
        must_be,
        stop=Stop("read"),
        outage=outage,
    )
    return unfenced, replace(
        unfenced, slug=f"{outage.slug}-fenced", fence=True, must_be=Outcome.EXACT, control=unfenced.slug
    )


@dataclass(frozen=True, slots=True)
class RushWay:
    """A way to sell one hot product: a view in ``rush.py`` of each framework, under ``/rush/<way>/<id>``."""

    title: str
    #: What the way does in the time that a COMMIT takes.
    why: str


#: The part of the route, which is also the view's name.
RUSH_WAYS = {
    "unlocked": RushWay(
        "no lock",
        "Nothing makes one buyer wait for another between reading the stock and writing it.",
    ),
    "conditional": RushWay(
        "UPDATE … WHERE stock >= n",
        "The quickest that a database does by itself: one statement checks and writes. It locks the row "
        "until COMMIT is durable, and so one row is sold once in that time.",
    ),
    "for_update": RushWay(
        "SELECT … FOR UPDATE",
        "The row is locked from the read until COMMIT is durable. Between them may stand what no single "
        "statement can do.",
    ),
    "locked": RushWay(
        "distlock",
        "The lock is held until COMMIT is durable, as the row is above. Buyers wait before the database and "
        "not in it, without a transaction.",
    ),
    "batched": RushWay(
        "distlock in batches",
        "The buyers who wait in one process share a COMMIT: each has a savepoint of its own, and is answered "
        "when that COMMIT is durable.",
    ),
}


#: COMMIT takes so much longer, seconds.
RUSH_COMMIT_PAUSE = 0.005
RUSH_GUARDS = {
    "unlocked": "none",
    "conditional": "conditional",
    "for_update": "for-update",
    "locked": DISTRIBUTED,
    "batched": DISTRIBUTED,
}
RUSH_CONTROL = "unlocked"


def rush_scenarios(framework: str) -> tuple[Scenario, ...]:
    """Return the control, which must oversell, and the ways to compare; each slug is its view's name."""
    return tuple(
        Scenario(
            slug,
            WHERE[framework],
            PAIRS[framework],
            RUSH_GUARDS[slug],
            Outcome.OVERSOLD if slug == RUSH_CONTROL else Outcome.EXACT,
            None if slug == RUSH_CONTROL else RUSH_CONTROL,
            called=way.title,
        )
        for slug, way in RUSH_WAYS.items()
    )


def rush_visit(scenario: Scenario) -> Visit:
    """Return what the buyers of one sale ask for: the shop does not think between read and write."""
    return Visit(
        f"rush-{scenario.slug}",
        "buys one unit",
        RUSH_WAYS[scenario.slug].why,
        RUSH_STOCK,
        pause=0.0,
    )


#: The lock services with shared locks and permits, which the matrix shows; and services without them.
READERS_BACKENDS = ("file", "redis", "zookeeper")
READERS_WITHOUT = (IN_THE_DATABASE, "postgresql", "redlock")
READERS_PRODUCTS = 4
TORN, SHARED, UNLIMITED, LIMITED = "torn", "shared", "unlimited", "limited"
READERS_TITLES = {
    TORN: "reports without a lock",
    SHARED: 'reports with mode="shared"',
    UNLIMITED: "payments without a limit",
    LIMITED: f"payments with limit={GATEWAY_LIMIT}",
}
READERS_CONTROLS = {SHARED: TORN, LIMITED: UNLIMITED}


def readers_scenarios(framework: str) -> tuple[Scenario, ...]:
    """Return each control, which must go wrong, before the scenario that differs only in the guard."""
    return tuple(
        Scenario(
            slug,
            WHERE[framework],
            PAIRS[framework],
            DISTRIBUTED if slug in READERS_CONTROLS else "none",
            Outcome.EXACT if slug in READERS_CONTROLS else Outcome.BROKEN,
            READERS_CONTROLS.get(slug),
            called=title,
        )
        for slug, title in READERS_TITLES.items()
    )
