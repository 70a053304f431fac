"""The stories that ``scripts/demo`` tells, by name: their buyers, and their scenarios."""

from __future__ import annotations

import argparse

from demo_shop.guards import DISTRIBUTED
from loadtest import failover, readers, rush, transactions
from loadtest.crowd import Crowd
from loadtest.scenario import Scenario, async_story, story, unlocked

#: Stands before a scenario, or alone.
UP = "up"
INSTANCES, TRANSACTIONS, FAILOVER = "instances", "transactions", "failover"
RUSH, READERS = "rush", "readers"
CROWDS = {
    INSTANCES: Crowd(),
    TRANSACTIONS: transactions.CROWD,
    FAILOVER: failover.CROWD,
    RUSH: rush.CROWD,
    READERS: readers.CROWD,
}


def told(options: argparse.Namespace) -> tuple[Scenario, ...]:
    """The scenarios of the story that was asked for; where a shop is to be opened, also the unlocked one."""
    if options.story == TRANSACTIONS:
        return transactions.scenarios()
    if options.story == FAILOVER:
        return failover.scenarios(options.backend)
    framework = options.framework or "django"
    if options.story == RUSH:
        return rush.scenarios(framework)
    if options.story == READERS:
        return readers.scenarios(framework)
    scenarios = async_story(framework) if options.is_async else story(framework, options.guard)
    return (unlocked(framework, options.is_async), *scenarios) if options.up else scenarios


def opened_first(options: argparse.Namespace) -> str:
    """The scenario that ``up`` opens where none is named: what goes wrong, or the guard asked for."""
    if options.story == TRANSACTIONS:
        return transactions.scenarios()[0].slug
    pair = "mixed" if options.framework == "mixed" else "two"
    return f"{pair}-{'unlocked' if options.guard == DISTRIBUTED else options.guard}"
