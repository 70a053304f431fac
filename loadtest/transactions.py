"""The story of transactions: a lock that ends before COMMIT, and a holder that stands still past its lease.

On PostgreSQL: SQLite lets only one transaction write at a time, and so hides in which order they are
committed. On Redis: its locks end when nobody renews them. In Django: elsewhere the lock's own look at its
lease, right before COMMIT, finds a stopped holder without the fence, unless it is stopped right there.
"""

from __future__ import annotations

from dataclasses import replace

from demo_shop.configuration import Configuration
from demo_shop.guards import DISTRIBUTED
from loadtest.crowd import Crowd
from loadtest.scenario import PAIRS, Outcome, Scenario, Stop, pair

BACKEND, DATABASE, FRAMEWORK = "redis", "postgresql", "django"
#: So many that some are left when one that was stopped goes on, also on a machine that is busy.
STOCK = 36
#: Between read and write, and what COMMIT takes longer where that is the story, seconds.
PAUSE = COMMIT_PAUSE = 0.02
#: So few that those of the other instance are all inside or in line when one is stopped: later ones would
#: be refused at once, because behind a holder that stands still they would wait in vain.
CROWD = Crowd(users=16, purchases=15)
#: Lifetime of the lock without renewal, seconds: a stop is longer.
TTL = 1.0


def scenarios() -> tuple[Scenario, ...]:
    instances = PAIRS[FRAMEWORK]
    committed = pair("commit", "ATOMIC_REQUESTS", instances, "plain", DISTRIBUTED)
    stopped = fenced_pair("stopped", "stopped between read and write", Stop("read"))
    # The purchase reads only after the stop, and meets one that is under way: some have to be left.
    late = fenced_pair("late", "stopped between lock and transaction", Stop("granted", sold=4))
    return (
        *(replace(one, atomic_requests=True, commit_pause=COMMIT_PAUSE) for one in committed),
        *stopped,
        *late,
    )


def fenced_pair(slug: str, where: str, stop: Stop) -> tuple[Scenario, ...]:
    """The same lock in both: what differs is the fence."""
    instances = PAIRS[FRAMEWORK]
    control = Scenario(f"{slug}-unfenced", where, instances, DISTRIBUTED, Outcome.OVERSOLD, stop=stop)
    return control, replace(
        control, slug=f"{slug}-fenced", fence=True, must_be=Outcome.EXACT, control=control.slug
    )


def with_short_lease(shop: Configuration) -> Configuration:
    return replace(shop, lock_ttl=TTL)
