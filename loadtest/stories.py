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

#: The word that opens a shop, before a scenario's name or alone.
UP = "up"
INSTANCES, TRANSACTIONS, FAILOVER = "instances", "transactions", "failover"
RUSH, READERS = "rush", "readers"


@dataclass(frozen=True, slots=True)
class Story:
    """The defaults of a story's options. None: the default of all stories."""

    crowd: BuyerCrowd
    backend: str | None = None
    database: str | None = None
    framework: str | None = None
    stock: int | None = None
    #: Seconds between read and write.
    pause: float | None = None


RUSH_STOCK = 1000
STORIES = {
    INSTANCES: Story(BuyerCrowd()),
    # It needs PostgreSQL, because SQLite lets only one transaction write at a time, which hides the order of
    # COMMITs; Redis, whose locks end without renewal; and Django, because elsewhere the lock checks its lease
    # right before COMMIT, and so notices a stop even without the fence.
    TRANSACTIONS: Story(
        # The buyers are so few that all at the other instance wait or are inside when one instance stops.
        # A buyer who came later would be refused at once, because the wait behind the stopped holder is too
        # long.
        BuyerCrowd(users=16, purchases=15),
        "redis",
        "postgresql",
        "django",
        # There are enough units for some to be left when the stopped holder goes on, even on a busy machine.
        stock=36,
        pause=0.02,
    ),
    # The lock has its usual lease, which is longer than each failover, so it never ends for want of renewal.
    FAILOVER: Story(
        # Buyers who are turned away come again soon, so that the service is measured, and not their pauses.
        BuyerCrowd(users=16, purchases=40, pause=0.1),
        None,
        "postgresql",
        "django",
        stock=60,
        pause=0.02,
    ),
    # There are a quarter more requests than units, so that each sale ends with “sold out” for all buyers.
    RUSH: Story(BuyerCrowd(users=50, purchases=25), "redis", "postgresql", stock=RUSH_STOCK),
    # Sixteen users read reports, half as many buy, and sixteen pay.
    READERS: Story(BuyerCrowd(users=16, purchases=10), "redis", stock=16),
}
#: The titles of two instances, by framework, in the stories of a rush and of readers.
WHERE = {
    "django": "two Django instances",
    "flask": "two Flask instances",
    "mixed": "a Django and a Flask instance",
}


def told(options: argparse.Namespace) -> tuple[Scenario, ...]:
    """Return the scenarios of the story in *options*; with ``up``, also the unlocked one."""
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
    """Return the scenario that ``up`` opens by default: one that goes wrong, or one with the chosen guard."""
    if options.story == TRANSACTIONS:
        return transactions_scenarios()[0].slug
    pair = "mixed" if options.framework == "mixed" else "two"
    return f"{pair}-{'unlocked' if options.guard == DISTRIBUTED else options.guard}"


#: How many seconds longer COMMIT takes in the scenarios about COMMIT.
TRANSACTIONS_COMMIT_PAUSE = 0.02
#: Lifetime of the lock without renewal, seconds. A stop lasts longer.
TRANSACTIONS_TTL = 1.0


def transactions_scenarios() -> tuple[Scenario, ...]:
    """Return the scenarios of locks that end before COMMIT, and of holders that outlive their lease."""
    instances = PAIRS["django"]
    committed = pair("commit", "ATOMIC_REQUESTS", instances, "plain", DISTRIBUTED)
    stopped = fenced_pair("stopped", "stopped between read and write", Stop("read"))
    # Here the purchase reads only after the stop, and has to meet another one, so some units have to be left.
    late = fenced_pair("late", "stopped between lock and transaction", Stop("granted", sold=4))
    return (
        *(replace(one, atomic_requests=True, commit_pause=TRANSACTIONS_COMMIT_PAUSE) for one in committed),
        *stopped,
        *late,
    )


def fenced_pair(slug: str, where: str, stop: Stop) -> tuple[Scenario, ...]:
    """Return two scenarios with the same lock, without and with the fence."""
    instances = PAIRS["django"]
    control = Scenario(f"{slug}-unfenced", where, instances, DISTRIBUTED, Outcome.OVERSOLD, stop=stop)
    return control, replace(
        control, slug=f"{slug}-fenced", fence=True, must_be=Outcome.EXACT, control=control.slug
    )


def with_short_lease(shop: Configuration) -> Configuration:
    return replace(shop, lock_ttl=TRANSACTIONS_TTL)


def failover_scenarios(backend: str | None = None) -> tuple[Scenario, ...]:
    """Return the scenarios of lock services that outages strike during a sale, without and with the fence.

    *backend*: the lock service; None: all that can be struck.
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


#: The ways by the view's name, which is also a part of its route.
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


#: How many seconds longer COMMIT takes.
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
    """Return the visit of one sale, in which the shop does not pause between read and write."""
    return Visit(
        f"rush-{scenario.slug}",
        "buys one unit",
        RUSH_WAYS[scenario.slug].why,
        RUSH_STOCK,
        pause=0.0,
    )


#: The lock services with shared locks and permits that the matrix shows.
READERS_BACKENDS = ("file", "redis", "zookeeper")
#: The lock services without shared locks or without permits.
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
