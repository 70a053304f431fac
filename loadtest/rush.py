"""The story of a rush: one hot product, a COMMIT that takes a while, and who sells it how fast.

It imports nothing that a bare Python lacks: the options are looked at before anything is installed.
"""

from __future__ import annotations

from demo_shop.guards import DISTRIBUTED
from demo_shop.rush import WAYS
from loadtest.crowd import Crowd
from loadtest.scenario import PAIRS, Outcome, Scenario
from loadtest.visit import Visit

BACKEND, DATABASE = "redis", "postgresql"
#: What COMMIT takes longer, seconds.
COMMIT_PAUSE = 0.005
STOCK = 1000
#: A quarter more than there is: each sale ends with “sold out”, while all buyers are still there.
CROWD = Crowd(users=50, purchases=25)
WHERE = {
    "django": "two Django instances",
    "flask": "two Flask instances",
    "mixed": "a Django and a Flask instance",
}
GUARDS = {
    "unlocked": "none",
    "conditional": "conditional",
    "for_update": "for-update",
    "locked": DISTRIBUTED,
    "batched": DISTRIBUTED,
}
CONTROL = "unlocked"


def scenarios(framework: str) -> tuple[Scenario, ...]:
    """The control, which must oversell, and the ways to be compared; each slug is the name of its view."""
    return tuple(
        Scenario(
            slug,
            WHERE[framework],
            PAIRS[framework],
            GUARDS[slug],
            Outcome.OVERSOLD if slug == CONTROL else Outcome.EXACT,
            None if slug == CONTROL else CONTROL,
            called=way.title,
        )
        for slug, way in WAYS.items()
    )


def visit(scenario: Scenario) -> Visit:
    """What the buyers of one sale ask for: nobody thinks between the read and the write."""
    return Visit(f"rush-{scenario.slug}", "buys one unit", WAYS[scenario.slug].why, STOCK, pause=0.0)
