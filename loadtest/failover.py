"""The story of failovers: a lock service loses a server in the middle of a sale, with and without the fence.

In Django, and on PostgreSQL, as in `loadtest.transactions`. The lock has its usual lease, which is longer
than each failover: where it passes on, that is not because nobody renewed it.
"""

from __future__ import annotations

from dataclasses import replace

from demo_shop.guards import DISTRIBUTED
from loadtest.crowd import Crowd
from loadtest.outages import OUTAGES, Outage
from loadtest.scenario import PAIRS, Outcome, Scenario, Stop

DATABASE, FRAMEWORK = "postgresql", "django"
STOCK = 60
#: Between read and write, seconds.
PAUSE = 0.02
#: Buyers who are turned away come again so soon that the service is measured, and not their patience.
CROWD = Crowd(users=16, purchases=40, pause=0.1)


def scenarios(backend: str | None = None) -> tuple[Scenario, ...]:
    """Those of *backend*, or all: each without the fence, and with it."""
    struck = [outage for outage in OUTAGES if backend in (None, outage.backend)]
    return tuple(scenario for outage in struck for scenario in both(outage))


def both(outage: Outage) -> tuple[Scenario, Scenario]:
    must_be = Outcome.OVERSOLD if outage.forgets else Outcome.EXACT
    if outage.by_chance:
        must_be = Outcome.EITHER
    unfenced = Scenario(
        f"{outage.slug}-unfenced",
        f"{outage.backend}: {outage.what}",
        PAIRS[FRAMEWORK],
        DISTRIBUTED,
        must_be,
        stop=Stop("read"),
        outage=outage,
    )
    return unfenced, replace(
        unfenced, slug=f"{outage.slug}-fenced", fence=True, must_be=Outcome.EXACT, control=unfenced.slug
    )
